"""Nodes of zeros and sums, and simulated secure sums.

The latter are plain sums with the protocols' checks.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime.engine import builder as builder_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values

# The clients' values and their bound.
_Argument: TypeAlias = tuple[nodes_lib.PlacedValue, nodes_lib.UnplacedValue]


def zeros(
  builder: builder_lib.Builder, type_spec: tff.Type, site: nodes_lib.Site
) -> list[nodes_lib.Leaf]:
  """Adds a node that returns zeros of a type."""
  specs = values.leaf_specs(type_spec)
  return builder.add(
    site,
    [],
    specs,
    lambda inputs, wanted: [
      tf.zeros(specs[i].shape, specs[i].dtype) for i in wanted
    ],
    'zero',
  ).leaves


def accumulate_sum(
  builder: builder_lib.Builder, type_spec: tff.Type
) -> builder_lib.Accumulate:
  """Returns the accumulation function of a sum of values of a type."""

  def add(
    pair: tuple[nodes_lib.UnplacedValue, ...], site: nodes_lib.Site
  ) -> nodes_lib.UnplacedValue:
    left, right = (nodes_lib.flatten(value) for value in pair)
    node = builder.add(
      site,
      left + right,
      values.leaf_specs(type_spec),
      lambda inputs, wanted: [
        inputs[i] + inputs[len(left) + i] for i in wanted
      ],
      'sum',
    )
    return nodes_lib.pack(type_spec, node.leaves)

  return add


def sum_below_maximum(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Argument,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  """Handles `tff.federated_secure_sum`."""
  return _checked_sum(
    builder, type_spec, argument, lambda bound: tf.cast(bound, tf.int64)
  )


def sum_of_bitwidth(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Argument,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  """Handles `tff.federated_secure_sum_bitwidth`."""
  return _checked_sum(
    builder, type_spec, argument, lambda bits: 2 ** tf.cast(bits, tf.int64) - 1
  )


def modular_sum(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Argument,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  """Handles the modular sum of `tff.aggregators`' secure protocols."""
  value, modulus = argument
  member = type_spec.result.member
  total = nodes_lib.flatten(_sum(builder, member, value.value))
  moduli = _one_each(modulus, total)
  reduced = builder.add(
    nodes_lib.SERVER,
    total + moduli,
    [leaf.spec for leaf in total],
    lambda inputs, wanted: [
      tf.math.floormod(
        inputs[i], tf.cast(inputs[len(total) + i], inputs[i].dtype)
      )
      for i in wanted
    ],
    'federated_secure_modular_sum',
  )
  return nodes_lib.PlacedValue(
    tff.SERVER, nodes_lib.pack(member, reduced.leaves), True
  )


def _checked_sum(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Argument,
  maximum_of: Callable[[tf.Tensor], tf.Tensor],
) -> nodes_lib.PlacedValue:
  """Sums values, which must not exceed a maximum, as in the protocol.

  Args:
    builder: Receives the nodes.
    type_spec: The intrinsic's type.
    argument: The values and the bounds.
    maximum_of: Maps a bound to the maximum, in 64 bits because it may exceed
      the summand's range.
  """
  value, bound = argument
  summands = nodes_lib.flatten(value.value)
  bounds = _one_each(bound, summands)

  def build(
    inputs: Sequence[tf.Tensor], wanted: Sequence[int]
  ) -> list[tf.Tensor]:
    checked = []
    values, limits = inputs[: len(summands)], inputs[len(summands) :]
    for summand, limit in zip(values, limits):
      maximum = maximum_of(limit)
      check = tf.debugging.Assert(
        tf.reduce_all(tf.cast(summand, tf.int64) <= maximum),
        [
          'A client value is larger than the maximum stated for the'
          ' secure sum:',
          summand,
          'maximum:',
          maximum,
        ],
      )
      with tf.control_dependencies([check]):
        checked.append(tf.identity(summand))
    return [checked[i] for i in wanted]

  checked = builder.add(
    nodes_lib.CLIENT,
    summands + bounds,
    [leaf.spec for leaf in summands],
    build,
    'federated_secure_sum',
  )
  member = type_spec.result.member
  total = _sum(builder, member, nodes_lib.pack(member, checked.leaves))
  return nodes_lib.PlacedValue(tff.SERVER, total, True)


def _sum(
  builder: builder_lib.Builder,
  member: tff.Type,
  value: nodes_lib.UnplacedValue,
) -> nodes_lib.UnplacedValue:
  """Adds a sum of a value over the clients."""
  zero = zeros(builder, member, nodes_lib.SERVER)
  return builder.add_aggregation(
    value,
    nodes_lib.pack(member, zero),
    member,
    accumulate_sum(builder, member),
  )


def _one_each(
  bound: nodes_lib.UnplacedValue, leaves: Sequence[nodes_lib.Leaf]
) -> list[nodes_lib.Leaf]:
  """Returns a bound for each leaf, repeating a single one."""
  bounds = nodes_lib.flatten(bound)
  return bounds * len(leaves) if len(bounds) == 1 else bounds
