"""Rendering of a method's resolved update rule as text."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive import optimizers
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import configuration as configuration_lib

_WEIGHTS = {
  'examples': 'the examples it iterated',
  'tokens': 'the tokens it predicted',
  'uniform': '1',
}


def describe(components: building.Components) -> str:
  """Renders the update rule of a process built from these components."""
  configuration, exchange = components.configuration, components.exchange
  if not configuration.method.has_clients:
    return _pooled(configuration)
  lines = [
    f'algorithm {configuration.method.name}: {configuration.method.summary}'
  ]
  term = components.objective.formula
  lines.append('client minimises F' + (f' + {term}' if term else ''))
  for side in optimizers.SIDES:
    formula = getattr(exchange, 'update_formula', '')
    if side == 'server' and formula:
      lines.append('what the server steps with:')
      lines.extend('  ' + line for line in formula.splitlines())
    name = configuration.optimizer[side]
    called = name if isinstance(name, str) else type(name).__name__
    lines.append(f'{side} optimizer {called}:')
    lines.extend('  ' + line for line in _rule(components, side))
    if schedule := configuration.schedule(side):
      settings = _listed(vars(schedule))
      lines.append(f'  learning rate scheduled by rounds: {settings}')
  own = getattr(exchange, 'weight_formula', '')
  weight = own or _WEIGHTS[configuration.values['client_weighting']]
  lines.append(f'a client counts with weight {weight}')
  lines.extend(configuration.aggregation.formula.splitlines())
  return '\n'.join(lines)


def _pooled(configuration: configuration_lib.MethodConfiguration) -> str:
  values = {k: v for k, v in configuration.values.items() if k != 'seed'}
  return (
    f'algorithm {configuration.method.name}: no federation\n'
    'all examples of all clients are pooled, shuffled anew for every pass, '
    'and cut into batches\n'
    f'optimizer {configuration.optimizer["server"]}, one step a batch, its '
    f'state kept from round to round:\n  with {_listed(values)}'
  )


def _rule(components: building.Components, side: str) -> list[str]:
  """Returns the lines of an optimizer's rule and of its wrapper's note."""
  optimizer = getattr(components, f'{side}_optimizer')
  base = getattr(optimizer, 'base', optimizer)
  formula = getattr(base, 'formula', None) or _sgd_formula(
    components.configuration, side
  )
  return [
    *formula.splitlines(),
    *filter(None, [getattr(optimizer, 'note', '')]),
  ]


def _listed(values: Mapping[str, Any]) -> str:
  return ', '.join(f'{k} = {v}' for k, v in values.items() if v is not None)


def _sgd_formula(
  configuration: configuration_lib.MethodConfiguration, side: str
) -> str:
  """Renders the rule of tff.learning's SGD, which has no formula of its own."""
  arguments = configuration.arguments(side)
  g, sign = ('g', '-') if side == 'client' else ('Delta', '+')
  if 'learning_rate' not in arguments:
    if isinstance(configuration.optimizer[side], str):
      return f'x = x {sign} {g}'  # The method hides the rate, which is 1.
    return f'{type(configuration.optimizer[side]).__name__}, as given'
  rate = f'with learning_rate = {arguments["learning_rate"]:g}'
  momentum = arguments.get('momentum')
  if not momentum:
    return f'x = x {sign} learning_rate {g}\n{rate}'
  return (
    f'm = momentum m + {g}, from 0\n'
    f'x = x {sign} learning_rate m\n'
    f'{rate}, momentum = {momentum:g}'
  )
