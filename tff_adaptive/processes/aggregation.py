"""Aggregators of clients' updates, made of `mechanism.Aggregation`."""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, TypeAlias, Union

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_adaptive import structures
from tff_adaptive.privacy import mechanism as privacy
from tff_adaptive.processes import encodings
from tff_adaptive.processes import factories

# Scalars: the clipping norm, `clip`, the rounds completed, `round`, and the
# query's numbers, which are no constants of the graph, so that processes that
# differ in them share it.
GlobalState: TypeAlias = collections.OrderedDict[str, tf.Tensor]


class _Counted(NamedTuple):
  """A clipped record, and whether clipping left it as it was.

  Attributes:
    sum: The record, or the sum of such.
    unclipped: 1/2 for a record that was within the norm, else -1/2.
  """

  sum: structures.Structure
  unclipped: tf.Tensor


class ClippedSum(tfp.SumAggregationDPQuery):
  """A clipped mean with Gaussian noise that a seed decides.

  Same mechanism as `DifferentiallyPrivateFactory.gaussian_fixed` and
  `gaussian_adaptive`, which draw fresh noise at every call, so that no run can
  be repeated or resumed exactly. Here the noise is a function of (seed, round,
  tensor).

  Anybody who knows the seed can subtract the noise: keep the seed of a run
  secret if its model is published.
  """

  def __init__(self, settings: privacy.Aggregation, seed: int):
    """Initializes the query.

    Args:
      settings: `private`, with all of `clip_norm`, `dp_clients_per_round`.
      seed: Any integer, of which 31 bits are used.
    """
    self._settings = settings
    self._seed = seed & 0x7FFFFFFF

  def initial_global_state(self) -> GlobalState:
    settings = self._settings
    numbers = dict(
      clip=settings.clip_norm,
      noise_multiplier=settings.dp_noise_multiplier or 0.0,
      sum_noise_multiplier=settings.sum_noise_multiplier,
      clients=settings.dp_clients_per_round or 0,
    )
    if settings.dp_adaptive_clipping:
      numbers |= dict(
        count_stddev=settings.count_stddev,
        quantile=settings.dp_clip_quantile,
        rate=settings.dp_clip_learning_rate,
      )
    return collections.OrderedDict(
      {name: tf.constant(n, tf.float32) for name, n in numbers.items()},
      round=tf.constant(0, tf.int32),
      seed=tf.constant(self._seed, tf.int32),
    )

  def derive_sample_params(self, global_state: GlobalState) -> tf.Tensor:
    return global_state['clip']

  def initial_sample_state(
    self, template: structures.Structure
  ) -> structures.Structure:
    zeros = tf.nest.map_structure(
      lambda t: tf.zeros(t.shape, t.dtype), template
    )
    return self._sample(zeros, tf.constant(0.0))

  def _sample(
    self, record: structures.Structure, unclipped: tf.Tensor
  ) -> structures.Structure:
    if not self._settings.dp_adaptive_clipping:
      return record
    return _Counted(record, unclipped)

  def preprocess_record(
    self, params: tf.Tensor, record: structures.Structure
  ) -> structures.Structure:
    # Not tf.clip_by_global_norm, which makes NaN of a finite record whose
    # norm overflows: such a record must not reach the others' sum.
    leaves = tf.nest.flatten(record)
    largest = tf.reduce_max(
      tf.stack([tf.reduce_max(tf.abs(tf.cast(x, tf.float32))) for x in leaves])
    )
    shrunk = [
      tf.math.divide_no_nan(tf.cast(x, tf.float32), largest) for x in leaves
    ]
    shrunk_norm = tf.linalg.global_norm(shrunk)
    norm = shrunk_norm * largest  # May be infinite.
    scale = tf.math.divide_no_nan(params, shrunk_norm)
    clipped = [
      tf.where(norm <= params, x, tf.cast(scale * y, x.dtype))
      for x, y in zip(leaves, shrunk)
    ]
    # Counted from -1/2 to 1/2: a client that comes or goes moves it by 1/2.
    unclipped = tf.cast(norm <= params, tf.float32) - 0.5
    return self._sample(tf.nest.pack_sequence_as(record, clipped), unclipped)

  def get_noised_result(
    self, sample_state: structures.Structure, global_state: GlobalState
  ) -> tuple[structures.Structure, GlobalState, dp_accounting.DpEvent]:
    clip, clients = global_state['clip'], global_state['clients']
    seed = tf.random.experimental.stateless_fold_in(
      tf.stack([global_state['seed'], 0x0D9]), global_state['round']
    )

    def noise(
      index: int, shape: Union[tf.Tensor, Sequence[int]], stddev: tf.Tensor
    ) -> tf.Tensor:
      own = tf.random.experimental.stateless_fold_in(seed, index)
      return stddev * tf.random.stateless_normal(shape, own)

    total = sample_state
    if isinstance(sample_state, _Counted):
      total = sample_state.sum
    leaves = tf.nest.flatten(total)
    stddev = global_state['sum_noise_multiplier'] * clip
    mean = [
      (x + tf.cast(noise(i, tf.shape(x), stddev), x.dtype))
      / tf.cast(clients, x.dtype)
      for i, x in enumerate(leaves)
    ]
    if isinstance(sample_state, _Counted):
      count = sample_state.unclipped + noise(
        len(leaves), [], global_state['count_stddev']
      )
      share = count / clients + 0.5
      clip = clip * tf.exp(
        -global_state['rate'] * (share - global_state['quantile'])
      )
    return (
      tf.nest.pack_sequence_as(total, mean),
      collections.OrderedDict(
        global_state, clip=clip, round=global_state['round'] + 1
      ),
      dp_accounting.GaussianDpEvent(global_state['noise_multiplier']),
    )

  def derive_metrics(self, global_state: GlobalState) -> structures.Metrics:
    # A fixed norm is among the settings, not among the measurements.
    if not self._settings.dp_adaptive_clipping:
      return collections.OrderedDict()
    return collections.OrderedDict(clip_norm=global_state['clip'])


def first_aggregator_state(
  template: Any, settings: privacy.Aggregation, seed: int = 0
) -> Any:
  """Builds the initial state of an aggregator for numbers of one's own.

  Args:
    template: The initial state of an aggregator of the same graph.
    settings, seed: As `build_aggregator` takes them.
  """
  if not settings.private:
    return template
  numbers = ClippedSum(settings, seed).initial_global_state()
  return template._replace(
    query_state=collections.OrderedDict(
      (name, numbers[name].numpy()) for name in template.query_state
    )
  )


def build_aggregator(
  settings: privacy.Aggregation,
  seed: int = 0,
  encoding: Optional[encodings.Encoding] = None,
) -> tff.aggregators.WeightedAggregationFactory:
  """Builds the aggregator of clients' updates.

  Args:
    settings: What `privacy.check` returned.
    seed: Of the noise, where there is noise.
    encoding: Compressed form of updates for a plain mean. Other aggregators
      get updates uncompressed.

  Returns:
    A weighted mean; under differential privacy, and for a median or a trimmed
    mean, weights are ignored and all clients count alike.
  """
  if settings.private:
    records = None
    if settings.aggregator == 'secure':
      # No coordinate of a clipped update exceeds the norm. What secure
      # summation rounds is a 2^-32th of it.
      records = tff.aggregators.SecureSumFactory(settings.clip_norm)
    return tff.aggregators.as_weighted_aggregator(
      tff.aggregators.DifferentiallyPrivateFactory(
        ClippedSum(settings, seed), records
      )
    )
  if settings.trimmed is not None:
    return factories.TrimmedMean(settings.trimmed)
  zeroing, clipping = settings.zeroing, settings.clipping
  if encoding is not None and settings.aggregator == 'mean':
    if not zeroing and not clipping:
      return tff.aggregators.MeanFactory(factories.EncodedSum(encoding))
  build: Callable[..., tff.aggregators.WeightedAggregationFactory] = {
    'mean': tff.learning.robust_aggregator,
    'robust': tff.learning.robust_aggregator,
    'compression': tff.learning.compression_aggregator,
    'secure': tff.learning.secure_aggregator,
  }[settings.aggregator]
  return build(zeroing=zeroing, clipping=clipping, weighted=True)
