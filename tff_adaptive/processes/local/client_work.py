"""The one client work: any optimizer, any objective, any exchange.

`tff.learning.templates.build_model_delta_client_work` supports optimizers that
use the gradient alone. This one also supports rules that need the loss or a
second gradient (`optimizers.protocol`), regularized objectives (`objectives`),
methods that exchange statistics or keep client state (`exchange`) and learning
rate schedules over rounds, and it reports step sizes and rejected clients.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Optional, Union

import numpy as np
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import factories
from tff_adaptive.processes import messages
from tff_adaptive.processes import objectives
from tff_adaptive.processes.local import client_function
from tff_adaptive.processes.local import first_step as first_step_lib
from tff_adaptive.processes.local import full_gradient as full_gradient_lib
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import model_facts
from tff_adaptive.processes.local import trainer as trainer_lib
from tff_adaptive.processes.local import weighting

Schedule = trainer_lib.Schedule

# As `tff.learning.metrics.sum_then_finalize`: maps a model's finalizers to a
# computation that aggregates clients' unfinalized metrics.
MetricsAggregator = Callable[[model_facts.Finalizers], tff.Computation]


class RoundOutput(NamedTuple):
  """The result of `ClientWork.run`.

  Attributes:
    totals: The cohort's sums and maxima, and its mean gradient if the exchange
      has a full-gradient pass, at the server.
    result: The clients' `ClientResult`s.
    measurements: The round's measurements, at the server.
    client_states: The clients' next states, at clients; empty without.
  """

  totals: tuple[structures.Placed, ...]
  result: structures.Placed
  measurements: structures.Placed
  client_states: structures.Placed


class ClientWork:
  """A client work as TFF types and computations, for `composition`.

  Attributes:
    facts: The model's types and metrics.
    state_type: TFF type of the state.
    client_state_type: TFF type of a client's state; `None` without.
    initialize: TFF computation that builds the state at the server.
    initialize_client_state: TFF computation that builds the state of a client
      in its first round; `None` without client state.
    get_hparams, set_hparams: TFF computations on the state.
    correct: TFF computation that corrects the averaging of adapters, as
      `messages.corrected`; `None` if there is nothing to correct.
  """

  def __init__(
    self,
    model: local_model.Model,
    optimizer: tff.learning.optimizers.Optimizer,
    *,
    client_weighting: Union[str, tff.learning.ClientWeighting] = 'examples',
    objective: Optional[objectives.Objective] = None,
    exchange: Optional[exchange_lib.Exchange] = None,
    schedule: Optional[Schedule] = None,
    warmup_steps: int = 0,
    seed: int = 0,
    metrics_aggregator: Optional[MetricsAggregator] = None,
    record_step_sizes: bool = False,
    record_drift: bool = False,
    takes_messages: bool = False,
  ):
    """Traces the client work; see `build_client_work`.

    Args:
      model, optimizer: As `build_client_work` takes them.
      client_weighting, objective, exchange, schedule: Likewise.
      warmup_steps, seed, metrics_aggregator: Likewise.
      record_step_sizes, record_drift: Likewise.
      takes_messages: Whether `run` takes `received` and `factors`.
    """
    if not isinstance(optimizer, tff.learning.optimizers.Optimizer):
      raise TypeError(
        'The client optimizer must be a tff.learning.optimizers.Optimizer, '
        f'got {optimizer!r}.'
      )
    self.facts = model_facts.look_at(model)
    exchange = exchange or exchange_lib.NoExchange()
    trainer = trainer_lib.Trainer(
      model=model,
      specs=model_facts.trainable_specs(self.facts),
      optimizer=optimizer,
      objective=objective or objectives.Plain(),
      exchange=exchange,
      schedule=schedule,
      warmup_steps=warmup_steps,
      client_weighting=weighting.read(
        client_weighting, self.facts.metric_names, exchange
      ),
      seed=seed,
      record_step_sizes=record_step_sizes,
      record_drift=record_drift,
    )
    if record_step_sizes and not trainer.has_step_size:
      raise ValueError(
        '`record_step_sizes` needs a client optimizer with adaptive step '
        f'sizes; {type(optimizer).__name__} has none.'
      )
    self._records = record_step_sizes
    self._takes_messages = takes_messages
    self.exchange = trainer.exchange
    _check_hooks(self.exchange)
    self._aggregate_metrics = (
      metrics_aggregator or tff.learning.metrics.sum_then_finalize
    )(self.facts.metric_finalizers)
    self._build(trainer)

  def _build(self, trainer: trainer_lib.Trainer) -> None:
    """Traces the computations of clients and server once."""
    initial_state = tff.tensorflow.computation(trainer.initial_state)
    self.state_type = initial_state.type_signature.result
    self._build_sending()
    self.client_state_type = self.initialize_client_state = None
    if trainer.exchange.initialize_client(trainer.specs) is not None:
      self.initialize_client_state = tff.tensorflow.computation(
        lambda: trainer.exchange.initialize_client(trainer.specs)
      )
      self.client_state_type = (
        self.initialize_client_state.type_signature.result
      )
    self._build_full_gradient(trainer)
    self._build_first_step(trainer)
    self._build_training(trainer)
    self._build_next_state()

    @tff.federated_computation
    def initialize() -> structures.Placed:
      return tff.federated_eval(initial_state, tff.SERVER)

    hparams_type = self.state_type.hparams

    @tff.tensorflow.computation(self.state_type)
    def get_hparams(state: messages.State) -> structures.HParams:
      return state.hparams

    @tff.tensorflow.computation(self.state_type, hparams_type)
    def set_hparams(
      state: messages.State, hparams: structures.HParams
    ) -> messages.State:
      return state._replace(hparams=hparams)

    self.initialize = initialize
    self.get_hparams = get_hparams
    self.set_hparams = set_hparams

  def _build_sending(self) -> None:
    """Traces the part of the state that clients receive, if it is not all."""
    exchange = self.exchange
    self._send: Optional[tff.Computation] = None
    self._sent_type = self.state_type
    if type(exchange).broadcast is not exchange_lib.Exchange.broadcast:

      @tff.tensorflow.computation(self.state_type)
      def send(state: messages.State) -> messages.State:
        return state._replace(statistics=exchange.broadcast(state.statistics))

      self._send = send
      self._sent_type = send.type_signature.result

  def _build_full_gradient(self, trainer: trainer_lib.Trainer) -> None:
    """Traces the full-gradient pass, if the exchange asks for one."""
    self._gradient_part: Optional[tff.Computation] = None
    self._mean_gradient: Optional[tff.Computation] = None
    self._full_gradient_before = trainer.exchange.full_gradient_pass == 'before'
    if trainer.exchange.full_gradient_pass is not None:
      full_gradient = full_gradient_lib.FullGradient(
        trainer.model, trainer.client_weighting
      )
      self._gradient_part = client_function.computation(
        full_gradient, self._received_types
      )
      self._mean_gradient = tff.tensorflow.computation(
        full_gradient_lib.mean, self._gradient_part.type_signature.result
      )

  def _build_first_step(self, trainer: trainer_lib.Trainer) -> None:
    """Traces the first client's measurement, if the exchange asks for one."""
    self._first_step: Optional[tff.Computation] = None
    if trainer.exchange.probes_first_client:
      first_step = first_step_lib.FirstStep(trainer.model, trainer.exchange)
      self._first_step = client_function.computation(
        first_step, self._received_types
      )

  def _build_training(self, trainer: trainer_lib.Trainer) -> None:
    """Traces a client's local training."""
    extra = {}
    if self._mean_gradient is not None and self._full_gradient_before:
      extra['full_gradient'] = self._mean_gradient.type_signature.result
    if self._first_step is not None:
      extra['first'] = self._first_step.type_signature.result
    if self.client_state_type is not None:
      extra['client_state'] = self.client_state_type
    if self._takes_messages:
      extra['factor'] = tff.TensorType(np.float32)
    self._train = client_function.computation(
      dataclasses.replace(trainer, extras=tuple(extra)),
      [*self._received_types, *extra.values()],
    )

  @property
  def _received_types(self) -> list[tff.Type]:
    return [self._sent_type, self.facts.weights_type, self.facts.data_type]

  def _build_next_state(self) -> None:
    """Traces the server's next state and the measurements of the cohort."""
    done_type = self._train.type_signature.result
    totals = [done_type.sums, done_type.maxima]
    known = [self.state_type, *totals]
    exchange = self.exchange
    if self._mean_gradient is not None:
      known.append(self._mean_gradient.type_signature.result)
    if exchange.sees_update:
      known.append(self.facts.weights_type.trainable)
    follow = functools.partial(messages.next_state, exchange)
    # TFF takes functions of a fixed number of arguments only.
    next_state = {
      (False, False): lambda s, sums, most: follow(s, sums, most, ())[0],
      (True, False): lambda s, sums, most, mean: follow(s, sums, most, mean)[0],
      (False, True): lambda s, sums, most, update: follow(
        s, sums, most, (), update
      ),
      (True, True): lambda s, sums, most, mean, update: follow(
        s, sums, most, mean, update
      ),
    }[self._mean_gradient is not None, exchange.sees_update]
    self._next_state = tff.tensorflow.computation(next_state, known)
    self._measure = tff.tensorflow.computation(messages.measure, totals)
    self.correct: Optional[tff.Computation] = None
    if self.facts.residuals:
      weights_type = self.facts.weights_type
      self.correct = tff.tensorflow.computation(
        lambda after, before, sums, update: messages.corrected(
          self.facts.residuals, after, before, sums, update
        ),
        [weights_type, weights_type, totals[0], weights_type.trainable],
      )

  def share(self, server_state_type: tff.Type) -> tff.Computation:
    """Builds the computation from both states to the state to send."""
    exchange = self.exchange

    @tff.tensorflow.computation(self.state_type, server_state_type)
    def share(
      state: messages.State, server_state: structures.OptimizerState
    ) -> messages.State:
      return state._replace(
        statistics=exchange.share(
          exchange_lib.Server(state.statistics, server_state)
        )
      )

    return share

  def run(
    self,
    state: structures.Placed,
    weights: structures.Placed,
    data: structures.Placed,
    client_states: Optional[structures.Placed] = None,
    received: Optional[structures.Placed] = None,
    factors: Optional[structures.Placed] = None,
  ) -> RoundOutput:
    """Runs a round's client work, inside a federated computation.

    Args:
      state: The client work's state, at the server.
      weights: The model weights, at clients.
      data: The clients' batches.
      client_states: The clients' states, at clients, for methods that have any.
      received: The state as each client received it, at clients; the server's
        state is broadcast by default.
      factors: Factors of the clients' updates, at clients, if the client work
        `takes_messages`.
    """
    extra = []
    full_gradient = []
    broadcast = state if received is None else received
    if received is None:
      if self._send is not None:
        broadcast = tff.federated_map(self._send, state)
      broadcast = tff.federated_broadcast(broadcast)
    if self._gradient_part is not None:
      parts = tff.federated_sum(
        tff.federated_map(self._gradient_part, (broadcast, weights, data))
      )
      full_gradient.append(tff.federated_map(self._mean_gradient, parts))
      if self._full_gradient_before:
        extra.append(tff.federated_broadcast(full_gradient[0]))
    if self._first_step is not None:
      measured = tff.federated_map(self._first_step, (broadcast, weights, data))
      first = first_step_lib.first(measured)
      extra.append(tff.federated_broadcast(first))
    if client_states is not None:
      extra.append(client_states)
    if factors is not None:
      extra.append(factors)
    done = tff.federated_map(self._train, (broadcast, weights, data, *extra))
    sums = tff.federated_sum(done.sums)
    maxima = tff.federated_max(done.maxima)
    measured = tff.federated_map(self._measure, (sums, maxima))
    measurements = collections.OrderedDict(
      train=self._aggregate_metrics(done.metrics)
    )
    for name in tff.structure.name_list(self._measure.type_signature.result):
      measurements[name] = measured[name]
    if self._records:
      measurements['step_size_of_clients'] = factories.collect(done.record)
    return RoundOutput(
      (sums, maxima, *full_gradient),
      done.result,
      tff.federated_zip(measurements),
      () if client_states is None else done.client_state,
    )

  def conclude(
    self,
    state: structures.Placed,
    totals: tuple[structures.Placed, ...],
    update: Optional[structures.Placed] = None,
  ) -> tuple[structures.Placed, structures.Placed]:
    """Runs the server's part of the round, inside a federated computation.

    Args:
      state: As given to `run`.
      totals: As returned by `run`.
      update: The aggregated update, at the server.

    Returns:
      The next state, and the update for the server optimizer.
    """
    if not self.exchange.sees_update:
      return tff.federated_map(self._next_state, (state, *totals)), update
    both = tff.federated_map(self._next_state, (state, *totals, update))
    return both[0], both[1]


def _check_hooks(exchange: exchange_lib.Exchange) -> None:
  """Raises `TypeError` for hooks of an exchange that nothing would call."""

  def own(name: str) -> bool:
    base = getattr(exchange_lib.Exchange, name)
    return getattr(type(exchange), name) is not base

  problem = ''
  if own('step') and not exchange.sees_update:
    problem = '`step` needs `sees_update = True`'
  elif own('next_client_state') and not own('initialize_client'):
    problem = '`next_client_state` needs `initialize_client`'
  elif exchange.full_gradient_pass not in (None, 'before', 'after'):
    problem = (
      "`full_gradient_pass` is None, 'before' or 'after', not "
      f'{exchange.full_gradient_pass!r}'
    )
  if problem:
    raise TypeError(f'{type(exchange).__name__}: {problem}.')


def build_client_work(
  model: local_model.Model,
  optimizer: tff.learning.optimizers.Optimizer,
  **arguments: Any,
) -> tff.learning.templates.ClientWorkProcess:
  """Builds a client work.

  The client initializes its optimizer, takes one step per batch (epochs and
  batch sizes belong to the data), and sends x_t - x_K with a weight. A client
  whose update is not finite, or that has no data, sends zeros with weight 0;
  the metrics count both.

  Args:
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a `FunctionalModel`.
    optimizer: The client optimizer, TFF's or this package's.
    **arguments: `client_weighting`, 'examples' iterated, 'uniform', 'tokens'
      (the model's metric num_tokens) or a `tff.learning.ClientWeighting`
      ('examples'); `objective`, an `objectives.Objective`
      added to the loss (none); `exchange`, an `exchange.Exchange` (none);
      `schedule`, a function from completed rounds to the learning rate (the
      optimizer's own); `warmup_steps`, local steps over which the learning rate
      rises to its value in every round (0); `seed` of what is random inside a
      round (0); `metrics_aggregator` as tff.learning's builders take it
      (`tff.learning.metrics.sum_then_finalize`); `record_step_sizes`, whether
      every client's own step sizes are measured too (not); `record_drift`,
      whether the spread of clients' preconditioners is measured (not).

  Returns:
    A `tff.learning.templates.ClientWorkProcess`. Its measurements are `train`
    (the model's metrics), `clients` (`count`, `empty`, `rejected`, `steps`)
    and, where the optimizer has a step size of its own, `step_size`; with
    `record_step_sizes` also `step_size_of_clients`, float32 [clients, 8], a row
    a client in the cohort's order, with the columns `step_sizes.RECORD`; with
    `record_drift` also `drift`, `preconditioner`, where the method has any.

  Raises:
    TypeError: If model or optimizer are not of the kinds above, or the exchange
      keeps something on clients, looks at the aggregated update or shares the
      server's state (`compose` serves those).
    ValueError: If a schedule is given for an optimizer without learning rate,
      or `record_step_sizes` for one that does not choose its step sizes.
  """
  work = ClientWork(model, optimizer, **arguments)
  if work.client_state_type is not None:
    raise TypeError(
      'A tff.learning.templates.ClientWorkProcess cannot hold the client '
      f'states of {type(work.exchange).__name__}; use processes.compose.'
    )
  shares = type(work.exchange).share is not exchange_lib.Exchange.share
  if work.correct is not None or shares:
    raise TypeError(
      'A tff.learning.templates.ClientWorkProcess does not reach the server '
      f'state that {type(work.exchange).__name__}, or the rule of adapters, '
      'needs; use processes.compose.'
    )
  if work.exchange.sees_update:
    raise TypeError(
      'A tff.learning.templates.ClientWorkProcess does not receive the '
      f'aggregated update that {type(work.exchange).__name__} needs; use '
      'processes.compose.'
    )

  @tff.federated_computation(
    tff.FederatedType(work.state_type, tff.SERVER),
    tff.FederatedType(work.facts.weights_type, tff.CLIENTS),
    tff.FederatedType(work.facts.data_type, tff.CLIENTS),
  )
  def next_fn(
    state: structures.Placed,
    weights: structures.Placed,
    data: structures.Placed,
  ) -> tff.templates.MeasuredProcessOutput:
    output = work.run(state, weights, data)
    next_state, _ = work.conclude(state, output.totals)
    return tff.templates.MeasuredProcessOutput(
      next_state, output.result, output.measurements
    )

  return tff.learning.templates.ClientWorkProcess(
    work.initialize,
    next_fn,
    get_hparams_fn=work.get_hparams,
    set_hparams_fn=work.set_hparams,
  )
