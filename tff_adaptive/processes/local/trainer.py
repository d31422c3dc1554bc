"""A client's training in a round, in plain TensorFlow.

`client_work` places it on clients; `messages` builds its output.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any
from typing import Generic
from typing import NamedTuple
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import schedules
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import messages
from tff_adaptive.processes import numbers as numbers_lib
from tff_adaptive.processes import objectives
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import autograph
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import step_sizes
from tff_adaptive.processes.local import weighting

# Maps the number of completed rounds (int32 scalar) to a learning rate.
Schedule = Callable[[tf.Tensor], tf.Tensor]

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class _SoFar(NamedTuple, Generic[local_model.Carry]):
  """Loop variables of a client's training.

  Attributes:
    carry: The model's carry.
    optimizer_state: The optimizer's state after the last step.
    steps: Step size statistics.
    num_steps: Steps done, int32 scalar.
    num_examples: Examples iterated, int64 scalar.
  """

  carry: local_model.Carry
  optimizer_state: structures.OptimizerState
  steps: step_sizes.Steps
  num_steps: tf.Tensor
  num_examples: tf.Tensor


class _Round(NamedTuple):
  """Constants of a client's steps in a round.

  Attributes:
    number: Rounds completed, int32 scalar.
    start: The received trainable weights, flat.
    context: The exchange's `context` for this client.
    client_size: Examples that the client iterates, int64 scalar; `None` if
      the optimizer does not use it.
  """

  number: tf.Tensor
  start: structures.FlatWeights
  context: structures.FlatWeights
  client_size: Optional[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Trainer:
  """The building blocks of a method's client work; see `client_work`."""

  model: local_model.Model
  specs: structures.FlatSpecs
  optimizer: tff.learning.optimizers.Optimizer
  objective: objectives.Objective
  exchange: exchange_lib.Exchange
  schedule: Optional[Schedule]
  warmup_steps: int
  client_weighting: str
  seed: randomness.Seed
  record_step_sizes: bool = False
  record_drift: bool = False

  def initial_state(self) -> messages.State:
    """Builds the server's initial state."""
    return first_state(
      self.specs,
      self.optimizer,
      self.objective,
      self.exchange,
      scheduled=self.schedule is not None or bool(self.warmup_steps),
      seed=self.seed,
    )

  def with_numbers(self, numbers: structures.Statistics) -> 'Trainer':
    """Returns the trainer with numbers read from a state, inside a graph."""
    return dataclasses.replace(
      self,
      objective=self.objective.with_numbers(
        numbers_lib.below('objective', numbers)
      ),
      exchange=self.exchange.with_numbers(
        numbers_lib.below('exchange', numbers)
      ),
      seed=numbers['seed'],
    )

  def train(
    self,
    state: messages.State,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
    full_gradient: structures.FlatWeights = (),
    client_state: Optional[structures.ClientState] = None,
    first: Optional[exchange_lib.First] = None,
    factor: Optional[tf.Tensor] = None,
  ) -> messages.Output:
    """Trains a client for a round, inside the graph of a TFF computation."""
    local = local_model.create(self.model)
    local.check_objective(self.objective)

    def train(state: messages.State, *arguments: Any) -> messages.Output:
      bound = self.with_numbers(state.numbers)
      return bound._train(local, state, *arguments)

    train = tf.function(train, autograph=False)
    kept = collections.OrderedDict() if client_state is None else client_state
    return train(state, weights, data, full_gradient, kept, first, factor)

  def _train(
    self,
    local: local_model.LocalModel[local_model.Carry],
    state: messages.State,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
    full_gradient: structures.FlatWeights,
    client_state: structures.ClientState,
    first: Optional[exchange_lib.First],
    factor: Optional[tf.Tensor],
  ) -> messages.Output:
    client = exchange_lib.Client(
      statistics=state.statistics,
      state=client_state,
      received=tuple(tf.nest.flatten(weights.trainable)),
      full_gradient=full_gradient,
      first=first,
      optimizer_state=self._first_optimizer_state(state),
    )
    client = client._replace(start=self.exchange.start(client))
    client = client._replace(optimizer_state=self.exchange.begin(client))
    context = self.exchange.context(client)
    optimizer_state, num_batches, client_size = self._before_steps(
      state, client.optimizer_state, data
    )

    this_round = _Round(state.round, client.start, context, client_size)

    def step(
      so_far: _SoFar[local_model.Carry], batch: structures.Examples
    ) -> _SoFar[local_model.Carry]:
      return self._step(local, this_round, so_far, batch)

    carry = local.begin(weights)
    if type(self.exchange).start is not exchange_lib.Exchange.start:
      carry = local.with_trainable(carry, client.start)
    untrained = _SoFar(
      carry,
      optimizer_state,
      step_sizes.start(),
      num_steps=tf.constant(0, tf.int32),
      num_examples=tf.constant(0, tf.int64),
    )
    trained = autograph.fold(step, untrained, data, num_batches)
    client = client._replace(
      optimizer_state=trained.optimizer_state,
      end=local.trainable(trained.carry),
      num_steps=trained.num_steps,
      full_steps=self._full_steps(trained.num_steps),
      num_examples=trained.num_examples,
      weight=weighting.weight(
        self.client_weighting, trained.num_examples, local, trained.carry
      ),
    )
    return self._finish(local, trained, weights, client, factor)

  def _before_steps(
    self,
    state: messages.State,
    optimizer_state: structures.OptimizerState,
    data: tf.data.Dataset,
  ) -> tuple[
    structures.OptimizerState, Optional[tf.Tensor], Optional[tf.Tensor]
  ]:
    """Counts a client's examples and makes its optimizer's random draws.

    Does either only if the optimizer needs it.

    Returns:
      The optimizer's state, the number of batches to use and the number of
      examples; `None` for all batches and if no number is needed.
    """
    if not self._needs_client_size:
      return optimizer_state, None, None
    client_size, num_batches, mark = self._look_at(data)
    if not self._draws:
      return optimizer_state, None, client_size
    optimizer_state, num_batches = self.optimizer.draw(
      optimizer_state,
      randomness.draw_seed(self.seed, state.round, mark),
      num_batches,
    )
    return optimizer_state, num_batches, client_size

  def _look_at(
    self, data: tf.data.Dataset
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Counts examples and batches, and fingerprints the client's data."""

    def add(
      so_far: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
      batch: structures.Examples,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
      client_size, num_batches, mark = so_far
      if self._draws:
        mark += randomness.fingerprint(batch)
      return client_size + local_model.batch_size(batch), num_batches + 1, mark

    start = tf.constant(0, tf.int64), tf.constant(0, tf.int64), tf.constant(0)
    return autograph.fold(add, start, data)

  @property
  def _needs_client_size(self) -> bool:
    return (
      isinstance(self.optimizer, protocol.LocalOptimizer)
      and self.optimizer.needs_client_size
    )

  @property
  def _own_masks(self) -> bool:
    return (
      isinstance(self.optimizer, protocol.LocalOptimizer)
      and self.optimizer.own_masks
    )

  @property
  def _draws(self) -> bool:
    return (
      isinstance(self.optimizer, protocol.LocalOptimizer)
      and self.optimizer.draws
    )

  def _first_optimizer_state(
    self, state: messages.State
  ) -> structures.OptimizerState:
    """Builds the optimizer's state with this round's hyperparameters."""
    hparams = state.hparams
    if self.schedule is not None:
      if isinstance(self.schedule, schedules.Scheduled):
        # Its initial value is part of the state, not of the graph.
        rate = self.schedule.of(hparams[_RATE], state.round)
      else:
        rate = tf.cast(self.schedule(state.round), tf.float32)
      hparams = collections.OrderedDict(hparams, **{_RATE: rate})
    first = self.optimizer.initialize(self.specs)
    first = self.optimizer.set_hparams(first, hparams)
    # A Python number among the loop's variables would lose its dtype.
    return tf.nest.map_structure(tf.convert_to_tensor, first)

  def _step(
    self,
    local: local_model.LocalModel[local_model.Carry],
    this_round: _Round,
    so_far: _SoFar[local_model.Carry],
    batch: structures.Examples,
  ) -> _SoFar[local_model.Carry]:
    """Evaluates the objective on a batch and takes the optimizer's step."""
    before, optimizer_state, num_steps = (
      so_far.carry,
      so_far.optimizer_state,
      so_far.num_steps,
    )

    def set_seed(step: tf.Tensor) -> None:
      local.set_seed(
        lambda: randomness.step_seed(self.seed, this_round.number, step, batch)
      )

    set_seed(num_steps)
    weights = local.trainable(before)
    point = self._gradient_point(optimizer_state, weights, this_round.context)
    if point is not None:
      before = local.with_trainable(before, point)
    at = objectives.LossContext(
      local.trainable(before), this_round.start, this_round.context, batch
    )
    constants = self.objective.constants(
      at, lambda weights: local.represent_at(before, weights, batch)
    )

    def term(
      weights: structures.FlatWeights, represent: local_model.Represent
    ) -> tf.Tensor:
      here = at._replace(weights=weights, represent=represent)
      return self.objective.term(here, constants)

    after, evaluated = local.evaluate(before, batch, term)
    hparams = self.optimizer.get_hparams(optimizer_state)
    if self.warmup_steps:
      optimizer_state = self.optimizer.set_hparams(
        optimizer_state, self._warmed_up(hparams, num_steps)
      )
    take_step = protocol.take_step
    if not isinstance(self.optimizer, protocol.LocalOptimizer):
      # tff.learning lets AutoGraph see its optimizers.
      take_step = functools.partial(autograph.call, take_step)

    def gradient_fn(weights: structures.FlatWeights) -> structures.FlatWeights:
      if self._own_masks:
        # No step has this number; a client's draws use -1.
        set_seed(-2 - num_steps)
      return local.gradients_at(after, weights, batch, term)

    optimizer_state, weights = take_step(
      self.optimizer,
      optimizer_state,
      weights,
      evaluated.gradients,
      protocol.Batch(
        evaluated.loss,
        gradient_fn,
        evaluated.num_examples,
        this_round.client_size,
      ),
    )
    if self.warmup_steps:
      optimizer_state = self.optimizer.set_hparams(optimizer_state, hparams)
    return _SoFar(
      local.with_trainable(after, weights),
      optimizer_state,
      self._count_step(so_far.steps, optimizer_state),
      num_steps + 1,
      so_far.num_examples + evaluated.num_examples,
    )

  def _gradient_point(
    self,
    optimizer_state: structures.OptimizerState,
    weights: structures.FlatWeights,
    context: structures.FlatWeights,
  ) -> Optional[structures.FlatWeights]:
    if not isinstance(self.optimizer, protocol.LocalOptimizer):
      return None
    return self.optimizer.gradient_point(optimizer_state, weights, context)

  def _full_steps(self, num_steps: tf.Tensor) -> tf.Tensor:
    """Sums the warm-up's factors over the local steps."""
    steps = tf.cast(num_steps, tf.float32)
    if not self.warmup_steps:
      return steps
    rising = tf.minimum(steps, self.warmup_steps)
    return rising * (rising + 1) / (2 * self.warmup_steps) + steps - rising

  def _warmed_up(
    self, hparams: structures.HParams, num_steps: tf.Tensor
  ) -> structures.HParams:
    """Multiplies the rate of local step k = 1, 2, ... by min(1, k / n)."""
    share = tf.cast(num_steps + 1, tf.float32) / self.warmup_steps
    rate = hparams[_RATE] * tf.minimum(share, 1.0)
    return collections.OrderedDict(hparams, **{_RATE: rate})

  def _count_step(
    self,
    steps: step_sizes.Steps,
    optimizer_state: structures.OptimizerState,
  ) -> step_sizes.Steps:
    if isinstance(self.optimizer, protocol.LocalOptimizer):
      step = self.optimizer.step_size(optimizer_state)
      if step is not None:
        return step_sizes.add(steps, step)
    return steps

  @property
  def has_step_size(self) -> bool:
    """Whether the optimizer chooses its own step sizes."""
    if not isinstance(self.optimizer, protocol.LocalOptimizer):
      return False
    with tf.Graph().as_default():
      state = self.optimizer.initialize(self.specs)
      return self.optimizer.step_size(state) is not None

  def _finish(
    self,
    local: local_model.LocalModel[local_model.Carry],
    trained: _SoFar[local_model.Carry],
    weights: structures.ModelWeights,
    client: exchange_lib.Client,
    factor: Optional[tf.Tensor],
  ) -> messages.Output:
    """Builds the client's output."""
    # TFF's server optimizers take the update for a gradient.
    update = tf.nest.pack_sequence_as(
      weights.trainable, [-u for u in self.exchange.update(client)]
    )
    if factor is not None:
      update = tf.nest.map_structure(
        lambda t: tf.cast(factor, t.dtype) * t, update
      )
    return messages.of_client(
      self.exchange,
      client,
      update,
      lambda discard: local.metrics(trained.carry, discard),
      trained.steps if self.has_step_size else None,
      self.record_step_sizes,
      self.record_drift,
      adapters.products(local.residuals, client.end),
    )


def first_state(
  specs: structures.FlatSpecs,
  optimizer: tff.learning.optimizers.Optimizer,
  objective: objectives.Objective,
  exchange: exchange_lib.Exchange,
  *,
  scheduled: bool,
  seed: randomness.Seed,
) -> messages.State:
  """Builds the initial state of a client work.

  Args:
    specs: Specs of the trainable weights, flat.
    optimizer, objective, exchange: Those of the client work.
    scheduled: Whether a schedule or a warm-up changes the learning rate.
    seed: Seed of randomness inside a round.

  Raises:
    ValueError: If there is no learning rate to change.
  """
  hparams = optimizer.get_hparams(optimizer.initialize(specs))
  if scheduled and _RATE not in hparams:
    raise ValueError(
      'A client learning-rate schedule or warm-up needs an optimizer with a '
      f'learning rate; {type(optimizer).__name__} has none.'
    )
  numbers: structures.Statistics = collections.OrderedDict(
    (name, tf.constant(value, tf.float32))
    for prefix, piece in (('objective', objective), ('exchange', exchange))
    for name, value in numbers_lib.prefixed(prefix, piece.numbers()).items()
  )
  numbers['seed'] = tf.constant(seed & 0x7FFFFFFF, tf.int32)
  return messages.State(
    round=tf.constant(0, tf.int32),
    hparams=hparams,
    statistics=exchange.initialize(specs),
    numbers=numbers,
  )
