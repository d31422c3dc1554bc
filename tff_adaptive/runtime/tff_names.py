"""Every name this package takes from TFF or TensorFlow beyond their public API.

Both move their modules between releases. Whatever is not reachable from
`tensorflow_federated` or `tensorflow` itself is imported here and, where it is
about datasets, in `_tff_datasets.py`, so that an upgrade changes nothing else.
"""

import asyncio
import hashlib
import os
import typing
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree  # type: ignore[import-untyped]
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import core as eager_core
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.proto.v0 import executor_pb2
from tensorflow_federated.proto.v0 import executor_pb2_grpc
from tensorflow_federated.python.common_libs import async_utils
from tensorflow_federated.python.common_libs import structure
from tensorflow_federated.python.core.backends.native import (
  compiler as native_compiler,
)
from tensorflow_federated.python.core.backends.native import (
  mergeable_comp_compiler,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import (
  compiled_computation_transformations,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import (
  tensorflow_computation_transformations,
)
from tensorflow_federated.python.core.environments.tensorflow_backend import (
  tensorflow_tree_transformations,
)
from tensorflow_federated.python.core.environments.tensorflow_frontend import (
  tensorflow_computation,
)
from tensorflow_federated.python.core.impl.compiler import array
from tensorflow_federated.python.core.impl.execution_contexts import (
  mergeable_comp_execution_context,
)
from tensorflow_federated.python.core.impl.executors import value_serialization
from tensorflow_federated.python.core.impl.types import type_conversions
from tensorflow_federated.python.core.impl.utils import tensorflow_utils
from tensorflow_federated.python.tensorflow_libs import serialization_utils

ExecutorGroupServicer: Any = executor_pb2_grpc.ExecutorGroupServicer
ExecutorGroupStub: Any = executor_pb2_grpc.ExecutorGroupStub
add_executor_service: Any = (
  executor_pb2_grpc.add_ExecutorGroupServicer_to_server
)
AsyncThreadRunner = async_utils.AsyncThreadRunner
Struct = structure.Struct
compile_to_mergeable = mergeable_comp_compiler.compile_to_mergeable_comp_form
compile_to_native = native_compiler.desugar_and_transform_to_native
transform_args = tensorflow_computation.transform_args
transform_result = tensorflow_computation.transform_result


def expand_intrinsics(comp: tff.framework.ConcreteComputation) -> Any:
  """The building block of `comp`, in terms of the native compiler's intrinsics.

  The first step of `compile_to_native`. Its others give the tree a form that
  `program.py` has no need of, and take most of the time.
  """
  block, _ = tensorflow_tree_transformations.replace_intrinsics_with_bodies(
    comp.to_building_block()
  )
  return block


def _optimizations() -> tf.compat.v1.ConfigProto:
  """Those of TFF's native compiler.

  Fewer would take less time, but in their place leave loops half lowered, which
  later optimizations break. Only those of memory are left out: for models of
  some size they sum through temporary variables, whose names clients that train
  at once share, so that all but one fail.
  """
  config = tf.compat.v1.ConfigProto()
  options = config.graph_options.rewrite_options
  options.memory_optimization = options.NO_MEM_OPT
  options.constant_folding = options.AGGRESSIVE
  options.arithmetic_optimization = options.AGGRESSIVE
  options.loop_optimization = options.AGGRESSIVE
  options.function_optimization = options.AGGRESSIVE
  return config


_OPTIMIZATIONS = _optimizations()


def optimized_graph(
  block: tff.framework.CompiledComputation,
) -> computation_pb2.TensorFlow:
  """The graph of `block` as TFF's native compiler leaves it.

  Its function calls are inlined, and what is called still will not be optimized
  once more when it runs.
  """
  optimized = compiled_computation_transformations.optimize_tensorflow_comp(
    block, _OPTIMIZATIONS
  )
  transform = tensorflow_computation_transformations
  return transform.disable_grappler_for_partitioned_calls(
    optimized.proto
  ).tensorflow


def worker_binary_path() -> str:
  """Where the installed TFF keeps its C++ worker.

  Raises:
    FileNotFoundError: If this installation has none.
  """
  path = os.path.join(os.path.dirname(tff.__file__), 'data', 'worker_binary')
  if not os.path.isfile(path):
    # The package's root differs from the Python root in some builds of TFF.
    path = os.path.join(
      os.path.dirname(executor_pb2.__file__),
      '..',
      '..',
      'data',
      'worker_binary',
    )
  path = os.path.normpath(path)
  if not os.path.isfile(path):
    raise FileNotFoundError(
      f"TFF's worker was expected at {path}: this installation of"
      ' tensorflow-federated has none; use the in-process runtime or install'
      ' the Linux x86-64 wheel.'
    )
  return path


def struct_items(
  type_spec: tff.StructType,
) -> list[tuple[str | None, tff.Type]]:
  """Names (`None` for unnamed) and types of a struct type's elements."""
  return structure.to_elements(type_spec)


def tensor_spec(type_spec: tff.TensorType) -> tf.TensorSpec:
  """The `tf.TensorSpec` of a TFF tensor type."""
  return tf.TensorSpec(type_spec.shape, tf.as_dtype(_tf_dtype(type_spec.dtype)))


def _tf_dtype(dtype: Any) -> Any:
  return tf.string if dtype.type is np.str_ else dtype


def check_array(value: object, type_spec: tff.TensorType) -> None:
  """Raises `TypeError` unless TFF takes `value` for `type_spec`."""
  if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
    # TFF looks at each element, because a list has no dtype of its own.
    elements = tree.flatten(value)
    compatible = all(
      array.is_compatible_dtype(x, type_spec.dtype.type) for x in elements
    )
    value = np.asarray(value)
  else:
    compatible = isinstance(
      value, typing.get_args(array.Array)
    ) and array.is_compatible_dtype(value, type_spec.dtype.type)
  if not compatible or not array.is_compatible_shape(value, type_spec.shape):
    raise TypeError(
      f'Expected a tensor of type {type_spec}, got {value!r} of type'
      f' {type(value).__name__}.'
    )


def to_container(value: object, type_spec: tff.Type) -> object:
  """`value` with the Python containers that `type_spec` names."""
  return type_conversions.type_to_py_container(value, type_spec)


def computation_digest(comp: tff.framework.ConcreteComputation) -> bytes:
  """Equal for equal computations; does not keep them alive."""
  proto = tff.framework.ConcreteComputation.get_proto(comp)
  return hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()


def literal_value(block: tff.framework.Literal) -> object:
  """The NumPy value of a literal."""
  return block.value


def binding_names(binding: computation_pb2.TensorFlow.Binding) -> list[str]:
  """Tensor names of a graph's parameter or result, in order."""
  return tensorflow_utils.extract_tensor_names_from_binding(binding)


def unpack_graph_def(packed: Any) -> tf.compat.v1.GraphDef:
  """The graph of a compiled computation, as an object of the caller's own."""
  return serialization_utils.unpack_graph_def(packed)


def spare_datasets_the_optimizer() -> None:
  """Lets TensorFlow run the functions in datasets without optimizing them.

  It would do so anew for every iterator, which takes longer than a client's few
  batches. Other functions are optimized as before. Has an effect only before
  TensorFlow's first operation in this process.
  """
  option = 'disable_meta_optimizer'
  before = tf.config.optimizer.get_experimental_options().get(option, False)
  # What the process starts with is what iterators go by from then on; a
  # function that is called goes by what is set when it is called.
  tf.config.optimizer.set_experimental_options({option: True})
  eager_context.context().ensure_initialized()
  tf.config.optimizer.set_experimental_options({option: before})


class FastFunction:
  """Calls a concrete function without the checks and conversions of Python.

  Those take longer than a small function runs, and here the arguments are known
  to be tensors of the right types.
  """

  def __init__(self, concrete: Any) -> None:
    """Wraps a `tf.types.experimental.ConcreteFunction` without captures."""
    if concrete.captured_inputs:
      raise ValueError(
        'A function that captures tensors cannot be called fast.'
      )
    self._concrete = concrete  # Keeps the function registered.
    self._name = concrete.name
    self._num_outputs = len(concrete.outputs)
    self._context = eager_context.context()
    self._context.ensure_initialized()
    config = tf.compat.v1.ConfigProto.FromString(
      self._context.function_call_options.config_proto_serialized
    )
    options = config.graph_options.rewrite_options
    # See `_optimizations`.
    options.memory_optimization = options.NO_MEM_OPT
    self._attributes = (
      'executor_type',
      '',
      'config_proto',
      config.SerializeToString(),
    )

  def __call__(
    self, arguments: list[tf.Tensor], device: str = ''
  ) -> list[tf.Tensor]:
    """Runs on `device` (full name), or where TensorFlow chooses.

    Raises:
      tf.errors.OpError: If the function fails.
    """
    try:
      return pywrap_tfe.TFE_Py_Execute(
        self._context._handle,
        device,
        self._name,
        arguments,
        self._attributes,
        self._num_outputs,
      )
    except eager_core._NotOkStatusException as e:
      raise eager_core._status_to_exception(e) from None


def deserialize_cardinalities(messages: Any) -> dict:
  """Placements and numbers from a `GetExecutorRequest`."""
  return value_serialization.deserialize_cardinalities(messages)


def deserialize_value(proto: Any) -> tuple[object, tff.Type]:
  """The value and its type; a computation stays a message."""
  return value_serialization.deserialize_value(proto)


def computation_from_proto(proto: Any) -> tff.framework.ConcreteComputation:
  """The computation that a message describes."""
  return tff.framework.ConcreteComputation(
    computation_proto=proto, context_stack=tff.framework.get_context_stack()
  )


def contains_secure_sum(comp: tff.framework.ConcreteComputation) -> bool:
  """Whether TFF's compiler for merging would stop at a secure sum."""
  found = False

  def look(block: Any) -> Any:
    nonlocal found
    if isinstance(block, tff.framework.Intrinsic):
      found = found or 'secure_sum' in block.uri or 'modular_sum' in block.uri
    return block, False

  tff.framework.transform_postorder(comp.to_building_block(), look)
  return found


async def invoke_mergeable(form: Any, arg: Any, contexts: Any) -> Any:
  """Runs a computation cut at its aggregation, a part of its clients each.

  As TFF's `MergeableCompExecutionContext` does, but in the clients' order: TFF
  merges partial sums and joins clients' results in the order in which workers
  finish, so that sums would depend on timing, and results reach the wrong
  client.

  Args:
    form: What `compile_to_mergeable` made.
    arg: Its argument, or `None`.
    contexts: Where the parts run, each a `tff.framework.AsyncContext`.
  """
  pool = mergeable_comp_execution_context
  result_type = form.after_merge.type_signature.result
  parts = [None] * len(contexts)
  if arg is not None:
    parts = pool.MergeableCompExecutionContextValue(
      arg, form.up_to_merge.type_signature.parameter, len(contexts)
    ).value()
  pairs = list(zip(parts, contexts))
  partial = await asyncio.gather(
    *(c.invoke(form.up_to_merge, part) for part, c in pairs)
  )
  merged = partial[0]
  for other in partial[1:]:
    merged = await contexts[0].invoke(
      form.merge, structure.Struct.unnamed(merged, other)
    )

  def finish(part: Any, context: Any) -> Any:
    rest = merged
    if part is not None:
      rest = structure.Struct.unnamed(part, merged)
    return context.invoke(form.after_merge, rest)

  if not has_clients(result_type):
    # Then it is the same whichever part of the argument it is made with.
    pairs = pairs[:1]
  results = await asyncio.gather(*(finish(*pair) for pair in pairs))
  if len(pairs) == 1:
    result = results[0]
  else:
    result = pool._repackage_partitioned_values(list(results), result_type)
  return transform_result(
    type_conversions.type_to_py_container(result, result_type)
  )


def has_clients(type_spec: Any) -> bool:
  """Whether a value of the type has a member at each client."""
  if isinstance(type_spec, tff.FederatedType):
    return type_spec.placement is tff.CLIENTS and not type_spec.all_equal
  if isinstance(type_spec, tff.StructType):
    return any(has_clients(t) for _, t in struct_items(type_spec))
  return False
