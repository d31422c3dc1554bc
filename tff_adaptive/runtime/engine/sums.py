"""Nodes of elementwise zeros and sums of a TFF type."""

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime.engine import builder as builder_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values


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
