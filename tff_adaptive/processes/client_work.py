"""The one client work: any optimizer, any objective, any exchange.

`tff.learning.templates.build_model_delta_client_work` knows optimizers that
look at nothing but the gradient. This one also serves rules that need the loss
or a second gradient (`optimizers.protocol`), objectives with added terms
(`objectives`), methods that exchange statistics (`exchange`), learning rates
that depend on the round, and it reports the step sizes that were used and the
clients that had to be left out.
"""

import collections
import dataclasses
from typing import Any, Callable, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.optimizers import protocol
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import local_model
from tff_adaptive.processes import objectives
from tff_adaptive.processes import randomness
from tff_adaptive.processes import step_sizes

# Maps the number of completed rounds (int32 scalar) to a learning rate.
Schedule = Callable[[tf.Tensor], tf.Tensor]

_RATE = tff.learning.optimizers.LEARNING_RATE_KEY


@dataclasses.dataclass(frozen=True)
class _Trainer:
  """What a client does, given the pieces that the method is made of."""

  model: local_model.Model
  specs: tuple[tf.TensorSpec, ...]
  optimizer: tff.learning.optimizers.Optimizer
  objective: objectives.Objective
  exchange: exchange_lib.Exchange
  schedule: Optional[Schedule]
  client_weighting: tff.learning.ClientWeighting
  seed: int

  def initial_state(self) -> Any:
    """The server's state: what it sends with the model."""
    hparams = self.optimizer.get_hparams(self.optimizer.initialize(self.specs))
    if self.schedule is not None and _RATE not in hparams:
      raise ValueError(
          'A client learning-rate schedule needs an optimizer with a learning '
          f'rate; {type(self.optimizer).__name__} has none.'
      )
    return collections.OrderedDict(
        round=tf.constant(0, tf.int32),
        hparams=hparams,
        statistics=self.exchange.initialize(self.specs),
    )

  def train(self, state: Any, weights: Any, data: tf.data.Dataset) -> Any:
    """A client's round; called inside the graph of a TFF computation."""
    local = local_model.create(self.model)

    @tf.function
    def loop(state, weights, data):
      start = tuple(tf.nest.flatten(weights.trainable))
      carry = local.begin(weights)
      optimizer_state = self._first_optimizer_state(state)
      client_size = None
      if self._needs_client_size:
        client_size = tf.constant(0, tf.int64)
        for batch in iter(data):
          client_size += _batch_size(batch)
      num_steps = tf.constant(0, tf.int32)
      num_examples = tf.constant(0, tf.int64)
      steps = step_sizes.start()
      for batch in iter(data):
        seed = lambda batch=batch, step=num_steps: randomness.step_seed(
            self.seed, state['round'], step, batch
        )
        carry, optimizer_state, size = self._step(
            local, carry, optimizer_state, batch, start, seed, client_size
        )
        steps = self._count_step(steps, optimizer_state)
        num_steps += 1
        num_examples += size
      return self._finish(
          local, carry, optimizer_state, weights, num_steps, num_examples, steps
      )

    return loop(state, weights, data)

  @property
  def _needs_client_size(self) -> bool:
    return (
        isinstance(self.optimizer, protocol.LocalOptimizer)
        and self.optimizer.needs_client_size
    )

  def _first_optimizer_state(self, state):
    hparams = state['hparams']
    if self.schedule is not None:
      rate = tf.cast(self.schedule(state['round']), tf.float32)
      hparams = collections.OrderedDict(hparams, **{_RATE: rate})
    first = self.optimizer.initialize(self.specs)
    first = self.optimizer.set_hparams(first, hparams)
    # A Python number among the loop's variables would lose its dtype.
    first = tf.nest.map_structure(tf.convert_to_tensor, first)
    return self.exchange.begin(state['statistics'], first)

  def _step(
      self, local, carry, optimizer_state, batch, start, seed, client_size
  ):
    term = lambda weights: self.objective.term(weights, start)
    carry, evaluated = local.evaluate(carry, batch, term, seed)
    here = carry
    optimizer_state, weights = protocol.take_step(
        self.optimizer,
        optimizer_state,
        local.trainable(here),
        evaluated.gradients,
        protocol.Batch(
            evaluated.loss,
            lambda weights: local.gradients_at(here, weights, batch, term),
            evaluated.num_examples,
            client_size,
        ),
    )
    carry = local.with_trainable(carry, weights)
    return carry, optimizer_state, evaluated.num_examples

  def _count_step(self, steps, optimizer_state):
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
      self, local, carry, optimizer_state, weights, num_steps, num_examples,
      steps,
  ):
    end = local.trainable(carry)
    update = tf.nest.map_structure(
        tf.subtract,
        weights.trainable,
        tf.nest.pack_sequence_as(weights.trainable, end),
    )
    # One test for all that a client sends: a step size or an accumulator can
    # overflow while the weights have not yet.
    finite = _all_finite((update, optimizer_state))
    empty = tf.equal(num_examples, 0)
    takes_part = tf.logical_and(finite, tf.logical_not(empty))
    if self.client_weighting == tff.learning.ClientWeighting.NUM_EXAMPLES:
      weight = tf.cast(num_examples, tf.float32)
    else:
      weight = tf.constant(1.0)
    done = exchange_lib.Local(
        optimizer_state, num_steps, num_examples, weight
    )
    weight = tf.where(takes_part, self.exchange.weight(done), 0.0)
    report = self.exchange.report(done)
    none_if_out = lambda tensor: tf.where(
        takes_part, tensor, tf.zeros_like(tensor)
    )
    sums = collections.OrderedDict(
        clients=collections.OrderedDict(
            count=tf.constant(1, tf.int32),
            empty=tf.cast(empty, tf.int32),
            rejected=tf.cast(tf.logical_not(finite), tf.int32),
            steps=num_steps,
        ),
        weight=weight,
        weighted=tf.nest.map_structure(
            lambda t: none_if_out(tf.cast(weight, t.dtype) * t), report.weighted
        ),
        taking_part=tf.cast(takes_part, tf.float32),
        mean=tf.nest.map_structure(none_if_out, report.mean),
    )
    maxima = collections.OrderedDict(
        (name, tf.where(takes_part, value, value.dtype.min))
        for name, value in report.maximum.items()
    )
    if self.has_step_size:
      sums['step_size'] = step_sizes.sums(steps, takes_part)
      maxima.update(step_sizes.maxima(steps, takes_part))
    return collections.OrderedDict(
        result=tff.learning.templates.ClientResult(
            update=tf.nest.map_structure(none_if_out, update),
            update_weight=weight,
        ),
        metrics=local.metrics(carry, discard=tf.logical_not(finite)),
        sums=sums,
        maxima=maxima,
    )

  def next_state(self, state: Any, sums: Any, maxima: Any) -> Any:
    """The server's state after a round."""
    taking_part = sums['taking_part']
    report = exchange_lib.Report(
        tf.nest.map_structure(
            lambda t: tf.math.divide_no_nan(t, tf.cast(sums['weight'], t.dtype)),
            sums['weighted'],
        ),
        tf.nest.map_structure(
            lambda t: tf.math.divide_no_nan(t, tf.cast(taking_part, t.dtype)),
            sums['mean'],
        ),
        maxima,
    )
    kept = state['statistics']
    # With no weight at all there is no mean to take up.
    nobody = tf.equal(sums['weight'], 0)
    merged = tf.nest.map_structure(
        lambda old, new: tf.where(nobody, old, new),
        kept,
        self.exchange.merge(kept, report),
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


def _batch_size(batch: Any) -> tf.Tensor:
  """Examples in a batch, int64 scalar."""
  inputs = batch['x'] if isinstance(batch, collections.abc.Mapping) else batch[0]
  first = tf.nest.flatten(inputs)[0]
  return tf.shape(first, out_type=tf.int64)[0]


def _all_finite(structure: Any) -> tf.Tensor:
  """Whether no floating-point leaf has a NaN or an infinity, bool scalar."""
  checks = [
      tf.reduce_all(tf.math.is_finite(leaf))
      for leaf in tf.nest.flatten(structure)
      if leaf.dtype.is_floating
  ]
  return tf.reduce_all(tf.stack(checks))


def build_client_work(
    model: local_model.Model,
    optimizer: tff.learning.optimizers.Optimizer,
    *,
    client_weighting: tff.learning.ClientWeighting = (
        tff.learning.ClientWeighting.NUM_EXAMPLES
    ),
    objective: Optional[objectives.Objective] = None,
    exchange: Optional[exchange_lib.Exchange] = None,
    schedule: Optional[Schedule] = None,
    seed: int = 0,
    metrics_aggregator: Optional[Any] = None,
) -> tff.learning.templates.ClientWorkProcess:
  """Builds the work that a client does in a round.

  The client starts its optimizer afresh, takes one step per batch of the data
  that it is given (epochs and batches are the data's business), and sends
  x_t - x_K with a weight. A client whose update is not finite, or that has no
  data, sends zeros with weight 0; the metrics count both.

  Args:
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a `FunctionalModel`.
    optimizer: The client optimizer, TFF's or this package's.
    client_weighting: Weight by examples iterated, or all alike.
    objective: What is minimised; the model's loss alone unless given.
    exchange: What travels beside the model; nothing unless given.
    schedule: Learning rate by completed rounds, in place of the optimizer's own
      rate.
    seed: Seed of what is random inside a round (dropout).
    metrics_aggregator: As tff.learning's builders take it;
      `tff.learning.metrics.sum_then_finalize` unless given.

  Returns:
    A `tff.learning.templates.ClientWorkProcess`. Its measurements are `train`
    (the model's metrics), `clients` (`count`, `empty`, `rejected`, `steps`) and,
    where the optimizer has a step size of its own, `step_size`.

  Raises:
    TypeError: If model or optimizer are not of the kinds above.
    ValueError: If a schedule is given for an optimizer without learning rate.
  """
  if not isinstance(optimizer, tff.learning.optimizers.Optimizer):
    raise TypeError(
        'The client optimizer must be a tff.learning.optimizers.Optimizer, got '
        f'{optimizer!r}.'
    )
  facts = local_model.facts(model)
  trainer = _Trainer(
      model,
      tuple(
          tf.nest.flatten(
              tff.types.type_to_tf_tensor_specs(facts.weights_type.trainable)
          )
      ),
      optimizer,
      objective or objectives.Plain(),
      exchange or exchange_lib.NoExchange(),
      schedule,
      client_weighting,
      seed,
  )
  aggregate_metrics = (
      metrics_aggregator or tff.learning.metrics.sum_then_finalize
  )(facts.metric_finalizers)

  initial_state = tff.tensorflow.computation(trainer.initial_state)
  state_type = initial_state.type_signature.result
  train = tff.tensorflow.computation(
      trainer.train, [state_type, facts.weights_type, facts.data_type]
  )
  done_type = train.type_signature.result
  totals_types = [done_type['sums'], done_type['maxima']]
  next_state = tff.tensorflow.computation(
      trainer.next_state, [state_type, *totals_types]
  )
  measure = tff.tensorflow.computation(trainer.measure, totals_types)

  @tff.federated_computation
  def initialize():
    return tff.federated_eval(initial_state, tff.SERVER)

  @tff.federated_computation(
      tff.FederatedType(state_type, tff.SERVER),
      tff.FederatedType(facts.weights_type, tff.CLIENTS),
      tff.FederatedType(facts.data_type, tff.CLIENTS),
  )
  def next_fn(state, weights, data):
    done = tff.federated_map(
        train, (tff.federated_broadcast(state), weights, data)
    )
    sums = tff.federated_sum(done['sums'])
    maxima = tff.federated_max(done['maxima'])
    measured = tff.federated_map(measure, (sums, maxima))
    measurements = collections.OrderedDict(
        train=aggregate_metrics(done['metrics'])
    )
    for name in tff.structure.name_list(measure.type_signature.result):
      measurements[name] = measured[name]
    return tff.templates.MeasuredProcessOutput(
        tff.federated_map(next_state, (state, sums, maxima)),
        done['result'],
        tff.federated_zip(measurements),
    )

  hparams_type = state_type['hparams']

  @tff.tensorflow.computation(state_type)
  def get_hparams(state):
    return state['hparams']

  @tff.tensorflow.computation(state_type, hparams_type)
  def set_hparams(state, hparams):
    return collections.OrderedDict(state, hparams=hparams)

  return tff.learning.templates.ClientWorkProcess(
      initialize, next_fn, get_hparams_fn=get_hparams, set_hparams_fn=set_hparams
  )
