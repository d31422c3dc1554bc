"""Builders of learning processes from configurations."""

import dataclasses
from typing import Any, Optional

import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.algorithms import methods
from tff_adaptive.privacy import mechanism


@dataclasses.dataclass(frozen=True)
class Components:
  """The components of a learning process.

  Attributes:
    configuration: The configuration that the components are built from.
    client_optimizer, server_optimizer: The optimizers; the client's is `None`
      for a method without clients.
    objective: The terms added to the clients' loss.
    exchange: The statistics that the method exchanges beside the model, if any.
  """

  configuration: configuration_lib.MethodConfiguration
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
    if self.configuration.model_aggregator is not None:
      return state
    aggregator = processes.first_aggregator_state(
      state.aggregator,
      self.configuration.aggregation,
      self.configuration.values['seed'],
    )
    return state._replace(aggregator=aggregator)

  def _arguments(self) -> dict[str, Any]:
    """Returns the arguments of `processes.compose` but model and aggregator."""
    values = self.configuration.values
    return dict(
      client_optimizer=self.client_optimizer,
      server_optimizer=self.server_optimizer,
      objective=self.objective,
      exchange=self.exchange,
      schedule=_schedule(self.configuration, 'client'),
      server_schedule=_schedule(self.configuration, 'server'),
      client_weighting=values['client_weighting'],
      warmup_steps=values.get('client_warmup_steps', 0),
      seed=values['seed'],
      record_step_sizes=values.get('record_step_sizes', False),
      record_drift=values['record_drift'],
    )

  def _aggregator(self) -> Any:
    aggregator = self._plain_aggregator()
    if self.configuration.values['record_drift']:
      return processes.MeasuringDrift(aggregator)
    return aggregator

  def _plain_aggregator(self) -> Any:
    given = self.configuration.model_aggregator
    if given is None:
      return processes.build_aggregator(
        self.configuration.aggregation,
        self.configuration.values['seed'],
        getattr(self.exchange, 'encoding', None),
      )
    if isinstance(given, tff.aggregators.UnweightedAggregationFactory):
      return tff.aggregators.as_weighted_aggregator(given)
    return given


def build_components(
  configuration: configuration_lib.MethodConfiguration,
) -> Components:
  """Builds the optimizers, the objective and the method's additions."""
  chosen = methods.Chosen(
    *(_optimizer(configuration, s) for s in optimizers.SIDES)
  )
  own = configuration.build('own') or configuration.method.options()
  made: dict[str, Any] = {**chosen._asdict(), **own.additions(chosen)}
  _check_noised(configuration, made.get('exchange'))
  terms = [made.pop('objective')] if 'objective' in made else []
  if configuration.values.get('proximal_strength'):
    terms.insert(
      0, processes.Proximal(configuration.values['proximal_strength'])
    )
  if len(terms) > 1:
    terms = [processes.Sum(*terms)]
  return Components(
    configuration, objective=terms[0] if terms else processes.Plain(), **made
  )


def _check_noised(
  configuration: configuration_lib.MethodConfiguration,
  exchange: Optional[processes.Exchange],
) -> None:
  """Raises `ParameterError` if private clients send more than the update."""
  method = configuration.method
  if exchange is None or method.unnoised:  # Said, and checked, there.
    return
  for name in ('report', 'weight', 'full_gradient_pass', 'probes_first_client'):
    own = getattr(exchange, name)
    own = getattr(own, '__func__', own)
    base = getattr(processes.Exchange, name)
    if own is not base and mechanism.is_asked(configuration.values):
      raise parameters.ParameterError(
        'dp_clip_norm',
        'The clients of {method} send more than their update ({name} of its '
        'exchange), without noise: leave {} out, and declare the method with '
        '`unnoised`.',
        method=method.name,
        name=name,
      )


def _optimizer(
  configuration: configuration_lib.MethodConfiguration, side: str
) -> Any:
  chosen = configuration.optimizer[side]
  if not isinstance(chosen, str):
    # A user's own rule, or one of TFF's optimizers.
    described = isinstance(chosen, parameters.Described)
    return chosen.build() if described else chosen
  if side == 'client' and not configuration.method.has_clients:
    return None
  # A method may hide all of the optimizer's hyperparameters.
  description = optimizers.entry_of(side, chosen).description
  return (configuration.build(side) or description()).build()


def _schedule(
  configuration: configuration_lib.MethodConfiguration, side: str
) -> Any:
  schedule = configuration.schedule(side)
  if schedule is None:
    return None
  return schedule.build(configuration.arguments(side)['learning_rate'])
