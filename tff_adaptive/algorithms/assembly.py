"""From a plan to a learning process."""

import importlib
from typing import Any

import tensorflow_federated as tff

from tff_adaptive import optimizers
from tff_adaptive import processes
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.optimizers import schedules


def assemble(plan: plan_lib.Plan, model: Any) -> processes.Process:
  """Builds the process that a plan describes."""
  pieces = make_pieces(plan)
  return processes.compose(
    model,
    pieces.pop('client_optimizer'),
    pieces.pop('server_optimizer'),
    schedule=_schedule(plan, 'client'),
    server_schedule=_schedule(plan, 'server'),
    client_weighting=plan.common['client_weighting'],
    warmup_steps=plan.common.get('client_warmup_steps', 0),
    seed=plan.common['seed'],
    record_step_sizes=plan.common.get('record_step_sizes', False),
    model_aggregator=_aggregator(plan),
    **pieces,
  )


def _aggregator(plan: plan_lib.Plan) -> Any:
  given = plan.model_aggregator
  if given is None:
    return processes.build_aggregator(plan.aggregation, plan.common['seed'])
  if isinstance(given, tff.aggregators.UnweightedAggregationFactory):
    return tff.aggregators.as_weighted_aggregator(given)
  return given


def describe(plan: plan_lib.Plan) -> str:
  """The resolved rule, for people."""
  pieces = make_pieces(plan)
  lines = [f'algorithm {plan.method.name}: {plan.method.summary}']
  term = pieces['objective'].formula
  lines.append('client minimises F' + (f' + {term}' if term else ''))
  for side in ('client', 'server'):
    optimizer = pieces[f'{side}_optimizer']
    name = plan.optimizer[side]
    called = name if isinstance(name, str) else type(name).__name__
    lines.append(f'{side} optimizer {called}:')
    lines.extend('  ' + line for line in _rule(plan, side, optimizer))
    if plan.schedule_arguments[side]:
      settings = ', '.join(
        f'{k} = {v}'
        for k, v in plan.schedule_arguments[side].items()
        if v is not None
      )
      lines.append(f'  learning rate scheduled by rounds: {settings}')
  weights = {
    'examples': 'the examples it iterated',
    'tokens': 'the tokens it predicted',
    'uniform': '1',
  }
  own = getattr(pieces.get('exchange'), 'weight_formula', '')
  weight = own or weights[plan.common['client_weighting']]
  lines.append(f'a client counts with weight {weight}')
  lines.extend(plan.aggregation.formula.splitlines())
  return '\n'.join(lines)


def _rule(plan: plan_lib.Plan, side: str, optimizer: Any) -> list[str]:
  """An optimizer's rule, and what is done with it where it wraps another."""
  base = getattr(optimizer, 'base', optimizer)
  formula = getattr(base, 'formula', None) or _sgd_formula(plan, side)
  note = getattr(optimizer, 'note', '')
  return [*formula.splitlines(), *filter(None, [note])]


def _sgd_formula(plan: plan_lib.Plan, side: str) -> str:
  """tff.learning's SGD has no formula of its own to show."""
  arguments = plan.optimizer_arguments[side]
  if 'learning_rate' not in arguments:
    return f'{type(plan.optimizer[side]).__name__}, as given'
  g, sign = ('g', '-') if side == 'client' else ('Delta', '+')
  rate = f'with learning_rate = {arguments["learning_rate"]:g}'
  momentum = arguments.get('momentum')
  if not momentum:
    return f'x = x {sign} learning_rate {g}\n{rate}'
  return (
    f'm = momentum m + {g}, from 0\n'
    f'x = x {sign} learning_rate m\n'
    f'{rate}, momentum = {momentum:g}'
  )


def _optimizer(plan: plan_lib.Plan, side: str) -> Any:
  choice = plan.optimizer[side]
  if not isinstance(choice, str):
    return choice
  build = getattr(optimizers, side)
  return build(choice, **plan.optimizer_arguments[side])


def _schedule(plan: plan_lib.Plan, side: str) -> Any:
  settings, rate = plan.schedule_arguments[side], plan.rate[side]
  if not settings or rate is None:
    return None
  return schedules.build_schedule(rate, **settings)


def make_pieces(plan: plan_lib.Plan) -> dict[str, Any]:
  """The optimizers, the objective, and what the method's own module adds."""
  pieces = {
    f'{side}_optimizer': _optimizer(plan, side) for side in ('client', 'server')
  }
  own = {}
  if plan.method.module is not None:
    module = importlib.import_module(
      f'tff_adaptive.algorithms.{plan.method.module}'
    )
    make = getattr(module, plan.method.function)
    own = make(
      pieces['client_optimizer'], pieces['server_optimizer'], **plan.own
    )
  terms: list[processes.Objective] = []
  if plan.common['proximal_strength']:
    terms.append(processes.Proximal(plan.common['proximal_strength']))
  if 'objective' in own:
    terms.append(own['objective'])
  if len(terms) == 2:
    terms = [processes.Sum(*terms)]
  pieces['objective'] = terms[0] if terms else processes.Plain()
  return pieces | {k: v for k, v in own.items() if k != 'objective'}
