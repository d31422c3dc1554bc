"""A client's training in a round, in plain TensorFlow.

`client_work` places it on clients; `messages` builds its output.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import schedules
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import hparams as hparams_lib
from tff_adaptive.processes import messages
from tff_adaptive.processes import objectives
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import autograph
from tff_adaptive.processes.local import client_function
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import step_sizes
from tff_adaptive.processes.local import weighting

# Maps the number of completed rounds (int32 scalar) to a learning rate.
Schedule = Callable[[tf.Tensor], tf.Tensor]

_NOTHING: structures.ClientState = collections.OrderedDict()
_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class SoFar(NamedTuple, Generic[local_model.Carry]):
  """State of a client's training from one step to the next.

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


class Arguments(NamedTuple):
  """What a client receives in a round.

  Attributes:
    state, weights: The server's state and model.
    full_gradient, client_state, first: As in `exchange.Client`.
    factor: A factor of the client's update; `None` for 1.
  """

  state: messages.State
  weights: structures.ModelWeights
  full_gradient: structures.FlatWeights = ()
  client_state: structures.ClientState = _NOTHING
  first: Optional[exchange_lib.First] = None
  factor: Optional[tf.Tensor] = None


class Begun(NamedTuple):
  """Constants of a client's steps in a round.

  Attributes:
    client: The client before its steps.
    context: The exchange's `context` for this client.
    client_size: Examples that the client iterates, int64 scalar; `None` if
      the optimizer does not use it.
    num_batches: Number of batches to use, int64 scalar; `None` for all.
  """

  client: exchange_lib.Client
  context: structures.FlatWeights
  client_size: Optional[tf.Tensor]
  num_batches: Optional[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Trainer(client_function.ClientFunction[Begun, SoFar[Any]]):
  """The building blocks of a method's client work; see `client_work`.

  Attributes:
    extras: Names of what clients receive besides state, weights and data, as in
      `Arguments`.
  """

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
  extras: tuple[str, ...] = ()

  def initial_state(self) -> messages.State:
    """Builds the server's initial state."""
    return first_state(
      self.specs,
      self.optimizer,
      self.objective,
      self.exchange,
      schedule=self.schedule,
      warms_up=bool(self.warmup_steps),
      seed=self.seed,
    )

  def _with_numbers(self, numbers: structures.Statistics) -> 'Trainer':
    """Returns the trainer with numbers read from a state, inside a graph."""
    return dataclasses.replace(
      self,
      objective=self.objective.with_hparams(
        hparams_lib.below('objective', numbers)
      ),
      exchange=self.exchange.with_hparams(
        hparams_lib.below('exchange', numbers)
      ),
      seed=numbers['seed'],
    )

  def _bound(self, arguments: Sequence[Any]) -> tuple['Trainer', Arguments]:
    """Names the arguments, and takes the state's numbers."""
    state, weights, *others = arguments
    named = Arguments(state, weights, **dict(zip(self.extras, others)))
    return self._with_numbers(state.numbers), named

  def begin(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    seen: Optional[client_function.Seen],
  ) -> tuple[Begun, SoFar[local_model.Carry]]:
    bound, named = self._bound(arguments)
    return bound._begin(local, named, seen)

  def _begin(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Arguments,
    seen: Optional[client_function.Seen],
  ) -> tuple[Begun, SoFar[local_model.Carry]]:
    state, weights = arguments.state, arguments.weights
    client = exchange_lib.Client(
      statistics=state.statistics,
      state=arguments.client_state,
      received=tuple(tf.nest.flatten(weights.trainable)),
      full_gradient=arguments.full_gradient,
      first=arguments.first,
      optimizer_state=self._first_optimizer_state(state),
    )
    client = client._replace(start=self.exchange.start(client))
    client = client._replace(optimizer_state=self.exchange.begin(client))
    context = self.exchange.context(client)
    optimizer_state, num_batches = client.optimizer_state, None
    if seen is not None and self.draws:
      optimizer_state, num_batches = self.optimizer.draw(
        optimizer_state,
        randomness.draw_seed(self.seed, state.round, seen.mark),
        seen.num_batches,
      )
    carry = local.begin(weights)
    if type(self.exchange).start is not exchange_lib.Exchange.start:
      carry = local.with_trainable(carry, client.start)
    untrained = SoFar(
      carry,
      optimizer_state,
      step_sizes.start(),
      num_steps=tf.constant(0, tf.int32),
      num_examples=tf.constant(0, tf.int64),
    )
    size = None if seen is None else seen.num_examples
    return Begun(client, context, size, num_batches), untrained

  def most_steps(self, constants: Begun) -> Optional[tf.Tensor]:
    return constants.num_batches

  @property
  def needs_representation(self) -> bool:
    return self.objective.needs_representation

  @property
  def needs_client_size(self) -> bool:
    return (
      isinstance(self.optimizer, protocol.LocalOptimizer)
      and self.optimizer.needs_client_size
    )

  @property
  def draws(self) -> bool:
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
        rate = self.schedule.schedule.rate(hparams[_RATE], state.round)
      else:
        rate = tf.cast(self.schedule(state.round), tf.float32)
      hparams = collections.OrderedDict(hparams, **{_RATE: rate})
    first = self.optimizer.initialize(self.specs)
    first = self.optimizer.set_hparams(first, hparams)
    # A Python number among the loop's variables would lose its dtype.
    return tf.nest.map_structure(tf.convert_to_tensor, first)

  def step(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: Begun,
    so_far: SoFar[local_model.Carry],
    batch: structures.Examples,
  ) -> SoFar[local_model.Carry]:
    bound, named = self._bound(arguments)
    return bound._step(local, named.state.round, constants, so_far, batch)

  def _step(
    self,
    local: local_model.LocalModel[local_model.Carry],
    round_number: tf.Tensor,
    begun: Begun,
    so_far: SoFar[local_model.Carry],
    batch: structures.Examples,
  ) -> SoFar[local_model.Carry]:
    """Evaluates the objective on a batch and takes the optimizer's step."""
    before, optimizer_state, num_steps = (
      so_far.carry,
      so_far.optimizer_state,
      so_far.num_steps,
    )

    def set_seed(step: tf.Tensor) -> None:
      local.set_seed(
        lambda: randomness.step_seed(
          self.seed, round_number, step, local.fingerprint(batch)
        )
      )

    set_seed(num_steps)
    weights = local.trainable(before)
    point = self._gradient_point(optimizer_state, weights, begun.context)
    if point is not None:
      before = local.with_trainable(before, point)
    at = objectives.LossContext(
      local.trainable(before),
      begun.client.start,
      begun.context,
      batch,
      mask=local.mask,
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
      # Only rules that derive from `LocalOptimizer` call this.
      if self.optimizer.own_masks:
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
        begun.client_size,
      ),
    )
    if self.warmup_steps:
      optimizer_state = self.optimizer.set_hparams(optimizer_state, hparams)
    return SoFar(
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
    step = protocol.step_size_of(self.optimizer, optimizer_state)
    return steps if step is None else step_sizes.add(steps, step)

  @property
  def has_step_size(self) -> bool:
    """Whether the optimizer chooses its own step sizes."""
    with tf.Graph().as_default():
      state = self.optimizer.initialize(self.specs)
      return protocol.step_size_of(self.optimizer, state) is not None

  def finish(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: Begun,
    so_far: SoFar[local_model.Carry],
  ) -> messages.Output:
    bound, named = self._bound(arguments)
    return bound._finish(local, named, constants, so_far)

  def _finish(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Arguments,
    begun: Begun,
    trained: SoFar[local_model.Carry],
  ) -> messages.Output:
    """Builds the client's output."""
    weights, factor = arguments.weights, arguments.factor
    client = begun.client._replace(
      optimizer_state=trained.optimizer_state,
      end=local.trainable(trained.carry),
      num_steps=trained.num_steps,
      full_steps=self._full_steps(trained.num_steps),
      num_examples=trained.num_examples,
      weight=weighting.weight(
        self.client_weighting, trained.num_examples, local, trained.carry
      ),
    )
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
  schedule: Optional[Schedule],
  warms_up: bool,
  seed: randomness.Seed,
) -> messages.State:
  """Builds the initial state of a client work.

  Args:
    specs: Specs of the trainable weights, flat.
    optimizer, objective, exchange: Those of the client work.
    schedule: The learning rate's schedule, if there is one.
    warms_up: Whether it rises at the start of each round.
    seed: Seed of randomness inside a round.

  Raises:
    ValueError: If there is no learning rate to change.
  """
  hparams = optimizer.get_hparams(optimizer.initialize(specs))
  if (schedule or warms_up) and _RATE not in hparams:
    raise ValueError(
      'A client learning-rate schedule or warm-up needs an optimizer with a '
      f'learning rate; {type(optimizer).__name__} has none.'
    )
  if isinstance(schedule, schedules.Scheduled):
    rate = tf.constant(schedule.learning_rate, tf.float32)
    hparams = collections.OrderedDict(hparams, **{_RATE: rate})
  numbers: structures.Statistics = collections.OrderedDict(
    (name, tf.constant(value, tf.float32))
    for prefix, component in (('objective', objective), ('exchange', exchange))
    for name, value in hparams_lib.prefixed(prefix, component.hparams()).items()
  )
  numbers['seed'] = tf.constant(seed & 0x7FFFFFFF, tf.int32)
  return messages.State(
    round=tf.constant(0, tf.int32),
    hparams=hparams,
    statistics=exchange.initialize(specs),
    numbers=numbers,
  )
