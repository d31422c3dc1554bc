"""Aggregators of clients' updates, made of `mechanism.Aggregation`."""

import collections
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple
from typing import Optional
from typing import TypeAlias
from typing import Union

import dp_accounting
import tensorflow as tf
import tensorflow_federated as tff
import tensorflow_privacy as tfp

from tff_adaptive import structures
from tff_adaptive.privacy import mechanism as privacy
from tff_adaptive.processes import encoded_sum
from tff_adaptive.processes import encodings

# The clipping norm, `clip`, and the rounds completed, `round`: scalars.
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
    return collections.OrderedDict(
      clip=tf.constant(self._settings.clip_norm, tf.float32),
      round=tf.constant(0, tf.int32),
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
    settings = self._settings
    clip = global_state['clip']
    seed = tf.random.experimental.stateless_fold_in(
      tf.constant([self._seed, 0x0D9], tf.int32), global_state['round']
    )

    def noise(
      index: int, shape: Union[tf.Tensor, Sequence[int]], stddev: tf.Tensor
    ) -> tf.Tensor:
      own = tf.random.experimental.stateless_fold_in(seed, index)
      return stddev * tf.random.stateless_normal(shape, own)

    clients = float(settings.dp_clients_per_round or 0)
    total = sample_state
    if isinstance(sample_state, _Counted):
      total = sample_state.sum
    leaves = tf.nest.flatten(total)
    stddev = settings.sum_noise_multiplier * clip
    mean = [
      (x + tf.cast(noise(i, tf.shape(x), stddev), x.dtype))
      / tf.cast(clients, x.dtype)
      for i, x in enumerate(leaves)
    ]
    if isinstance(sample_state, _Counted):
      count = sample_state.unclipped + noise(
        len(leaves), [], settings.count_stddev
      )
      share = count / clients + 0.5
      clip = clip * tf.exp(
        -settings.dp_clip_learning_rate * (share - settings.dp_clip_quantile)
      )
    return (
      tf.nest.pack_sequence_as(total, mean),
      collections.OrderedDict(clip=clip, round=global_state['round'] + 1),
      dp_accounting.GaussianDpEvent(
        tf.constant(settings.dp_noise_multiplier or 0.0, tf.float32)
      ),
    )

  def derive_metrics(self, global_state: GlobalState) -> structures.Metrics:
    # A fixed norm is among the settings, not among the measurements.
    if not self._settings.dp_adaptive_clipping:
      return collections.OrderedDict()
    return collections.OrderedDict(clip_norm=global_state['clip'])


def build_aggregator(
  settings: privacy.Aggregation,
  seed: int = 0,
  encoding: Optional[encodings.Encoding] = None,
) -> tff.aggregators.WeightedAggregationFactory:
  """Builds the aggregator of clients' updates.

  Args:
    settings: What `privacy.check` returned.
    seed: Of the noise, where there is noise.
    encoding: Compressed form of updates for a plain mean. Updates that are
      clipped, zeroed or summed securely are sent uncompressed.

  Returns:
    A weighted mean; under differential privacy weights are ignored and all
    clients count alike.
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
  robust = settings.aggregator_zeroing or settings.aggregator_clipping
  if encoding is not None and settings.aggregator == 'mean' and not robust:
    return tff.aggregators.MeanFactory(encoded_sum.EncodedSum(encoding))
  build: Callable[..., tff.aggregators.WeightedAggregationFactory] = {
    'mean': tff.learning.robust_aggregator,
    'compression': tff.learning.compression_aggregator,
    'secure': tff.learning.secure_aggregator,
  }[settings.aggregator]
  return build(
    zeroing=settings.aggregator_zeroing,
    clipping=settings.aggregator_clipping,
    weighted=True,
  )
