"""What each of TFF's intrinsics becomes in a program.

A handler takes the tracer that meets the intrinsic, its type, its argument and
the site of the call, and returns its symbolic value; see `tracing.py`.
"""

from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.runtime import tff_datasets
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import values


def federated_aggregate(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  value, zero, accumulate, _, report = argument
  total = tracer.fold(
    value,
    zero,
    type_spec.parameter[1],
    accumulate,
  )
  return nodes_lib.Federated(tff.SERVER, report(total, nodes_lib.SERVER), True)


def apply_to(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  function, value = argument
  if value.placement is tff.SERVER:
    return nodes_lib.Federated(
      tff.SERVER, function(value.value, nodes_lib.SERVER), True
    )
  return nodes_lib.Federated(
    tff.CLIENTS, function(value.value, nodes_lib.CLIENT), False
  )


def map_all_equal(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  function, value = argument
  return nodes_lib.Federated(
    tff.CLIENTS, function(value.value, nodes_lib.SERVER), True
  )


def broadcast(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  return nodes_lib.Federated(tff.CLIENTS, argument.value, True)


def eval_at_clients(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  return nodes_lib.Federated(
    tff.CLIENTS, argument(None, nodes_lib.CLIENT), False
  )


def eval_at_server(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  return nodes_lib.Federated(tff.SERVER, argument(None, nodes_lib.SERVER), True)


def value_at_clients(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  return nodes_lib.Federated(tff.CLIENTS, argument, True)


def value_at_server(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  return nodes_lib.Federated(tff.SERVER, argument, True)


def zip_values(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  all_equal = True

  def strip(value: Any) -> Any:
    nonlocal all_equal
    if isinstance(value, nodes_lib.Federated):
      all_equal = all_equal and value.all_equal
      return value.value
    return tuple(strip(element) for element in value)

  stripped = strip(argument)
  return nodes_lib.Federated(type_spec.result.placement, stripped, all_equal)


def secure_sum(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  value, bound = argument
  return _checked_sum(
    tracer, type_spec, value, bound, lambda b, dtype: tf.cast(b, dtype)
  )


def secure_sum_bitwidth(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  value, bits = argument
  return _checked_sum(
    tracer,
    type_spec,
    value,
    bits,
    lambda b, dtype: tf.cast(2 ** tf.cast(b, tf.int64) - 1, dtype),
  )


def _checked_sum(
  tracer: Any, type_spec: Any, value: Any, bound: Any, maximum: Any
) -> Any:
  """A plain sum that refuses, like the protocol, too large summands."""
  member = type_spec.result.member
  leaves = nodes_lib.flatten(value.value)
  bounds = nodes_lib.flatten(bound)
  if len(bounds) == 1:
    bounds = bounds * len(leaves)

  def build(inputs: Any, wanted: Any) -> Any:
    summands, limits = inputs[: len(leaves)], inputs[len(leaves) :]
    checked = []
    for summand, limit in zip(summands, limits):
      # In 64 bits: a limit may be out of the summand's range.
      limit = maximum(limit, tf.int64)
      check = tf.debugging.Assert(
        tf.reduce_all(tf.cast(summand, tf.int64) <= limit),
        [
          'A client value is larger than the maximum stated for the'
          ' secure sum:',
          summand,
          'maximum:',
          limit,
        ],
      )
      with tf.control_dependencies([check]):
        checked.append(tf.identity(summand))
    return [checked[i] for i in wanted]

  checked = tracer.node(
    nodes_lib.CLIENT,
    leaves + bounds,
    [leaf.spec for leaf in leaves],
    build,
    'federated_secure_sum',
  ).leaves
  return _sum(tracer, member, checked)


def _zeros(tracer: Any, type_spec: Any, site: Any) -> list[nodes_lib.Leaf]:
  specs = values.leaf_specs(type_spec)
  return tracer.node(
    site,
    [],
    specs,
    lambda inputs, wanted: [
      tf.zeros(specs[i].shape, specs[i].dtype) for i in wanted
    ],
    'zero',
  ).leaves


def _add(tracer: Any, type_spec: Any, pair: Any, site: Any) -> Any:
  left, right = (nodes_lib.flatten(value) for value in pair)
  node = tracer.node(
    site,
    left + right,
    values.leaf_specs(type_spec),
    lambda inputs, wanted: [inputs[i] + inputs[len(left) + i] for i in wanted],
    'sum',
  )
  return nodes_lib.pack(type_spec, iter(node.leaves))


def _sum(tracer: Any, member: Any, leaves: Any) -> nodes_lib.Federated:
  value = nodes_lib.Federated(
    tff.CLIENTS, nodes_lib.pack(member, iter(leaves)), False
  )
  zero = nodes_lib.pack(member, iter(_zeros(tracer, member, nodes_lib.SERVER)))
  total = tracer.fold(
    value, zero, member, lambda pair, site: _add(tracer, member, pair, site)
  )
  return nodes_lib.Federated(tff.SERVER, total, True)


def secure_modular_sum(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  value, modulus = argument
  member = type_spec.result.member
  total = _sum(tracer, member, nodes_lib.flatten(value.value))
  leaves = nodes_lib.flatten(total.value)
  moduli = nodes_lib.flatten(modulus)
  if len(moduli) == 1:
    moduli = moduli * len(leaves)
  reduced = tracer.node(
    nodes_lib.SERVER,
    leaves + moduli,
    [leaf.spec for leaf in leaves],
    lambda inputs, wanted: [
      tf.math.floormod(
        inputs[i], tf.cast(inputs[len(leaves) + i], inputs[i].dtype)
      )
      for i in wanted
    ],
    'federated_secure_modular_sum',
  )
  return nodes_lib.Federated(
    tff.SERVER, nodes_lib.pack(member, iter(reduced.leaves)), True
  )


def select(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  keys, _, state, select = argument
  element = type_spec.result.member.element
  # The key's range is the caller's promise; what a key outside of it means
  # is up to `select`, as in TFF's own runtime.
  inner = tracer.inner(
    [tf.TensorSpec([], tf.int32)],
    lambda parameters, site: select((state.value, parameters[0]), site),
  )
  order = tff_datasets.component_order(element)

  def build(inputs: Any, wanted: Any) -> Any:
    keys, *captured = inputs

    def one(key: Any) -> Any:
      results = inner.build([key], captured)
      return tuple(results[i] for i in order)

    dataset = tf.data.Dataset.from_tensor_slices(keys).map(one)
    return [tf.data.experimental.to_variant(dataset)]

  node = tracer.node(
    nodes_lib.CLIENT,
    [*nodes_lib.flatten(keys.value), *inner.captured],
    [tf.TensorSpec([], tf.variant)],
    build,
    'federated_select',
    ordered=inner.ordered,
  )
  return nodes_lib.Federated(tff.CLIENTS, node.leaves[0], False)


def sequence_map(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  function, sequence = argument
  source = type_spec.parameter[1].element
  inner = tracer.inner(
    values.leaf_specs(source),
    lambda parameters, site: function(
      nodes_lib.pack(source, iter(parameters)), site
    ),
  )
  order = tff_datasets.component_order(type_spec.result.element)

  def build(inputs: Any, wanted: Any) -> Any:
    variant, *captured = inputs

    def one(*components: Any) -> Any:
      arguments = tff_datasets.from_components(components, source)
      results = inner.build(arguments, captured)
      return tuple(results[i] for i in order)

    dataset = tff_datasets.flat_dataset(variant, source).map(one)
    return [tf.data.experimental.to_variant(dataset)]

  node = tracer.node(
    site,
    [sequence, *inner.captured],
    [tf.TensorSpec([], tf.variant)],
    build,
    'sequence_map',
    ordered=inner.ordered,
  )
  return node.leaves[0]


def sequence_reduce(
  tracer: Any, type_spec: Any, argument: Any, site: Any
) -> Any:
  sequence, zero, function = argument
  return _reduce(
    tracer,
    sequence,
    type_spec.parameter[0].element,
    nodes_lib.flatten(zero),
    type_spec.result,
    function,
    site,
  )


def sequence_sum(tracer: Any, type_spec: Any, argument: Any, site: Any) -> Any:
  element = type_spec.result
  return _reduce(
    tracer,
    argument,
    element,
    _zeros(tracer, element, site),
    element,
    lambda pair, site: _add(tracer, element, pair, site),
    site,
  )


def _reduce(
  tracer: Any,
  sequence: Any,
  source: Any,
  zero: Any,
  state_type: Any,
  function: Any,
  site: Any,
) -> Any:
  specs = values.leaf_specs(state_type)

  def body(parameters: Any, site: Any) -> Any:
    parameters = iter(parameters)
    return function(
      (
        nodes_lib.pack(state_type, parameters),
        nodes_lib.pack(source, parameters),
      ),
      site,
    )

  inner = tracer.inner(specs + values.leaf_specs(source), body)

  def build(inputs: Any, wanted: Any) -> Any:
    variant, state = inputs[0], inputs[1 : 1 + len(specs)]
    captured = inputs[1 + len(specs) :]

    def step(state: Any, components: Any) -> Any:
      arguments = tff_datasets.from_components(components, source)
      return tuple(inner.build([*state, *arguments], captured))

    result = tff_datasets.flat_dataset(variant, source).reduce(
      tuple(state), step
    )
    return [result[i] for i in wanted]

  node = tracer.node(
    site,
    [sequence, *zero, *inner.captured],
    specs,
    build,
    'sequence_reduce',
    ordered=inner.ordered,
  )
  return nodes_lib.pack(state_type, iter(node.leaves))


HANDLERS = {
  'federated_aggregate': federated_aggregate,
  'federated_apply': apply_to,
  'federated_broadcast': broadcast,
  'federated_eval_at_clients': eval_at_clients,
  'federated_eval_at_server': eval_at_server,
  'federated_map': apply_to,
  'federated_map_all_equal': map_all_equal,
  'federated_secure_modular_sum': secure_modular_sum,
  'federated_secure_select': select,
  'federated_secure_sum': secure_sum,
  'federated_secure_sum_bitwidth': secure_sum_bitwidth,
  'federated_select': select,
  'federated_value_at_clients': value_at_clients,
  'federated_value_at_server': value_at_server,
  'federated_zip_at_clients': zip_values,
  'federated_zip_at_server': zip_values,
  'sequence_map': sequence_map,
  'sequence_reduce': sequence_reduce,
  'sequence_sum': sequence_sum,
}
