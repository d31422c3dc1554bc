"""The composition of a learning process from its parts."""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, Union

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import structures
from tff_adaptive import tff_internals
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import drift
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import messages as messages_lib
from tff_adaptive.processes import objectives
from tff_adaptive.processes.local import client_work as client_work_lib
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import trainer as trainer_lib


class StatefulOutput(NamedTuple):
  """The result of a stateful process' `next`.

  Attributes:
    state: The server's next state.
    client_states: The cohort's next states, in the cohort's order.
    metrics: As a learning process' metrics.
  """

  state: tff.learning.templates.LearningAlgorithmState
  client_states: Sequence[structures.ClientState]
  metrics: structures.Metrics


@attrs.frozen
class StatefulLearningProcess:
  """A learning process with client state: what clients keep between rounds.

  Attributes:
    initialize: Makes the server's state; as in
      `tff.learning.templates.LearningProcess`.
    initialize_client_state: Builds the state of a client in its first round.
    next: Maps (state, client states, client data), both lists in the same
      order, to a `StatefulOutput`. The caller stores client states by client
      id and passes `initialize_client_state()` for new clients.
    get_model_weights, set_model_weights, get_hparams, set_hparams: As in
      `tff.learning.templates.LearningProcess`.
    personal_weights: Maps model weights and a client's state to this client's
      own weights; `None` if all clients use the same.
  """

  initialize: tff.Computation
  initialize_client_state: tff.Computation
  next: tff.Computation
  get_model_weights: tff.Computation
  set_model_weights: tff.Computation
  get_hparams: tff.Computation
  set_hparams: tff.Computation
  personal_weights: Optional[tff.Computation] = None


class Message(NamedTuple):
  """What a client receives.

  Attributes:
    weights: The model's.
    work: The client work's state, as it is sent.
  """

  weights: structures.ModelWeights
  work: messages_lib.State


@attrs.frozen
class BufferedLearningProcess(StatefulLearningProcess):
  """A learning process whose clients may begin from models of other rounds.

  The attributes are those of `StatefulLearningProcess`, except for these.

  Attributes:
    initialize_client_state: As there; `None` if clients keep nothing.
    message: Maps the server's state to the `Message` that a client receives.
    next: Maps (state, messages, factors, client states, client data), all but
      the first lists in the same order, to a `StatefulOutput`: each client
      trains from its message, and its update is multiplied by its factor.
      Without client states it maps (state, messages, factors, client data) to a
      `tff.learning.templates.LearningProcessOutput`.
  """

  message: tff.Computation = attrs.field(kw_only=True)


Process = Union[
  tff.learning.templates.LearningProcess,
  StatefulLearningProcess,
  BufferedLearningProcess,
]


@tf.autograph.experimental.do_not_convert
def _reject_non_finite(
  state: structures.OptimizerState, update: structures.Structure
) -> tuple[tf.Tensor, structures.Metrics]:
  """Leaves model and optimizer unchanged if the update has NaN or infinity."""
  reject, measurements = tff.learning.templates.reject_non_finite_update(
    state, update
  )
  measurements = collections.OrderedDict(
    measurements, update_norm=tree.norm(update)
  )
  return reject, measurements


class _Parts(NamedTuple):
  """The parts of a process, traced."""

  initial_weights: tff.Computation
  distributor: tff.learning.templates.DistributionProcess
  work: client_work_lib.ClientWork
  aggregator: tff.templates.AggregationProcess
  finalizer: tff.learning.templates.FinalizerProcess


def compose(
  model: local_model.Model,
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  server_schedule: Optional[client_work_lib.Schedule] = None,
  model_aggregator: Optional[tff.aggregators.WeightedAggregationFactory] = None,
  takes_messages: bool = False,
  **client_work: Any,
) -> Process:
  """Composes a learning process: broadcast, client work, mean, server step.

  The composition is that of `tff.learning.templates.compose_learning_process`
  with two additions, each used only by exchanges that ask for it: the server
  optimizer's state can be shared with clients (`Exchange.share`), and clients
  can keep something between rounds (`Exchange.initialize_client`).

  Args:
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a `FunctionalModel`.
    client_optimizer: The optimizer of local steps.
    server_optimizer: The optimizer of the server's step; its gradient is minus
      the aggregated client update.
    server_schedule: Server learning rate by rounds whose update was applied, in
      place of the optimizer's own.
    model_aggregator: Aggregator of updates; a weighted mean by default.
    takes_messages: Whether each client begins from a message of its own instead
      of the server's state.
    **client_work: Further arguments of `build_client_work`.

  Returns:
    A `tff.learning.templates.LearningProcess`, or a `StatefulLearningProcess`
    if the exchange keeps something on clients, or a `BufferedLearningProcess`
    if messages are taken. Its metrics are those of
    `tff.learning.templates.compose_learning_process`, with those of
    `build_client_work` under `client_work`, and under `finalizer`
    `update_non_finite` (1 if the round was discarded) and `update_norm` (of
    the aggregated update).

  Raises:
    ValueError: If `takes_messages`, but the exchange needs all clients to train
      from the same model; if the adapters' averaging rule is incompatible with
      the method or the aggregator (`adapters.AdapterError`).
  """
  work = client_work_lib.ClientWork(
    model, client_optimizer, takes_messages=takes_messages, **client_work
  )
  if takes_messages and (reason := needs_one_version(work.exchange)):
    raise ValueError(
      f'{type(work.exchange).__name__} cannot take messages: {reason}.'
    )
  weights_type = work.facts.weights_type
  _check_averaging(work, model_aggregator, takes_messages)
  if server_schedule is not None:
    server_optimizer = tff.learning.optimizers.schedule_learning_rate(
      server_optimizer, server_schedule
    )
  model_aggregator = model_aggregator or tff.aggregators.MeanFactory()
  parts = _Parts(
    work.facts.initial_weights,
    tff.learning.templates.build_broadcast_process(weights_type),
    work,
    model_aggregator.create(
      weights_type.trainable, tff.TensorType(tf.float32.as_numpy_dtype)
    ),
    tff.learning.templates.build_apply_optimizer_finalizer(
      server_optimizer, weights_type, _reject_non_finite
    ),
  )
  return _compose_buffered(parts) if takes_messages else _compose(parts)


def _check_averaging(
  work: client_work_lib.ClientWork,
  aggregator: Optional[tff.aggregators.WeightedAggregationFactory],
  takes_messages: bool,
) -> None:
  """Checks that the server can correct the averaging of the model's adapters.

  Raises:
    AdapterError: If it cannot, because it does not see every client's update.
  """
  if work.correct is None:
    return
  exchange = work.exchange
  changed = type(exchange).update is not exchange_lib.Exchange.update
  if isinstance(aggregator, drift.MeasuringDrift):
    aggregator = aggregator.aggregation
  plain = aggregator is None or tff_internals.is_plain_mean(aggregator)
  if takes_messages or changed or exchange.encoding is not None or not plain:
    raise adapters.AdapterError(
      'The rule fedex corrects the mean of A and B by the products of what '
      'each client sends, so clients must start from one model and send A and '
      'B unmodified to a plain mean. It does not support asynchronous rounds, '
      'clipping, noise, secure sums, or methods that send a different update. '
      'Use the rule lora or ffa.'
    )


def first_state(
  template: tff.learning.templates.LearningAlgorithmState,
  weights: tff.learning.models.ModelWeights,
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  objective: Optional[objectives.Objective] = None,
  exchange: Optional[exchange_lib.Exchange] = None,
  schedule: Optional[client_work_lib.Schedule] = None,
  server_schedule: Optional[client_work_lib.Schedule] = None,
  warmup_steps: int = 0,
  seed: int = 0,
  **_: Any,
) -> tff.learning.templates.LearningAlgorithmState:
  """Builds the initial state of a process for rates of one's own.

  The process may have been composed with other numbers, as long as its graph is
  the same: rates, decays and the like are part of the state.

  Args:
    template: The process' own initial state.
    weights: The model's weights at the start of training, as arrays.
    client_optimizer, server_optimizer: As `compose` takes them.
    objective, exchange, schedule, server_schedule: Likewise.
    warmup_steps, seed: Likewise.

  Returns:
    The state, with arrays of the template's dtypes.
  """
  specs = tf.nest.map_structure(
    lambda x: tf.TensorSpec(np.shape(x), np.asarray(x).dtype), weights.trainable
  )
  if server_schedule is not None:
    server_optimizer = tff.learning.optimizers.schedule_learning_rate(
      server_optimizer, server_schedule
    )
  work = trainer_lib.first_state(
    tuple(tf.nest.flatten(specs)),
    client_optimizer,
    objective or objectives.Plain(),
    exchange or exchange_lib.NoExchange(),
    schedule=schedule,
    warms_up=bool(warmup_steps),
    seed=seed,
  )
  return template._replace(
    global_model_weights=_like(template.global_model_weights, weights),
    client_work=_like(template.client_work, work),
    finalizer=_like(template.finalizer, server_optimizer.initialize(specs)),
  )


def _like(template: Any, values: Any) -> Any:
  """Packs values into the containers of a template, with its dtypes."""
  leaves = [
    np.asarray(value, np.asarray(like).dtype).reshape(np.shape(like))
    for value, like in zip(
      tf.nest.flatten(values), tf.nest.flatten(template), strict=True
    )
  ]
  return tf.nest.pack_sequence_as(template, leaves)


def needs_one_version(exchange: Optional[exchange_lib.Exchange]) -> str:
  """Explains why an exchange needs a cohort that trained from one model.

  Returns:
    The reason; empty if the exchange does not need one.
  """
  if exchange is None:
    return ''
  if exchange.full_gradient_pass is not None:
    return "its clients need the cohort's mean gradient at one model"
  if exchange.probes_first_client:
    return "its clients start from a measurement by the round's first client"
  base = exchange_lib.Exchange
  if not exchange.of_one_version:
    return ''
  if exchange.sees_update or any(
    getattr(type(exchange), name) is not getattr(base, name)
    for name in ('report', 'merge', 'step')
  ):
    return 'its server aggregates client reports on training from one model'
  return ''


def _compose_buffered(parts: _Parts) -> BufferedLearningProcess:
  """Composes a process whose clients each begin from a message of their own."""
  initialize = _initialization(parts)
  placed_state_type = initialize.type_signature.result
  state_type = placed_state_type.member
  message = _message(parts, state_type)
  run = _round(parts, state_type)
  of_clients = [
    message.type_signature.result,
    tff.TensorType(np.float32),
    parts.work.facts.data_type,
  ]
  if parts.work.client_state_type is not None:
    of_clients.insert(2, parts.work.client_state_type)
  known = [
    placed_state_type,
    *(tff.FederatedType(type_, tff.CLIENTS) for type_ in of_clients),
  ]
  if parts.work.client_state_type is None:

    @tff.federated_computation(*known)
    def next_fn(
      state: structures.Placed,
      received: structures.Placed,
      factors: structures.Placed,
      client_data: structures.Placed,
    ) -> tff.learning.templates.LearningProcessOutput:
      next_state, metrics, _ = run(state, client_data, None, received, factors)
      return tff.learning.templates.LearningProcessOutput(next_state, metrics)

  else:

    @tff.federated_computation(*known)
    def next_fn(
      state: structures.Placed,
      received: structures.Placed,
      factors: structures.Placed,
      client_states: structures.Placed,
      client_data: structures.Placed,
    ) -> StatefulOutput:
      next_state, metrics, client_states = run(
        state, client_data, client_states, received, factors
      )
      return StatefulOutput(next_state, client_states, metrics)

  return BufferedLearningProcess(
    initialize,
    parts.work.initialize_client_state,
    next_fn,
    *_weights_access(parts, state_type),
    *_hparams_access(parts, state_type),
    personal_weights=_personal_weights(parts),
    message=message,
  )


def _message(parts: _Parts, state_type: tff.Type) -> tff.Computation:
  """Builds the computation from the server's state to a client's message."""
  exchange = parts.work.exchange

  @tff.tensorflow.computation(state_type)
  def message(
    state: tff.learning.templates.LearningAlgorithmState,
  ) -> Message:
    server = exchange_lib.Server(state.client_work.statistics, state.finalizer)
    statistics = exchange.broadcast(exchange.share(server))
    return Message(
      state.global_model_weights,
      state.client_work._replace(statistics=statistics),
    )

  return message


def _compose(parts: _Parts) -> Process:
  initialize = _initialization(parts)
  placed_state_type = initialize.type_signature.result
  state_type = placed_state_type.member
  data_type = tff.FederatedType(parts.work.facts.data_type, tff.CLIENTS)
  run = _round(parts, state_type)
  access = (
    *_weights_access(parts, state_type),
    *_hparams_access(parts, state_type),
  )

  if parts.work.client_state_type is None:

    @tff.federated_computation(placed_state_type, data_type)
    def next_fn(
      state: structures.Placed, client_data: structures.Placed
    ) -> tff.learning.templates.LearningProcessOutput:
      next_state, metrics, _ = run(state, client_data)
      return tff.learning.templates.LearningProcessOutput(next_state, metrics)

    get_weights, set_weights, get_hparams, set_hparams = access
    return tff.learning.templates.LearningProcess(
      initialize,
      next_fn,
      get_weights,
      set_weights,
      get_hparams_fn=get_hparams,
      set_hparams_fn=set_hparams,
    )

  @tff.federated_computation(
    placed_state_type,
    tff.FederatedType(parts.work.client_state_type, tff.CLIENTS),
    data_type,
  )
  def next_with_client_states(
    state: structures.Placed,
    client_states: structures.Placed,
    client_data: structures.Placed,
  ) -> StatefulOutput:
    next_state, metrics, client_states = run(state, client_data, client_states)
    return StatefulOutput(next_state, client_states, metrics)

  return StatefulLearningProcess(
    initialize,
    parts.work.initialize_client_state,
    next_with_client_states,
    *access,
    personal_weights=_personal_weights(parts),
  )


def _personal_weights(parts: _Parts) -> Optional[tff.Computation]:
  """Builds the computation that inserts a client's layers into the model."""
  exchange, weights_type = parts.work.exchange, parts.work.facts.weights_type
  if not exchange.keeps_layers:
    return None

  @tff.tensorflow.computation(weights_type, parts.work.client_state_type)
  def personal_weights(
    weights: structures.ModelWeights, client_state: structures.ClientState
  ) -> structures.ModelWeights:
    received = tuple(tf.nest.flatten(weights.trainable))
    own = exchange.start(
      exchange_lib.Client(
        collections.OrderedDict(), client_state, received=received
      )
    )
    return tff.learning.models.ModelWeights(
      tf.nest.pack_sequence_as(weights.trainable, own), weights.non_trainable
    )

  return personal_weights


def _initialization(parts: _Parts) -> tff.Computation:
  @tff.federated_computation
  def initialize() -> structures.Placed:
    return tff.federated_zip(
      tff.learning.templates.LearningAlgorithmState(
        tff.federated_eval(parts.initial_weights, tff.SERVER),
        parts.distributor.initialize(),
        parts.work.initialize(),
        parts.aggregator.initialize(),
        parts.finalizer.initialize(),
      )
    )

  return initialize


# The next state, the metrics and what clients keep, empty if that is nothing.
_PlacedRound = tuple[structures.Placed, structures.Placed, structures.Placed]


def _round(parts: _Parts, state_type: tff.Type) -> Callable[..., _PlacedRound]:
  """Builds a function to call inside a federated computation.

  Returns:
    A function of state, data, client states if clients keep any, and messages
    and factors if they are handed those; its results are the next state, the
    metrics and the next client states.
  """
  work = parts.work
  shares = type(work.exchange).share is not exchange_lib.Exchange.share
  share = work.share(state_type.finalizer) if shares else None

  def run(
    state: structures.Placed,
    data: structures.Placed,
    client_states: Optional[structures.Placed] = None,
    received: Optional[structures.Placed] = None,
    factors: Optional[structures.Placed] = None,
  ) -> _PlacedRound:
    work_state = state.client_work
    if received is None:
      broadcast = parts.distributor.next(
        state.distributor, state.global_model_weights
      )
      distributor, distributed = broadcast.state, broadcast.measurements
      if share is not None:
        work_state = tff.federated_map(share, (work_state, state.finalizer))
      done = work.run(work_state, broadcast.result, data, client_states)
    else:
      distributor = state.distributor
      distributed = tff.federated_value((), tff.SERVER)
      done = work.run(
        work_state,
        received.weights,
        data,
        client_states,
        received.work,
        factors,
      )
    mean = parts.aggregator.next(
      state.aggregator, done.result.update, done.result.update_weight
    )
    work_state, update = work.conclude(work_state, done.totals, mean.result)
    stepped = parts.finalizer.next(
      state.finalizer, state.global_model_weights, update
    )
    weights = stepped.result
    if work.correct is not None:
      weights = tff.federated_map(
        work.correct,
        (weights, state.global_model_weights, done.totals[0], mean.result),
      )
    next_state = tff.federated_zip(
      tff.learning.templates.LearningAlgorithmState(
        weights, distributor, work_state, mean.state, stepped.state
      )
    )
    metrics = tff.federated_zip(
      collections.OrderedDict(
        distributor=distributed,
        client_work=done.measurements,
        aggregator=mean.measurements,
        finalizer=stepped.measurements,
      )
    )
    return next_state, metrics, done.client_states

  return run


def _weights_access(
  parts: _Parts, state_type: tff.Type
) -> tuple[tff.Computation, tff.Computation]:
  """Builds computations that get and set the model weights in a state."""
  exchange = parts.work.exchange

  @tff.tensorflow.computation(state_type)
  def get_model_weights(
    state: tff.learning.templates.LearningAlgorithmState,
  ) -> structures.ModelWeights:
    weights = state.global_model_weights
    trainable = exchange.evaluated(
      exchange_lib.Server(
        state.client_work.statistics, weights=weights.trainable
      )
    )
    return tff.learning.models.ModelWeights(trainable, weights.non_trainable)

  @tff.tensorflow.computation(state_type, state_type.global_model_weights)
  def set_model_weights(
    state: tff.learning.templates.LearningAlgorithmState,
    weights: structures.ModelWeights,
  ) -> tff.learning.templates.LearningAlgorithmState:
    statistics = exchange.restarted(state.client_work.statistics)
    return state._replace(
      global_model_weights=weights,
      client_work=state.client_work._replace(statistics=statistics),
    )

  return get_model_weights, set_model_weights


def _hparams_access(
  parts: _Parts, state_type: tff.Type
) -> tuple[tff.Computation, tff.Computation]:
  """Builds computations that get and set hyperparameters in a state."""
  work, finalizer = parts.work, parts.finalizer

  @tff.tensorflow.computation(state_type)
  def get_hparams(
    state: tff.learning.templates.LearningAlgorithmState,
  ) -> collections.OrderedDict[str, structures.HParams]:
    return collections.OrderedDict(
      client_work=work.get_hparams(state.client_work),
      finalizer=finalizer.get_hparams(state.finalizer),
    )

  @tff.tensorflow.computation(state_type, get_hparams.type_signature.result)
  def set_hparams(
    state: tff.learning.templates.LearningAlgorithmState,
    hparams: collections.OrderedDict[str, structures.HParams],
  ) -> tff.learning.templates.LearningAlgorithmState:
    return state._replace(
      client_work=work.set_hparams(state.client_work, hparams['client_work']),
      finalizer=finalizer.set_hparams(state.finalizer, hparams['finalizer']),
    )

  return get_hparams, set_hparams
