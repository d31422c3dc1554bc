"""The kernels that this TensorFlow has for a node of a graph.

TensorFlow's wheel for Linux is built with CUDA: the list of its kernels has
those for GPUs on a machine without one.
"""

import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.framework import op_def_registry

# Devices of this name stand in for any that has no kernel of its own.
_DEFAULT = 'DEFAULT'
# What ops do, or need, for which a GPU has no kernel.
_DATASET_WORDS = ('Dataset', 'Iterator')


class Memory(NamedTuple):
  """Where a node has its tensors when it runs on a GPU.

  Attributes:
    inputs: Per input, whether it must be in the host's memory.
    outputs: Per output, likewise.
  """

  inputs: list[bool]
  outputs: list[bool]


@functools.cache
def op_def(op: str) -> Any:
  """Returns the definition of an op."""
  return op_def_registry.get(op)


@functools.cache
def _registered(op: str) -> tuple[Any, ...]:
  return tuple(kernels.get_registered_kernels_for_op(op).kernel)


def find(node: Any, device_type: str) -> Any | None:
  """Finds the kernel that TensorFlow would run a node with.

  Args:
    node: A NodeDef.
    device_type: 'CPU' or 'GPU'.

  Returns:
    A KernelDef; `None` if no kernel takes the node's types.
  """
  for kind in (device_type, _DEFAULT):
    for kernel in _registered(node.op):
      if kernel.device_type == kind and _takes(kernel, node):
        return kernel
  return None


def _takes(kernel: Any, node: Any) -> bool:
  label = node.attr['_kernel'].s.decode() if '_kernel' in node.attr else ''
  return kernel.label == label and all(
    set(_types(node, constraint.name))
    <= set(constraint.allowed_values.list.type)
    for constraint in kernel.constraint
  )


def _types(node: Any, name: str) -> list[int]:
  value = _attribute(node, name)
  return list(value.list.type) if value.HasField('list') else [value.type]


def _attribute(node: Any, name: str) -> Any:
  if name in node.attr:
    return node.attr[name]
  (default,) = (a.default_value for a in op_def(node.op).attr if a.name == name)
  return default


def input_types(node: Any) -> list[tf.DType]:
  """Lists the types of a node's inputs."""
  return [dtype for _, dtype in _flat(node, op_def(node.op).input_arg)]


def output_types(node: Any) -> list[tf.DType]:
  """Lists the types of a node's outputs."""
  return [dtype for _, dtype in _flat(node, op_def(node.op).output_arg)]


def memory(node: Any, kernel: Any) -> Memory:
  """Tells where a kernel wants each input and has each output."""
  host = set(kernel.host_memory_arg)
  definition = op_def(node.op)
  return Memory(
    [name in host for name, _ in _flat(node, definition.input_arg)],
    [name in host for name, _ in _flat(node, definition.output_arg)],
  )


def _flat(node: Any, arguments: Any) -> Iterator[tuple[str, tf.DType]]:
  """Yields the argument's name and the type of each tensor."""
  for argument in arguments:
    if argument.type_list_attr:
      for dtype in _types(node, argument.type_list_attr):
        yield argument.name, tf.as_dtype(dtype)
      continue
    dtype = argument.type
    if argument.type_attr:
      (dtype,) = _types(node, argument.type_attr)
    count = 1
    if argument.number_attr:
      count = _attribute(node, argument.number_attr).i
    for _ in range(count):
      yield argument.name, tf.as_dtype(dtype)


def cpu_only(graph: tf.compat.v1.GraphDef) -> dict[str, list[str]]:
  """Lists the ops of a flat graph that have no kernel on a GPU.

  Returns:
    Names of nodes by op; with the types of its inputs behind the op.
  """
  found: dict[str, list[str]] = {}
  for node in graph.node:
    if find(node, 'GPU') is None:
      types = ', '.join(dtype.name for dtype in input_types(node))
      found.setdefault(f'{node.op}({types})', []).append(node.name)
  return found
