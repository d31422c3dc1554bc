"""TFF's intrinsics, expressed as nodes.

A handler takes the builder, the intrinsic's type, its symbolic argument and the
site of the call, adds nodes to the builder, and returns the symbolic result.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import tensorflow_federated as tff

from tff_adaptive.runtime.engine import builder as builder_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import sequences
from tff_adaptive.runtime.engine import sums

# The kind of the argument follows from the intrinsic's type; each handler
# declares its own.
Handler: TypeAlias = Callable[
  [builder_lib.Builder, tff.FunctionType, Any, nodes_lib.Site],
  nodes_lib.SymbolicValue,
]
# A function of an unplaced argument.
_Function: TypeAlias = Callable[
  [nodes_lib.UnplacedValue | None, nodes_lib.Site], nodes_lib.UnplacedValue
]
_Mapping: TypeAlias = tuple[_Function, nodes_lib.PlacedValue]


def _federated_aggregate(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: tuple[
    nodes_lib.PlacedValue,
    nodes_lib.UnplacedValue,
    builder_lib.Accumulate,
    _Function,
    _Function,
  ],
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  value, zero, accumulate, _, report = argument
  total = builder.add_aggregation(
    value.value, zero, type_spec.parameter[1], accumulate
  )
  return nodes_lib.PlacedValue(
    tff.SERVER, report(total, nodes_lib.SERVER), True
  )


def _map(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Mapping,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  function, value = argument
  return _placed(type_spec, function, value.value)


def _eval(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: _Function,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  return _placed(type_spec, argument, None)


def _placed(
  type_spec: tff.FunctionType,
  function: _Function,
  value: nodes_lib.UnplacedValue | None,
) -> nodes_lib.PlacedValue:
  """Applies a function at each client, or once at the server if all-equal."""
  result = type_spec.result
  site = nodes_lib.SERVER if result.all_equal else nodes_lib.CLIENT
  return nodes_lib.PlacedValue(
    result.placement, function(value, site), result.all_equal
  )


def _broadcast(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: nodes_lib.PlacedValue,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  return nodes_lib.PlacedValue(tff.CLIENTS, argument.value, True)


def _value(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: nodes_lib.UnplacedValue,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  return nodes_lib.PlacedValue(type_spec.result.placement, argument, True)


def _zip(
  builder: builder_lib.Builder,
  type_spec: tff.FunctionType,
  argument: nodes_lib.SymbolicValue,
  site: nodes_lib.Site,
) -> nodes_lib.PlacedValue:
  all_equal = True

  def strip(value: Any) -> nodes_lib.UnplacedValue:
    """Removes the placements from a structure of placed values."""
    nonlocal all_equal
    if isinstance(value, nodes_lib.PlacedValue):
      all_equal = all_equal and value.all_equal
      return value.value
    return tuple(strip(element) for element in value)

  stripped = strip(argument)
  return nodes_lib.PlacedValue(type_spec.result.placement, stripped, all_equal)


HANDLERS: dict[str, Handler] = {
  'federated_aggregate': _federated_aggregate,
  'federated_apply': _map,
  'federated_broadcast': _broadcast,
  'federated_eval_at_clients': _eval,
  'federated_eval_at_server': _eval,
  'federated_map': _map,
  'federated_map_all_equal': _map,
  'federated_secure_modular_sum': sums.modular_sum,
  'federated_secure_select': sequences.select,
  'federated_secure_sum': sums.sum_below_maximum,
  'federated_secure_sum_bitwidth': sums.sum_of_bitwidth,
  'federated_select': sequences.select,
  'federated_value_at_clients': _value,
  'federated_value_at_server': _value,
  'federated_zip_at_clients': _zip,
  'federated_zip_at_server': _zip,
  'sequence_map': sequences.sequence_map,
  'sequence_reduce': sequences.sequence_reduce,
  'sequence_sum': sequences.sequence_sum,
}
