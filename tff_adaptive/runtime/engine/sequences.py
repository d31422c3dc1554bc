"""Intrinsics on sequences, expressed as operations on `tf.data.Dataset`s."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime.engine import builder as builder_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import sums
from tff_adaptive.runtime.engine import values

_Function: TypeAlias = Callable[
  [nodes_lib.UnplacedValue, nodes_lib.Site], nodes_lib.UnplacedValue
]
_Tensors: TypeAlias = Sequence[tf.Tensor]
_VARIANT = tf.TensorSpec([], tf.variant)


def select(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: tuple[
    nodes_lib.PlacedValue,
    nodes_lib.PlacedValue,
    nodes_lib.PlacedValue,
    _Function,
  ],
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  """Handles `tff.federated_select`."""
  keys, _, state, choose = argument
  # Keys are not checked against their range; the function defines the result
  # for others, as in TFF's own runtime.
  inner = builder.trace_inner(
    [tf.TensorSpec([], tf.int32)],
    lambda parameters, site: choose((state.value, parameters[0]), site),
  )
  order = tff_datasets.component_order(type_spec.result.member.element)

  def build(inputs: _Tensors, wanted: Sequence[int]) -> _Tensors:
    keys, *captured = inputs

    def one(key: tf.Tensor) -> tuple[tf.Tensor, ...]:
      results = inner.build([key], captured)
      return tuple(results[i] for i in order)

    dataset = tf.data.Dataset.from_tensor_slices(keys).map(one)
    return [tf.data.experimental.to_variant(dataset)]

  node = builder.add(
    nodes_lib.CLIENT,
    [*nodes_lib.flatten(keys.value), *inner.captured],
    [_VARIANT],
    build,
    'federated_select',
    ordered=inner.ordered,
  )
  return nodes_lib.PlacedValue(tff.CLIENTS, node.leaves[0], False)


def sequence_map(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: tuple[_Function, nodes_lib.Leaf],
  site: nodes_lib.Site,
) -> nodes_lib.Leaf:
  """Handles `tff.sequence_map`."""
  function, sequence = argument
  source = type_spec.parameter[1].element
  inner = builder.trace_inner(
    values.leaf_specs(source),
    lambda parameters, site: function(nodes_lib.pack(source, parameters), site),
  )
  order = tff_datasets.component_order(type_spec.result.element)

  def build(inputs: _Tensors, wanted: Sequence[int]) -> _Tensors:
    variant, *captured = inputs

    def one(*components: tf.Tensor) -> tuple[tf.Tensor, ...]:
      arguments = tff_datasets.from_components(components, source)
      results = inner.build(arguments, captured)
      return tuple(results[i] for i in order)

    dataset = tff_datasets.flat_dataset(variant, source).map(one)
    return [tf.data.experimental.to_variant(dataset)]

  return builder.add(
    site,
    [sequence, *inner.captured],
    [_VARIANT],
    build,
    'sequence_map',
    ordered=inner.ordered,
  ).leaves[0]


def sequence_reduce(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: tuple[
    nodes_lib.Leaf, nodes_lib.UnplacedValue, builder_lib.Accumulate
  ],
  site: nodes_lib.Site,
) -> nodes_lib.UnplacedValue:
  """Handles `tff.sequence_reduce`."""
  sequence, zero, function = argument
  return _reduce(
    builder,
    sequence,
    type_spec.parameter[0].element,
    nodes_lib.flatten(zero),
    type_spec.result,
    function,
    site,
  )


def sequence_sum(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: nodes_lib.Leaf,
  site: nodes_lib.Site,
) -> nodes_lib.UnplacedValue:
  """Handles `tff.sequence_sum`."""
  element = type_spec.result
  return _reduce(
    builder,
    argument,
    element,
    sums.zeros(builder, element, site),
    element,
    sums.accumulate_sum(builder, element),
    site,
  )


def _reduce(
  builder: builder_lib.Builder,
  sequence: nodes_lib.Leaf,
  source: tff.Type,
  zero: Sequence[nodes_lib.Leaf],
  state_type: tff.Type,
  function: builder_lib.Accumulate,
  site: nodes_lib.Site,
) -> nodes_lib.UnplacedValue:
  """Adds a node that folds a function over a sequence.

  Args:
    builder: Receives the node.
    sequence: The sequence.
    source: Type of its elements.
    zero: Leaves of the initial state.
    state_type: Type of the state.
    function: Maps (state, element) to the next state.
    site: Site of the node.
  """
  specs = values.leaf_specs(state_type)

  def body(
    parameters: Sequence[nodes_lib.Leaf], site: nodes_lib.Site
  ) -> nodes_lib.UnplacedValue:
    state = nodes_lib.pack(state_type, parameters[: len(specs)])
    element = nodes_lib.pack(source, parameters[len(specs) :])
    return function((state, element), site)

  inner = builder.trace_inner(specs + values.leaf_specs(source), body)

  def build(inputs: _Tensors, wanted: Sequence[int]) -> _Tensors:
    variant, state = inputs[0], inputs[1 : 1 + len(specs)]
    captured = inputs[1 + len(specs) :]

    def step(state: _Tensors, components: _Tensors) -> tuple[tf.Tensor, ...]:
      arguments = tff_datasets.from_components(components, source)
      return tuple(inner.build([*state, *arguments], captured))

    result = tff_datasets.flat_dataset(variant, source).reduce(
      tuple(state), step
    )
    return [result[i] for i in wanted]

  node = builder.add(
    site,
    [sequence, *zero, *inner.captured],
    specs,
    build,
    'sequence_reduce',
    ordered=inner.ordered,
  )
  return nodes_lib.pack(state_type, node.leaves)
