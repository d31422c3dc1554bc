"""Builders of learning processes from plans."""

import dataclasses
from typing import Any, Optional

import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan as plan_lib


@dataclasses.dataclass(frozen=True)
class Pieces:
  """The pieces of a learning process.

  Attributes:
    plan: The plan that the pieces are built from.
    client_optimizer, server_optimizer: The optimizers; the client's is `None`
      for a method without clients.
    objective: The terms added to the clients' loss.
    exchange: The statistics that the method exchanges beside the model, if any.
  """

  plan: plan_lib.Plan
  client_optimizer: Any
  server_optimizer: Any
  objective: processes.Objective
  exchange: Optional[processes.Exchange] = None

  def compose(
    self, model: Any, *, takes_messages: bool = False
  ) -> processes.Process:
    """Composes the learning process; see `algorithms.build`.

    Args:
      model: As for `algorithms.build`.
      takes_messages: As for `processes.compose`.
    """
    try:
      return processes.compose(
        model,
        **self._arguments(),
        model_aggregator=self._aggregator(),
        takes_messages=takes_messages,
      )
    except (KeyError, RuntimeError, ValueError) as e:
      models.explain(e)
      raise

  def first_state(self, template: Any, weights: Any) -> Any:
    """Builds the initial state of a process of the same structure.

    Args:
      template: The initial state of that process.
      weights: The model's initial weights, as arrays.
    """
    state = processes.first_state(template, weights, **self._arguments())
    if self.plan.model_aggregator is not None:
      return state
    aggregator = processes.first_aggregator_state(
      state.aggregator, self.plan.aggregation, self.plan.values['seed']
    )
    return state._replace(aggregator=aggregator)

  def _arguments(self) -> dict[str, Any]:
    """Returns the arguments of `processes.compose` but model and aggregator."""
    values = self.plan.values
    return dict(
      client_optimizer=self.client_optimizer,
      server_optimizer=self.server_optimizer,
      objective=self.objective,
      exchange=self.exchange,
      schedule=_schedule(self.plan, 'client'),
      server_schedule=_schedule(self.plan, 'server'),
      client_weighting=values['client_weighting'],
      warmup_steps=values.get('client_warmup_steps', 0),
      seed=values['seed'],
      record_step_sizes=values.get('record_step_sizes', False),
      record_drift=values['record_drift'],
    )

  def _aggregator(self) -> Any:
    aggregator = self._plain_aggregator()
    if self.plan.values['record_drift']:
      return processes.MeasuringDrift(aggregator)
    return aggregator

  def _plain_aggregator(self) -> Any:
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


def make_pieces(plan: plan_lib.Plan) -> Pieces:
  """Builds the optimizers, the objective and the method's additions."""
  chosen = methods.Chosen(*(_optimizer(plan, s) for s in optimizers.SIDES))
  own = plan.build('own') or plan.method.options()
  made: dict[str, Any] = {**chosen._asdict(), **own.additions(chosen)}
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
    # A user's own rule, or one of TFF's optimizers.
    described = isinstance(chosen, parameters.Described)
    return chosen.build() if described else chosen
  if side == 'client' and not plan.method.has_clients:
    return None
  # A method may hide all of the optimizer's hyperparameters.
  description = optimizers.entry_of(side, chosen).description
  return (plan.build(side) or description()).build()


def _schedule(plan: plan_lib.Plan, side: str) -> Any:
  schedule = plan.schedule(side)
  if schedule is None:
    return None
  return schedule.build(plan.arguments(side)['learning_rate'])
