"""From a plan to a learning process."""

import dataclasses
from typing import Any
from typing import Optional

import tensorflow_federated as tff

from tff_adaptive import builders
from tff_adaptive import optimizers
from tff_adaptive import processes
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.optimizers import schedules

_WEIGHTS = {
  'examples': 'the examples it iterated',
  'tokens': 'the tokens it predicted',
  'uniform': '1',
}


@dataclasses.dataclass(frozen=True)
class Pieces:
  """What a plan describes, built.

  Attributes:
    plan: The plan.
    client_optimizer, server_optimizer: The rules; no client's without clients.
    objective: What is added to the clients' loss.
    exchange: What the method exchanges beside the model, if anything.
  """

  plan: plan_lib.Plan
  client_optimizer: Any
  server_optimizer: Any
  objective: processes.Objective
  exchange: Optional[processes.Exchange] = None

  def compose(self, model: Any) -> processes.Process:
    """Makes the learning process; see `algorithms.build`."""
    values = self.plan.values
    return processes.compose(
      model,
      self.client_optimizer,
      self.server_optimizer,
      objective=self.objective,
      exchange=self.exchange,
      schedule=_schedule(self.plan, 'client'),
      server_schedule=_schedule(self.plan, 'server'),
      client_weighting=values['client_weighting'],
      warmup_steps=values.get('client_warmup_steps', 0),
      seed=values['seed'],
      record_step_sizes=values.get('record_step_sizes', False),
      model_aggregator=self._aggregator(),
    )

  def _aggregator(self) -> Any:
    given = self.plan.model_aggregator
    if given is None:
      return processes.build_aggregator(
        self.plan.aggregation,
        self.plan.values['seed'],
        getattr(self.exchange, 'encoding', None),
      )
    if isinstance(given, tff.aggregators.UnweightedAggregationFactory):
      return tff.aggregators.as_weighted_aggregator(given)
    return given

  def describe(self) -> str:
    """The resolved rule, for people."""
    method = self.plan.method
    if not method.has_clients:
      return self._describe_pooled()
    lines = [f'algorithm {method.name}: {method.summary}']
    term = self.objective.formula
    lines.append('client minimises F' + (f' + {term}' if term else ''))
    for side in optimizers.SIDES:
      formula = getattr(self.exchange, 'update_formula', '')
      if side == 'server' and formula:
        lines.append('what the server steps with:')
        lines.extend('  ' + line for line in formula.splitlines())
      name = self.plan.optimizer[side]
      called = name if isinstance(name, str) else type(name).__name__
      lines.append(f'{side} optimizer {called}:')
      lines.extend('  ' + line for line in self._rule(side))
      if schedule := self.plan.schedule(side):
        settings = _listed(schedule)
        lines.append(f'  learning rate scheduled by rounds: {settings}')
    own = getattr(self.exchange, 'weight_formula', '')
    weight = own or _WEIGHTS[self.plan.values['client_weighting']]
    lines.append(f'a client counts with weight {weight}')
    lines.extend(self.plan.aggregation.formula.splitlines())
    return '\n'.join(lines)

  def _describe_pooled(self) -> str:
    values = {k: v for k, v in self.plan.values.items() if k != 'seed'}
    return (
      f'algorithm {self.plan.method.name}: no federation\n'
      'all examples of all clients are pooled, shuffled anew for every pass, '
      'and cut into batches\n'
      f'optimizer {self.plan.optimizer["server"]}, one step a batch, its state '
      f'kept from round to round:\n  with {_listed(values)}'
    )

  def _rule(self, side: str) -> list[str]:
    """An optimizer's rule, and what is done with it where it wraps another."""
    optimizer = getattr(self, f'{side}_optimizer')
    base = getattr(optimizer, 'base', optimizer)
    formula = getattr(base, 'formula', None) or _sgd_formula(self.plan, side)
    return [
      *formula.splitlines(),
      *filter(None, [getattr(optimizer, 'note', '')]),
    ]


def make_pieces(plan: plan_lib.Plan) -> Pieces:
  """Builds the optimizers, the objective and what the method itself adds."""
  made: dict[str, Any] = {
    f'{side}_optimizer': _optimizer(plan, side) for side in optimizers.SIDES
  }
  if plan.method.pieces is not None:
    own = builders.load(plan.method.pieces, checks=False)
    made |= own(*made.values(), **plan.arguments('own'))
  terms = [made.pop('objective')] if 'objective' in made else []
  if plan.values.get('proximal_strength'):
    terms.insert(0, processes.Proximal(plan.values['proximal_strength']))
  if len(terms) > 1:
    terms = [processes.Sum(*terms)]
  return Pieces(
    plan, objective=terms[0] if terms else processes.Plain(), **made
  )


def _optimizer(plan: plan_lib.Plan, side: str) -> Any:
  chosen = plan.optimizer[side]
  if not isinstance(chosen, str):
    return chosen
  if side == 'client' and not plan.method.has_clients:
    return None
  place = optimizers.entry_of(side, chosen).builder
  return builders.load(place, checks=False)(**plan.arguments(side))


def _schedule(plan: plan_lib.Plan, side: str) -> Any:
  settings = plan.schedule(side)
  if not settings:
    return None
  rate = plan.arguments(side)['learning_rate']
  return schedules.build_schedule(rate, **settings)


def _listed(values: Any) -> str:
  return ', '.join(f'{k} = {v}' for k, v in values.items() if v is not None)


def _sgd_formula(plan: plan_lib.Plan, side: str) -> str:
  """tff.learning's SGD has no formula of its own to show."""
  arguments = plan.arguments(side)
  g, sign = ('g', '-') if side == 'client' else ('Delta', '+')
  if 'learning_rate' not in arguments:
    if isinstance(plan.optimizer[side], str):
      return f'x = x {sign} {g}'  # The method hides the rate, which is 1.
    return f'{type(plan.optimizer[side]).__name__}, as given'
  rate = f'with learning_rate = {arguments["learning_rate"]:g}'
  momentum = arguments.get('momentum')
  if not momentum:
    return f'x = x {sign} learning_rate {g}\n{rate}'
  return (
    f'm = momentum m + {g}, from 0\n'
    f'x = x {sign} learning_rate m\n'
    f'{rate}, momentum = {momentum:g}'
  )
