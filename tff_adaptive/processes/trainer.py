"""A client's work in a round and what the server makes of it, in TensorFlow.

`client_work` places these functions on clients and server.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Generic
from typing import NamedTuple
from typing import Optional
from typing import Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import autograph
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import local_model
from tff_adaptive.processes import objectives
from tff_adaptive.processes import randomness
from tff_adaptive.processes import step_sizes
from tff_adaptive.processes import weighting

# Maps the number of completed rounds (int32 scalar) to a learning rate.
Schedule = Callable[[tf.Tensor], tf.Tensor]

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


class State(NamedTuple):
  """The client work's state, at the server: what it sends with the model.

  Attributes:
    round: Rounds completed, int32 scalar.
    hparams: The client optimizer's hyperparameters.
    statistics: The exchange's.
  """

  round: tf.Tensor
  hparams: structures.HParams
  statistics: structures.Statistics


class Sums(NamedTuple):
  """A client's part in the cohort's sums, or the sums.

  Attributes:
    clients: Counts of clients and steps, by name.
    weight: The clients' weights, float32 scalar.
    weighted: The weighted parts of the reports, times the weights.
    taking_part: Clients that take part, float32 scalar.
    mean: The parts of the reports that are averaged unweighted.
    step_size: `step_sizes.StepSums`; empty for an optimizer without step sizes.
  """

  clients: collections.OrderedDict[str, tf.Tensor]
  weight: tf.Tensor
  weighted: structures.Statistics
  taking_part: tf.Tensor
  mean: structures.Statistics
  step_size: Union[step_sizes.StepSums, tuple[()]]


# What the cohort's largest values are taken of, by name.
Maxima = collections.OrderedDict[str, tf.Tensor]


class Output(NamedTuple):
  """The outcome of a client's round.

  Attributes:
    result: The update and its weight.
    metrics: The model's, unfinalized.
    sums: What the client adds to the cohort's sums.
    maxima: What it contributes to the cohort's maxima.
    record: Its own step sizes, as `step_sizes.record` makes them; empty unless
      these are recorded.
    memory: What it keeps; empty for a method that keeps nothing.
  """

  result: tff.learning.templates.ClientResult
  metrics: structures.Metrics
  sums: Sums
  maxima: Maxima
  record: Union[tf.Tensor, tuple[()]]
  memory: structures.Memory


class _SoFar(NamedTuple, Generic[local_model.Carry]):
  """A client's training after some of its steps.

  Attributes:
    carry: The model's.
    optimizer_state: After the last step.
    steps: The steps' own sizes.
    num_steps: Steps done, int32 scalar.
    num_examples: Examples iterated, int64 scalar.
  """

  carry: local_model.Carry
  optimizer_state: structures.OptimizerState
  steps: step_sizes.Steps
  num_steps: tf.Tensor
  num_examples: tf.Tensor


class _Round(NamedTuple):
  """The things that stay the same over a client's steps in a round.

  Attributes:
    number: Rounds completed, int32 scalar.
    start: The received trainable weights, flat.
    context: What the exchange made for the objective's term.
    client_size: Examples that the client iterates, int64 scalar; `None` if
      nobody asks for it.
  """

  number: tf.Tensor
  start: structures.FlatWeights
  context: structures.FlatWeights
  client_size: Optional[tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Trainer:
  """The pieces that a method's client work is made of; see `client_work`."""

  model: local_model.Model
  specs: structures.FlatSpecs
  optimizer: tff.learning.optimizers.Optimizer
  objective: objectives.Objective
  exchange: exchange_lib.Exchange
  schedule: Optional[Schedule]
  warmup_steps: int
  client_weighting: str
  seed: int
  record_step_sizes: bool = False

  def initial_state(self) -> State:
    """Builds the server's first state."""
    hparams = self.optimizer.get_hparams(self.optimizer.initialize(self.specs))
    scheduled = self.schedule is not None or self.warmup_steps
    if scheduled and _RATE not in hparams:
      raise ValueError(
        'A client learning-rate schedule or warm-up needs an optimizer with a '
        f'learning rate; {type(self.optimizer).__name__} has none.'
      )
    return State(
      round=tf.constant(0, tf.int32),
      hparams=hparams,
      statistics=self.exchange.initialize(self.specs),
    )

  def train(
    self,
    state: State,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
    full_gradient: structures.FlatWeights = (),
    memory: Optional[structures.Memory] = None,
  ) -> Output:
    """Trains a client for a round, inside the graph of a TFF computation."""
    local = local_model.create(self.model)
    local.check_objective(self.objective)

    @tf.function(autograph=False)
    def traced(
      state: State,
      weights: structures.ModelWeights,
      data: tf.data.Dataset,
      full_gradient: structures.FlatWeights,
      memory: structures.Memory,
    ) -> Output:
      return self._train(local, state, weights, data, full_gradient, memory)

    kept = collections.OrderedDict() if memory is None else memory
    return traced(state, weights, data, full_gradient, kept)

  def _train(
    self,
    local: local_model.LocalModel[local_model.Carry],
    state: State,
    weights: structures.ModelWeights,
    data: tf.data.Dataset,
    full_gradient: structures.FlatWeights,
    memory: structures.Memory,
  ) -> Output:
    start = tuple(tf.nest.flatten(weights.trainable))
    optimizer_state = self._first_optimizer_state(state, start, full_gradient)
    context = self.exchange.context(state.statistics, memory, start)
    optimizer_state, data, client_size = self._before_steps(
      state, optimizer_state, data
    )

    this_round = _Round(state.round, start, context, client_size)

    def step(
      so_far: _SoFar[local_model.Carry], batch: structures.Examples
    ) -> _SoFar[local_model.Carry]:
      return self._step(local, this_round, so_far, batch)

    first = _SoFar(
      local.begin(weights),
      optimizer_state,
      step_sizes.start(),
      num_steps=tf.constant(0, tf.int32),
      num_examples=tf.constant(0, tf.int64),
    )
    trained = autograph.fold(step, first, data)
    done = exchange_lib.Local(
      statistics=state.statistics,
      memory=memory,
      full_gradient=full_gradient,
      optimizer_state=trained.optimizer_state,
      start=start,
      end=local.trainable(trained.carry),
      num_steps=trained.num_steps,
      full_steps=self._full_steps(trained.num_steps),
      num_examples=trained.num_examples,
      weight=weighting.weight(
        self.client_weighting, trained.num_examples, local, trained.carry
      ),
    )
    return self._finish(local, trained, weights, done)

  def _before_steps(
    self,
    state: State,
    optimizer_state: structures.OptimizerState,
    data: tf.data.Dataset,
  ) -> tuple[structures.OptimizerState, tf.data.Dataset, Optional[tf.Tensor]]:
    """Counts a client's examples and draws what it does, where that is asked.

    Returns:
      The optimizer's state, the batches to iterate and the number of examples,
      `None` if nobody asks for it.
    """
    if not self._needs_client_size:
      return optimizer_state, data, None
    client_size, num_batches, mark = self._look_at(data)
    if self._draws:
      optimizer_state, num_batches = self.optimizer.draw(
        optimizer_state,
        randomness.draw_seed(self.seed, state.round, mark),
        num_batches,
      )
      data = data.take(num_batches)
    return optimizer_state, data, client_size

  def _look_at(
    self, data: tf.data.Dataset
  ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Counts examples and batches; makes a mark that tells clients apart."""

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
  def _draws(self) -> bool:
    return (
      isinstance(self.optimizer, protocol.LocalOptimizer)
      and self.optimizer.draws
    )

  def _first_optimizer_state(
    self,
    state: State,
    start: structures.FlatWeights,
    full_gradient: structures.FlatWeights,
  ) -> structures.OptimizerState:
    hparams = state.hparams
    if self.schedule is not None:
      rate = tf.cast(self.schedule(state.round), tf.float32)
      hparams = collections.OrderedDict(hparams, **{_RATE: rate})
    first = self.optimizer.initialize(self.specs)
    first = self.optimizer.set_hparams(first, hparams)
    # A Python number among the loop's variables would lose its dtype.
    first = tf.nest.map_structure(tf.convert_to_tensor, first)
    return self.exchange.begin(state.statistics, first, start, full_gradient)

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
    local.set_seed(
      lambda: randomness.step_seed(
        self.seed, this_round.number, num_steps, batch
      )
    )
    place = objectives.Place(
      local.trainable(before), this_round.start, this_round.context, batch
    )
    constants = self.objective.constants(
      place, lambda weights: local.represent_at(before, weights, batch)
    )

    def term(
      weights: structures.FlatWeights, represent: local_model.Represent
    ) -> tf.Tensor:
      here = place._replace(weights=weights, represent=represent)
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
    optimizer_state, weights = take_step(
      self.optimizer,
      optimizer_state,
      local.trainable(after),
      evaluated.gradients,
      protocol.Batch(
        evaluated.loss,
        lambda weights: local.gradients_at(after, weights, batch, term),
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

  def _full_steps(self, num_steps: tf.Tensor) -> tf.Tensor:
    """Sums over local steps what `_warmed_up` makes of the rate."""
    steps = tf.cast(num_steps, tf.float32)
    if not self.warmup_steps:
      return steps
    rising = tf.minimum(steps, self.warmup_steps)
    return rising * (rising + 1) / (2 * self.warmup_steps) + steps - rising

  def _warmed_up(
    self, hparams: structures.HParams, num_steps: tf.Tensor
  ) -> structures.HParams:
    """Multiplies the rate of local step k = 1, 2, ... with min(1, k / n)."""
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
    done: exchange_lib.Local,
  ) -> Output:
    """Makes what the client sends and keeps."""
    steps = trained.steps
    update = tf.nest.map_structure(
      tf.subtract,
      weights.trainable,
      tf.nest.pack_sequence_as(weights.trainable, done.end),
    )
    report = self.exchange.report(done)
    remembered = self.exchange.remember(done)
    weight = self.exchange.weight(done)
    # One test for all that leaves the client: an accumulator or a step size
    # can overflow while the weights have not yet.
    finite = tree.all_finite(
      (update, done.optimizer_state, report, remembered, weight)
    )
    empty = tf.equal(done.num_examples, 0)
    takes_part = tf.logical_and(finite, tf.logical_not(empty))
    weight = tf.where(takes_part, weight, 0.0)
    clients = collections.OrderedDict(
      count=tf.constant(1, tf.int32),
      empty=tf.cast(empty, tf.int32),
      rejected=tf.cast(tf.logical_not(finite), tf.int32),
      steps=done.num_steps,
    )
    memory = done.memory
    if memory:
      memory = tf.nest.map_structure(
        lambda new, old: tf.where(takes_part, new, old),
        remembered,
        done.memory,
      )
    return Output(
      result=tff.learning.templates.ClientResult(
        update=_zero_unless(takes_part, update),
        update_weight=weight,
      ),
      metrics=local.metrics(trained.carry, discard=tf.logical_not(finite)),
      sums=self._sums(clients, report, weight, takes_part, steps),
      maxima=self._maxima(report, takes_part, steps),
      record=(
        step_sizes.record(steps, takes_part) if self.record_step_sizes else ()
      ),
      memory=memory,
    )

  def _sums(
    self,
    clients: collections.OrderedDict[str, tf.Tensor],
    report: exchange_lib.Report,
    weight: tf.Tensor,
    takes_part: tf.Tensor,
    steps: step_sizes.Steps,
  ) -> Sums:
    """Makes what the client adds to the cohort's sums."""
    weighted = tf.nest.map_structure(
      lambda t: tf.cast(weight, t.dtype) * t, report.weighted
    )
    return Sums(
      clients=clients,
      weight=weight,
      weighted=_zero_unless(takes_part, weighted),
      taking_part=tf.cast(takes_part, tf.float32),
      mean=_zero_unless(takes_part, report.mean),
      step_size=(
        step_sizes.sums(steps, takes_part) if self.has_step_size else ()
      ),
    )

  def _maxima(
    self,
    report: exchange_lib.Report,
    takes_part: tf.Tensor,
    steps: step_sizes.Steps,
  ) -> Maxima:
    """Makes what the client contributes to the cohort's maxima."""
    maxima = collections.OrderedDict(
      (name, tf.where(takes_part, value, value.dtype.min))
      for name, value in report.maximum.items()
    )
    if self.has_step_size:
      maxima.update(step_sizes.maxima(steps, takes_part))
    return maxima

  def next_state(
    self,
    state: State,
    sums: Sums,
    maxima: Maxima,
    full_gradient: structures.FlatWeights,
  ) -> State:
    """Makes the server's state after a round."""

    def divide(structure: structures.Tree, by: tf.Tensor) -> structures.Tree:
      return tf.nest.map_structure(
        lambda t: tf.math.divide_no_nan(t, tf.cast(by, t.dtype)), structure
      )

    cohort = exchange_lib.Cohort(
      exchange_lib.Report(
        weighted=divide(sums.weighted, sums.weight),
        mean=divide(sums.mean, sums.taking_part),
        maximum=maxima,
      ),
      sums.taking_part,
      full_gradient,
    )
    kept = state.statistics
    # With no weight at all there is no mean to take up.
    nobody = tf.equal(sums.weight, 0)
    merged = tf.nest.map_structure(
      lambda old, new: tf.where(nobody, old, new),
      kept,
      self.exchange.merge(kept, cohort),
    )
    return State(state.round + 1, state.hparams, merged)

  def measure(self, sums: Sums, maxima: Maxima) -> structures.Metrics:
    """Makes measurements of the cohort's sums and maxima."""
    measured: structures.Metrics = collections.OrderedDict(clients=sums.clients)
    if isinstance(sums.step_size, step_sizes.StepSums):
      measured['step_size'] = step_sizes.figures(sums.step_size, maxima)
    return measured


def _zero_unless(
  takes_part: tf.Tensor, structure: structures.Tree
) -> structures.Tree:
  return tf.nest.map_structure(
    lambda t: tf.where(takes_part, t, tf.zeros_like(t)), structure
  )
