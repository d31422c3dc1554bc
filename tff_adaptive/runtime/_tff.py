"""Every name this package takes from TFF or TensorFlow beyond their public API.

Both move their modules between releases. Whatever is not reachable from
`tensorflow_federated` or `tensorflow` itself is imported here and nowhere else,
so that an upgrade is a change to one file.
"""

import asyncio
import hashlib
import itertools
import os
import typing
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import attrs
import cachetools
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree  # type: ignore[import-untyped]
from tensorflow.python import pywrap_tfe
from tensorflow.python.eager import context as eager_context
from tensorflow.python.eager import core as eager_core
from tensorflow.python.framework import op_def_registry
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
from tensorflow_federated.python.core.impl.types import computation_types
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


def dataset_from_elements(
  elements: list[object], element_type: tff.Type
) -> tf.data.Dataset:
  """A dataset of explicitly listed elements."""
  return tensorflow_utils.make_data_set_from_elements(
    None, elements, element_type
  )


def conform_dataset(
  dataset: tf.data.Dataset, element_type: tff.Type
) -> tf.data.Dataset:
  """`dataset`, with its components in the order that graphs expect.

  A dataset's variant has no names, only an order, which follows from the Python
  containers of its elements; a graph traced with other containers would take
  one component for another.

  Raises:
    TypeError: If the elements are not assignable to `element_type`.
  """
  key = (_spec_key(dataset.element_spec), id(element_type))
  if key not in _conforming:
    got = computation_types.tensorflow_to_type(dataset.element_spec)
    if not element_type.is_assignable_from(got):
      raise TypeError(
        f'Expected a dataset with elements of type {element_type}, got {got}.'
      )
    expected = tf.nest.flatten(_element_spec(element_type))
    same = [(s.dtype, s.shape.rank) for s in expected] == [
      (s.dtype, s.shape.rank) for s in tf.nest.flatten(dataset.element_spec)
    ] and _field_order(dataset.element_spec) == _field_order(
      _element_spec(element_type)
    )
    # The type is kept, so that its id stays its own.
    _conforming[key] = (same, element_type)
  if _conforming[key][0]:
    return dataset

  def conform(*element: Any) -> Any:
    # tf.data spreads plain tuples over the parameters.
    whole = element
    if type(dataset.element_spec) is not tuple:  # pylint: disable=unidiomatic-typecheck
      (whole,) = element
    return _conform_element(whole, element_type)

  return dataset.map(conform)


def _conform_element(element: Any, type_spec: tff.Type) -> Any:
  if not isinstance(type_spec, tff.StructType):
    return element
  got = structure.from_container(element)
  parts = [
    (name, _conform_element(got[index], part))
    for index, (name, part) in enumerate(struct_items(type_spec))
  ]
  return type_conversions.type_to_py_container(
    structure.Struct(parts), type_spec
  )


_conforming: dict = cachetools.LRUCache(1024)


def _spec_key(spec: Any) -> Any:
  return (
    tuple(
      (s.dtype, tuple(s.shape) if s.shape.rank is not None else None)
      for s in tf.nest.flatten(spec)
    ),
    _field_order(spec),
  )


def _field_order(spec: Any) -> object:
  """Names in the order in which tf.nest flattens them, nested."""
  if isinstance(spec, Mapping):
    return tuple((k, _field_order(spec[k])) for k in sorted(spec))
  if hasattr(spec, '_fields'):
    return tuple((k, _field_order(getattr(spec, k))) for k in spec._fields)
  if attrs.has(type(spec)):
    return tuple(
      (f.name, _field_order(getattr(spec, f.name)))
      for f in attrs.fields(type(spec))
    )
  if isinstance(spec, (list, tuple)):
    return tuple(_field_order(s) for s in spec)
  return None


def _element_spec(element_type: tff.Type) -> Any:
  """Specs of a dataset's elements in the containers that graphs use."""
  return type_conversions.type_to_py_container(
    type_conversions.type_to_tf_structure(element_type), element_type
  )


def dataset_from_variant(
  variant: tf.Tensor, element_type: tff.Type
) -> tf.data.Dataset:
  """The dataset behind a variant tensor, with TFF's element type."""
  return tensorflow_utils.coerce_dataset_elements_to_tff_type_spec(
    tf.data.experimental.from_variant(variant, _element_spec(element_type)),
    element_type,
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


def _component_specs(element_type: tff.Type) -> list[tf.TensorSpec]:
  return tf.nest.flatten(_element_spec(element_type))


def component_order(element_type: tff.Type) -> list[int]:
  """Which of an element's tensors, in TFF's order, is each tf.data component.

  tf.data orders an element's components as `tf.nest` does, so mappings by their
  sorted keys; TFF orders them as its type does.
  """
  counter = itertools.count()

  def number(type_spec: Any) -> Any:
    if isinstance(type_spec, tff.StructType):
      return structure.Struct(
        [(name, number(t)) for name, t in struct_items(type_spec)]
      )
    return next(counter)

  return tf.nest.flatten(
    type_conversions.type_to_py_container(number(element_type), element_type)
  )


def from_components(components: Sequence, element_type: tff.Type) -> list:
  """tf.data components in TFF's order."""
  ordered = [None] * len(components)
  for component, index in zip(components, component_order(element_type)):
    ordered[index] = component
  return ordered


def flat_dataset(variant: tf.Tensor, element_type: tff.Type) -> tf.data.Dataset:
  """The dataset behind a variant, its elements flat tuples of components."""
  return tf.data.experimental.from_variant(
    variant, tuple(_component_specs(element_type))
  )


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


# Datasets whose elements follow from their inputs alone.
_DETERMINISTIC = frozenset(
  {
    'BatchDataset',
    'BatchDatasetV2',
    'ConcatenateDataset',
    'FilterDataset',
    'FlatMapDataset',
    'MapAndBatchDataset',
    'MapDataset',
    'OptionsDataset',
    'PaddedBatchDataset',
    'PaddedBatchDatasetV2',
    'ParallelBatchDataset',
    'ParallelMapDatasetV2',
    'PrefetchDataset',
    'RangeDataset',
    'RepeatDataset',
    'SkipDataset',
    'TakeDataset',
    'TensorDataset',
    'TensorSliceDataset',
    'UnbatchDataset',
    'ZipDataset',
  }
)


def yields_the_same_each_time(variant: tf.Tensor) -> bool:
  """Whether a dataset is finite and free of randomness and outside state.

  Args:
    variant: The dataset's variant tensor.
  """
  cardinality = int(tf.raw_ops.DatasetCardinality(input_dataset=variant))
  if cardinality == tf.data.INFINITE_CARDINALITY:
    return False
  try:
    graph = tf.compat.v1.GraphDef.FromString(
      tf.raw_ops.DatasetToGraphV2(
        input_dataset=variant,
        external_state_policy=2,  # Fail if there is any.
        strip_device_assignment=True,
      ).numpy()
    )
  except tf.errors.OpError:
    return False  # It cannot be written down, so it depends on other things.
  nodes = list(graph.node)
  for function in graph.library.function:
    nodes.extend(function.node_def)
  functions = {f.signature.name for f in graph.library.function}
  return all(
    node.op in _DETERMINISTIC or node.op in functions or _is_stateless(node.op)
    for node in nodes
  )


def _is_stateless(op: str) -> bool:
  if op in ('_Arg', '_Retval', 'StatefulPartitionedCall'):
    # The call's function is in the library, where its ops are looked at.
    return True
  definition = op_def_registry.get(op)
  return (
    definition is not None
    and not definition.is_stateful
    and not op.endswith('Dataset')
  )


def serialize_options(options: tf.data.Options) -> bytes:
  """tf.data options as an op takes them."""
  return options._to_proto().SerializeToString()


def apply_options(dataset: tf.data.Dataset, serialized: bytes) -> tf.Tensor:
  """The variant of `dataset` under further options.

  `dataset.with_options` does the same, but takes half a millisecond.
  """
  specs = tf.nest.flatten(dataset.element_spec)
  return tf.raw_ops.OptionsDataset(
    input_dataset=tf.data.experimental.to_variant(dataset),
    serialized_options=serialized,
    output_types=[spec.dtype for spec in specs],
    output_shapes=[spec.shape for spec in specs],
  )


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
