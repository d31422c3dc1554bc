"""Training on pooled data: the baseline of Reddi et al., Table 11.

The loop, the task, its model, batches, metrics and evaluation are those of a
federated run. A round is as many examples as a cohort has on average, so that
it costs the same arithmetic as a federated round and curves are comparable by
round. The pooled examples are shuffled anew for every pass over them, and
rounds divide the passes.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive import structures
from tff_adaptive import tff_internals
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training import seeds as randomness
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.loop import rounds as rounds_lib
from tff_adaptive.processes import randomness as in_round
from tff_adaptive.processes.local import local_model


class PooledDatasets(data.ClientDatasets):
  """All clients' examples pooled into one dataset."""

  def __init__(
    self,
    datasets: tff.simulation.baselines.BaselineTaskDatasets,
    *,
    seed: int,
    cache_bytes: int,
    clients_per_round: int,
    epochs: int = 1,
    max_elements: Optional[int] = None,
  ):
    """Reads all examples into memory.

    Args:
      datasets: The task's datasets, created with `epochs=1` and
        `max_elements=None`.
      seed: The run's seed.
      cache_bytes: Memory for the examples, in bytes.
      clients_per_round: Number of clients in an equivalent federated round.
      epochs: Epochs of such a client.
      max_elements: Maximum number of examples of such a client per round.

    Raises:
      SettingsError: If the examples exceed `cache_bytes`, or differ in shape.
    """
    super().__init__(datasets, seed=seed, cache_bytes=0)
    if not self._tensors:
      raise errors.SettingsError(
        'Training on pooled data needs examples of equal shape, which this '
        'task does not have; choose an --algorithm with clients.'
      )
    parts, sizes, held = [], [], 0
    for client in self.client_ids:
      with self._reading(client):
        raw = self._raw(client)
      held += data.nbytes(raw)
      if held > cache_bytes:
        raise errors.SettingsError(
          'Training on pooled data holds all examples in memory, and they '
          f'exceed --cache_mib={cache_bytes >> 20}; raise it.'
        )
      parts.append(raw)
      sizes.append(int(tf.shape(tf.nest.flatten(raw)[0])[0]))
    # The base class, with a cache of 0 bytes, does not cache them again.
    self._pool = tf.nest.map_structure(lambda *t: tf.concat(t, axis=0), *parts)
    self._count = sum(sizes)
    each = [s * epochs for s in sizes]
    if max_elements is not None:
      each = [min(s, max_elements) for s in each]
    self.examples_per_round = max(
      1, round(clients_per_round * sum(each) / len(each))
    )
    self._order: tuple[int, np.ndarray] = (-1, np.zeros([0], np.int64))

  def _permutation(self, epoch: int) -> np.ndarray:
    if self._order[0] != epoch:
      seed = randomness.seed_32(self._seed, 'pooled order', epoch)
      order = np.random.default_rng(seed).permutation(self._count)
      self._order = (epoch, order)
    return self._order[1]

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data.CohortData:
    """Returns the round's batches, a function of seed and round only."""
    start = (round_number - 1) * self.examples_per_round
    end = start + self.examples_per_round
    places = []
    while start < end:
      epoch, offset = divmod(start, self._count)
      take = min(end - start, self._count - offset)
      places.append(self._permutation(epoch)[offset : offset + take])
      start += take
    chosen = np.concatenate(places)
    chunk = tf.nest.map_structure(lambda t: tf.gather(t, chosen), self._pool)
    seed = randomness.seed_pair(self._seed, 'pooled data', round_number)
    try:
      return data.CohortData([self._prepare(chunk, seed)], {})
    # A task's own preprocessing may raise anything.
    except Exception as e:  # pylint: disable=broad-exception-caught
      raise errors.RunError(
        f'The pooled data cannot be read: {errors.reason(e)}.'
      ) from e


class CentralizedRounds(rounds_lib.Rounds):
  """Rounds of centralized training, in which nothing is sent."""

  pooled = True

  def __init__(
    self,
    model_fn: Callable[[], tff.learning.models.VariableModel],
    *,
    optimizer: tff.learning.optimizers.Optimizer,
    initial_weights: tff.learning.models.ModelWeights,
    seed: int,
  ):
    """Builds the model.

    Args:
      model_fn: Returns a `tff.learning.models.VariableModel`.
      optimizer: The optimizer, applied once per batch.
      initial_weights: The initial model weights, as arrays.
      seed: Seed of dropout.
    """
    self._model = model_fn()
    self._weights = tff.learning.models.ModelWeights.from_model(self._model)
    initial_weights.assign_weights_to(self._model)
    self._optimizer = optimizer
    self._seed = seed
    self._step_seed = in_round.seeded(self._model).seed
    self._metrics = tff_internals.eager_metrics(self._model)
    # Tuples, as AutoGraph would stack a list carried by a loop to one tensor.
    specs = tuple(
      tf.TensorSpec(v.shape, v.dtype) for v in self._weights.trainable
    )
    # Some optimizers' initial states have Python numbers, which become tensors
    # in the first round; checkpoints need one structure throughout.
    self._optimizer_state = tf.nest.map_structure(
      tf.convert_to_tensor, optimizer.initialize(specs)
    )
    self._done = 0
    self._train = tf.function(self._train_on)

  def _train_on(
    self,
    dataset: tf.data.Dataset,
    optimizer_state: structures.OptimizerState,
    round_number: tf.Tensor,
  ) -> tuple[structures.OptimizerState, tf.Tensor]:
    scale = local_model.loss_scale(self._model)
    step = tf.constant(0, tf.int32)
    moved = tf.constant(True)
    for batch in dataset:
      if self._step_seed is not None:
        self._step_seed.assign(
          in_round.step_seed(
            self._seed, round_number, step, in_round.fingerprint(batch)
          )
        )
      with tf.GradientTape() as tape:
        output = self._model.forward_pass(batch, training=True)
        scaled = output.loss * scale
      weights = tuple(self._weights.trainable)
      gradients = tape.gradient(
        scaled,
        weights,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
      )
      gradients = local_model.dense(gradients, weights, scale)
      values = tf.nest.map_structure(lambda v: v.read_value(), weights)
      optimizer_state, values = self._optimizer.next(
        optimizer_state, values, gradients
      )
      tf.nest.map_structure(lambda v, x: v.assign(x), weights, values)
      finite = [tf.reduce_all(tf.math.is_finite(v)) for v in values]
      moved = moved & tf.reduce_all(tf.stack(finite))
      step += 1
    return optimizer_state, moved

  def run(
    self, cohort: Sequence[str], datasets: Sequence[tf.data.Dataset]
  ) -> rounds_lib.Columns:
    [dataset] = datasets
    self._model.reset_metrics()
    before = self.model_weights().trainable
    state, finite = self._train(
      dataset, self._optimizer_state, tf.constant(self._done, tf.int32)
    )
    self._optimizer_state = state
    self._done += 1
    columns = collections.OrderedDict(
      (f'train/{name}', value)
      for name, value in metric_names.scalars(self._metrics()).items()
    )
    moved = [
      np.sum(np.square(a - b, dtype=np.float64))
      for a, b in zip(self.model_weights().trainable, before, strict=True)
    ]
    columns['update/norm'] = np.sqrt(np.sum(moved))
    columns['update/non_finite'] = np.int32(not bool(finite))
    return columns

  def model_weights(self) -> tff.learning.models.ModelWeights:
    return tf.nest.map_structure(lambda v: v.numpy(), self._weights)

  @property
  def program_state(self) -> Any:
    return collections.OrderedDict(
      weights=self.model_weights(),
      optimizer=tf.nest.map_structure(np.asarray, self._optimizer_state),
      rounds=np.int32(self._done),
    )

  def restore(self, program_state: Any) -> None:
    program_state['weights'].assign_weights_to(self._model)
    self._optimizer_state = tf.nest.map_structure(
      tf.convert_to_tensor, program_state['optimizer']
    )
    self._done = int(program_state['rounds'])
