"""What a client does in a round, and what the server makes of it: TensorFlow.

`client_work` places these functions on clients and server.
"""

import collections
import dataclasses
import functools
from collections.abc import Callable
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

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


@dataclasses.dataclass(frozen=True)
class Trainer:
  """The pieces that a method's client work is made of; see `client_work`."""

  model: local_model.Model
  specs: tuple[tf.TensorSpec, ...]
  optimizer: tff.learning.optimizers.Optimizer
  objective: objectives.Objective
  exchange: exchange_lib.Exchange
  schedule: Optional[Schedule]
  warmup_steps: int
  client_weighting: str
  seed: int
  record_step_sizes: bool = False

  def initial_state(self) -> Any:
    """The server's state: what it sends with the model."""
    hparams = self.optimizer.get_hparams(self.optimizer.initialize(self.specs))
    scheduled = self.schedule is not None or self.warmup_steps
    if scheduled and _RATE not in hparams:
      raise ValueError(
        'A client learning-rate schedule or warm-up needs an optimizer with a '
        f'learning rate; {type(self.optimizer).__name__} has none.'
      )
    return collections.OrderedDict(
      round=tf.constant(0, tf.int32),
      hparams=hparams,
      statistics=self.exchange.initialize(self.specs),
    )

  def train(
    self,
    state: Any,
    weights: Any,
    data: tf.data.Dataset,
    survey: Any = None,
    memory: Any = None,
  ) -> Any:
    """A client's round; called inside the graph of a TFF computation."""
    local = local_model.create(self.model)
    local.check_objective(self.objective)

    @tf.function(autograph=False)
    def traced(
      state: Any, weights: Any, data: Any, survey: Any, memory: Any
    ) -> Any:
      return self._train(local, state, weights, data, survey, memory)

    return traced(state, weights, data, survey, memory)

  def _train(
    self,
    local: local_model.LocalModel,
    state: Any,
    weights: Any,
    data: tf.data.Dataset,
    survey: Any,
    memory: Any,
  ) -> Any:
    start = tuple(tf.nest.flatten(weights.trainable))
    carry = local.begin(weights)
    optimizer_state = self._first_optimizer_state(state, start, survey)
    context = self.exchange.context(state['statistics'], memory, start)
    optimizer_state, data, client_size = self._before_steps(
      state, optimizer_state, data
    )

    def step(so_far: Any, batch: Any) -> Any:
      carry, optimizer_state, steps, num_steps, num_examples = so_far
      carry, optimizer_state, size = self._step(
        local,
        carry,
        optimizer_state,
        batch,
        start,
        context,
        lambda: randomness.step_seed(
          self.seed, state['round'], num_steps, batch
        ),
        client_size,
        num_steps,
      )
      steps = self._count_step(steps, optimizer_state)
      return carry, optimizer_state, steps, num_steps + 1, num_examples + size

    none = tf.constant(0, tf.int32), tf.constant(0, tf.int64)
    carry, optimizer_state, steps, num_steps, num_examples = autograph.fold(
      step, (carry, optimizer_state, step_sizes.start(), *none), data
    )
    done = exchange_lib.Local(
      statistics=state['statistics'],
      memory=memory,
      survey=survey,
      optimizer_state=optimizer_state,
      start=start,
      end=local.trainable(carry),
      num_steps=num_steps,
      full_steps=self._full_steps(num_steps),
      num_examples=num_examples,
      weight=weighting.weight(
        self.client_weighting, num_examples, local, carry
      ),
    )
    return self._finish(local, carry, weights, done, steps)

  def _before_steps(
    self, state: Any, optimizer_state: Any, data: tf.data.Dataset
  ) -> Any:
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
        randomness.draw_seed(self.seed, state['round'], mark),
        num_batches,
      )
      data = data.take(num_batches)
    return optimizer_state, data, client_size

  def _look_at(self, data: tf.data.Dataset) -> Any:
    """A client's examples and batches, and a mark that tells clients apart."""

    def add(so_far: Any, batch: Any) -> Any:
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

  def _first_optimizer_state(self, state: Any, start: Any, survey: Any) -> Any:
    hparams = state['hparams']
    if self.schedule is not None:
      rate = tf.cast(self.schedule(state['round']), tf.float32)
      hparams = collections.OrderedDict(hparams, **{_RATE: rate})
    first = self.optimizer.initialize(self.specs)
    first = self.optimizer.set_hparams(first, hparams)
    # A Python number among the loop's variables would lose its dtype.
    first = tf.nest.map_structure(tf.convert_to_tensor, first)
    return self.exchange.begin(state['statistics'], first, start, survey)

  def _step(
    self,
    local: Any,
    carry: Any,
    optimizer_state: Any,
    batch: Any,
    start: Any,
    context: Any,
    seed: Any,
    client_size: Any,
    num_steps: Any,
  ) -> Any:
    """One batch: evaluate the objective, take the optimizer's step."""
    local.set_seed(seed)
    place = objectives.Place(local.trainable(carry), start, context, batch)
    constants = self.objective.constants(
      place, lambda weights: local.represent_at(carry, weights, batch)
    )

    def term(weights: Any, represent: Any) -> Any:
      here = place._replace(weights=weights, represent=represent)
      return self.objective.term(here, constants)

    before = carry
    carry, evaluated = local.evaluate(before, batch, term)
    after = carry
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
        client_size,
      ),
    )
    if self.warmup_steps:
      optimizer_state = self.optimizer.set_hparams(optimizer_state, hparams)
    carry = local.with_trainable(after, weights)
    return carry, optimizer_state, evaluated.num_examples

  def _full_steps(self, num_steps: Any) -> Any:
    """The sum over local steps of what `_warmed_up` makes of the rate."""
    steps = tf.cast(num_steps, tf.float32)
    if not self.warmup_steps:
      return steps
    rising = tf.minimum(steps, self.warmup_steps)
    return rising * (rising + 1) / (2 * self.warmup_steps) + steps - rising

  def _warmed_up(self, hparams: Any, num_steps: Any) -> Any:
    """Local step k = 1, 2, ... has the learning rate times min(1, k / n)."""
    share = tf.cast(num_steps + 1, tf.float32) / self.warmup_steps
    rate = hparams[_RATE] * tf.minimum(share, 1.0)
    return collections.OrderedDict(hparams, **{_RATE: rate})

  def _count_step(self, steps: Any, optimizer_state: Any) -> Any:
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
    self, local: Any, carry: Any, weights: Any, done: Any, steps: Any
  ) -> Any:
    """What the client sends and keeps."""
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
    output = collections.OrderedDict(
      result=tff.learning.templates.ClientResult(
        update=_zero_unless(takes_part, update),
        update_weight=weight,
      ),
      metrics=local.metrics(carry, discard=tf.logical_not(finite)),
      sums=self._sums(clients, report, weight, takes_part, steps),
      maxima=self._maxima(report, takes_part, steps),
    )
    if self.record_step_sizes:
      output['record'] = step_sizes.record(steps, takes_part)
    if done.memory is not None:
      output['memory'] = tf.nest.map_structure(
        lambda new, old: tf.where(takes_part, new, old),
        remembered,
        done.memory,
      )
    return output

  def _sums(
    self, clients: Any, report: Any, weight: Any, takes_part: Any, steps: Any
  ) -> Any:
    """What the client adds to the cohort's sums."""
    weighted = tf.nest.map_structure(
      lambda t: tf.cast(weight, t.dtype) * t, report.weighted
    )
    sums = collections.OrderedDict(
      clients=clients,
      weight=weight,
      weighted=_zero_unless(takes_part, weighted),
      taking_part=tf.cast(takes_part, tf.float32),
      mean=_zero_unless(takes_part, report.mean),
    )
    if self.has_step_size:
      sums['step_size'] = step_sizes.sums(steps, takes_part)
    return sums

  def _maxima(self, report: Any, takes_part: Any, steps: Any) -> Any:
    """What the client contributes to the cohort's maxima."""
    maxima = collections.OrderedDict(
      (name, tf.where(takes_part, value, value.dtype.min))
      for name, value in report.maximum.items()
    )
    if self.has_step_size:
      maxima.update(step_sizes.maxima(steps, takes_part))
    return maxima

  def next_state(self, state: Any, sums: Any, maxima: Any, survey: Any) -> Any:
    """The server's state after a round."""

    def divide(structure: Any, by: Any) -> Any:
      return tf.nest.map_structure(
        lambda t: tf.math.divide_no_nan(t, tf.cast(by, t.dtype)), structure
      )

    cohort = exchange_lib.Cohort(
      exchange_lib.Report(
        weighted=divide(sums['weighted'], sums['weight']),
        mean=divide(sums['mean'], sums['taking_part']),
        maximum=maxima,
      ),
      sums['taking_part'],
      survey,
    )
    kept = state['statistics']
    # With no weight at all there is no mean to take up.
    nobody = tf.equal(sums['weight'], 0)
    merged = tf.nest.map_structure(
      lambda old, new: tf.where(nobody, old, new),
      kept,
      self.exchange.merge(kept, cohort),
    )
    return collections.OrderedDict(
      round=state['round'] + 1, hparams=state['hparams'], statistics=merged
    )

  def measure(self, sums: Any, maxima: Any) -> Any:
    """The measurements that come of the cohort's sums and maxima."""
    measured = collections.OrderedDict(clients=sums['clients'])
    if self.has_step_size:
      measured['step_size'] = step_sizes.figures(sums['step_size'], maxima)
    return measured


def _zero_unless(takes_part: tf.Tensor, structure: Any) -> Any:
  return tf.nest.map_structure(
    lambda t: tf.where(takes_part, t, tf.zeros_like(t)), structure
  )
