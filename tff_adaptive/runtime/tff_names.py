"""Names of TFF and TensorFlow that are not in their public API.

Both move their modules between releases. Names that are not exported by
`tensorflow_federated` or `tensorflow` are imported here or, for datasets and
function calls, in `tff_datasets.py` and `tff_functions.py`, so that an upgrade
changes no other module.
"""

import hashlib
import os
import typing
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree
from tensorflow.core.framework import function_pb2
from tensorflow_federated.proto.v0 import computation_pb2
from tensorflow_federated.proto.v0 import executor_pb2
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
from tensorflow_federated.python.core.impl.compiler import tree_analysis
from tensorflow_federated.python.core.impl.types import type_conversions
from tensorflow_federated.python.core.impl.utils import tensorflow_utils
from tensorflow_federated.python.tensorflow_libs import serialization_utils

from tff_adaptive.runtime import failures

# Protocol buffer messages.
ComputationProto: TypeAlias = computation_pb2.Computation
TensorFlowProto: TypeAlias = computation_pb2.TensorFlow
FunctionDef: TypeAlias = function_pb2.FunctionDef
FunctionDefLibrary: TypeAlias = function_pb2.FunctionDefLibrary

Struct: TypeAlias = structure.Struct
# Names (`None` if unnamed) and types of a struct type's elements.
struct_items = structure.to_elements
# Converts a value to the Python containers of a type.
to_container = type_conversions.type_to_py_container
# Tensor names of a graph's parameter or result, in order.
binding_names = tensorflow_utils.extract_tensor_names_from_binding
compile_to_mergeable = mergeable_comp_compiler.compile_to_mergeable_comp_form
compile_to_native = native_compiler.desugar_and_transform_to_native
transform_args = tensorflow_computation.transform_args
transform_result = tensorflow_computation.transform_result


def expand_intrinsics(
  comp: tff.framework.ConcreteComputation,
) -> tff.framework.ComputationBuildingBlock:
  """Rewrites `comp` to the intrinsics that TFF's runtimes implement.

  This is the first step of `compile_to_native`; the in-process engine does not
  need the others, which take most of the time.
  """
  block, _ = tensorflow_tree_transformations.replace_intrinsics_with_bodies(
    comp.to_building_block()
  )
  return block


_SECURE_SUMS = [
  'federated_secure_modular_sum',
  'federated_secure_sum',
  'federated_secure_sum_bitwidth',
]


def _optimizations() -> tf.compat.v1.ConfigProto:
  """Builds TFF's own Grappler options, without memory optimization.

  Memory optimization makes sums of large models use temporary variables, whose
  names concurrent clients share, so that all but one fail. Disabling other
  passes would save time, but leave loops half lowered, which later passes
  break.
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
  """Optimizes the graph of `block` like TFF's native compiler.

  Function calls are inlined; remaining ones are marked such that Grappler does
  not optimize them again at run time.
  """
  result = block.type_signature.result
  if tff.types.contains_only(result, lambda t: isinstance(t, tff.StructType)):
    # Of nothing to compute, as metrics that no model has, Grappler logs errors.
    return block.proto.tensorflow
  optimized = compiled_computation_transformations.optimize_tensorflow_comp(
    block, _OPTIMIZATIONS
  )
  transform = tensorflow_computation_transformations
  return transform.disable_grappler_for_partitioned_calls(
    optimized.proto
  ).tensorflow


def worker_binary_path() -> str:
  """Returns the path of the installed TFF's C++ worker.

  Raises:
    RuntimeFailure: If this installation has none.
  """
  path = os.path.join(os.path.dirname(tff.__file__), 'data', 'worker_binary')
  if not os.path.isfile(path):
    # In some builds of TFF the package's root is not the Python root.
    path = os.path.join(
      os.path.dirname(executor_pb2.__file__),
      '..',
      '..',
      'data',
      'worker_binary',
    )
  path = os.path.normpath(path)
  if not os.path.isfile(path):
    raise failures.RuntimeFailure(
      f'There is no TFF worker at {path}: this installation of '
      'tensorflow-federated lacks it. Use the in-process runtime; on Linux on '
      'x86-64, `make native` or reinstalling tensorflow-federated provides it.'
    )
  return path


def tensor_spec(type_spec: tff.TensorType) -> tf.TensorSpec:
  """Converts a TFF tensor type to a `tf.TensorSpec`."""
  dtype = type_spec.dtype
  return tf.TensorSpec(
    type_spec.shape, tf.string if dtype.type is np.str_ else tf.as_dtype(dtype)
  )


def check_array(value: object, type_spec: tff.TensorType) -> None:
  """Raises `TypeError` unless TFF accepts `value` for `type_spec`."""
  if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
    # A list has no dtype, so TFF would check each element.
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


def computation_digest(comp: tff.framework.ConcreteComputation) -> bytes:
  """Computes a key that is equal for equal computations.

  The key does not keep the computation alive.
  """
  proto = tff.framework.ConcreteComputation.get_proto(comp)
  return hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()


def unpack_graph_def(proto: TensorFlowProto) -> tf.compat.v1.GraphDef:
  """Parses the graph of a compiled computation into a new message."""
  return serialization_utils.unpack_graph_def(proto.graph_def)


def computation_from_proto(
  proto: ComputationProto,
) -> tff.framework.ConcreteComputation:
  """Builds a computation from a message."""
  return tff.framework.ConcreteComputation(
    computation_proto=proto, context_stack=tff.framework.get_context_stack()
  )


def contains_secure_sum(comp: tff.framework.ConcreteComputation) -> bool:
  """Returns whether a computation has a secure sum (these cannot be merged)."""
  return tree_analysis.contains_called_intrinsic(
    comp.to_building_block(), _SECURE_SUMS
  )


def is_at_clients(type_spec: tff.Type) -> bool:
  """Returns whether a type is of values at clients that are not all-equal."""
  return (
    isinstance(type_spec, tff.FederatedType)
    and type_spec.placement is tff.CLIENTS
    and not type_spec.all_equal
  )


def has_clients(type_spec: tff.Type | None) -> bool:
  """Returns whether a type has a part for which `is_at_clients` holds."""
  return type_spec is not None and tff.types.contains(type_spec, is_at_clients)
