"""Client drift: disagreement of the clients' updates in a round.

With Delta_i the update that client i sends, p_i its share of the weights, S the
clients that count and Delta the aggregated update:

  diversity        sum p_i^2 |Delta_i|^2 / |Delta|^2
  disagreement     sum p_i |Delta_i|^2 / |Delta|^2 - 1
  cosine           sum p_i cos(Delta_i, Delta)
  pairwise_cosine  the plain mean of cos(Delta_i, Delta_j) over pairs
  turn             cos(Delta, the last Delta)
  norm             sum p_i |Delta_i|

With equal weights, diversity is Yin et al.'s gradient diversity (arXiv
1706.05699), and FedExP's step (arXiv 2301.09604), before its epsilon and its
maximum, is (1 + disagreement) / 2. The cosine of a zero update is 0. Undefined
figures are NaN: all of them without clients, `pairwise_cosine` with one client,
`turn` in the first round.

Two of these need the sum of the clients' directions, as large as the model:
available in simulation only, and not counted as traffic.
"""

import collections
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.optimizers import tree

# The name under which values travel that only a simulation collects.
SIMULATED = 'simulated'


class MeasuringDrift(tff.aggregators.WeightedAggregationFactory):
  """An aggregator that also measures client drift.

  Attributes:
    aggregation: The aggregation of updates.
  """

  def __init__(self, aggregation: tff.aggregators.WeightedAggregationFactory):
    """Takes the aggregation of updates."""
    self.aggregation = aggregation

  def create(
    self, value_type: tff.Type, weight_type: tff.Type
  ) -> tff.templates.AggregationProcess:
    inner = self.aggregation.create(value_type, weight_type)

    @tff.tensorflow.computation
    def nothing() -> structures.Structure:
      specs = tff.types.type_to_tf_tensor_specs(value_type)
      return tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)

    @tff.federated_computation
    def initialize() -> structures.Placed:
      return tff.federated_zip(
        collections.OrderedDict(
          aggregation=inner.initialize(),
          last=tff.federated_eval(nothing, tff.SERVER),
        )
      )

    of_client = tff.tensorflow.computation(
      _of_client, [value_type, weight_type]
    )
    figures = tff.tensorflow.computation(
      _figures, [of_client.type_signature.result, value_type, value_type]
    )

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(
      state: structures.Placed,
      value: structures.Placed,
      weight: structures.Placed,
    ) -> tff.templates.MeasuredProcessOutput:
      sums = tff.federated_sum(tff.federated_map(of_client, (value, weight)))
      mean = inner.next(state['aggregation'], value, weight)
      measured = tff.federated_map(figures, (sums, mean.result, state['last']))
      return tff.templates.MeasuredProcessOutput(
        tff.federated_zip(
          collections.OrderedDict(aggregation=mean.state, last=measured['last'])
        ),
        mean.result,
        tff.federated_zip(
          collections.OrderedDict(
            aggregation=mean.measurements, drift=measured['figures']
          )
        ),
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def _of_client(
  update: structures.Structure, weight: tf.Tensor
) -> collections.OrderedDict[str, Any]:
  """Computes a client's contribution to the cohort's sums."""
  weight = tf.cast(weight, tf.float32)
  counts = tf.cast(weight > 0, tf.float32)
  norm = tree.norm(update)
  direction = tf.nest.map_structure(
    lambda u: counts * tf.math.divide_no_nan(tf.cast(u, tf.float32), norm),
    update,
  )
  return collections.OrderedDict(
    {
      SIMULATED: collections.OrderedDict(
        count=counts,
        moving=counts * tf.cast(norm > 0, tf.float32),
        weight=weight,
        norm=weight * norm,
        square=weight * norm**2,
        weighted_square=(weight * norm) ** 2,
        directions=direction,
        weighted_directions=tf.nest.map_structure(
          lambda d: weight * d, direction
        ),
      )
    }
  )


def _figures(
  sums: collections.OrderedDict[str, Any],
  update: structures.Structure,
  last: structures.Structure,
) -> collections.OrderedDict[str, Any]:
  """Computes the drift figures, and the update to compare with next round."""
  sums = sums[SIMULATED]
  count, weight = sums['count'], sums['weight']
  norm = tree.norm(update)
  square = norm**2
  pairs = count * (count - 1)
  alike = tree.squared_norm(sums['directions']) - sums['moving']
  counted = tf.logical_and(count > 0, square > 0)
  moved = tf.logical_and(counted, tree.all_finite(update))
  last_norm = tree.norm(last)
  nan = tf.constant(float('nan'))

  def where(known: tf.Tensor, value: tf.Tensor) -> tf.Tensor:
    return tf.where(known, value, nan)

  figures = collections.OrderedDict(
    diversity=where(moved, sums['weighted_square'] / weight**2 / square),
    disagreement=where(moved, sums['square'] / weight / square - 1),
    cosine=where(
      moved, tree.dot(sums['weighted_directions'], update) / (weight * norm)
    ),
    pairwise_cosine=where(pairs > 0, alike / pairs),
    turn=where(
      tf.logical_and(moved, last_norm > 0),
      tree.dot(update, last) / (norm * last_norm),
    ),
    norm=where(count > 0, sums['norm'] / weight),
  )
  last = tf.nest.map_structure(
    lambda new, old: tf.where(moved, new, old), update, last
  )
  return collections.OrderedDict(figures=figures, last=last)


def spread(
  state: structures.FlatWeights, takes_part: tf.Tensor
) -> collections.OrderedDict[str, Any]:
  """Computes a client's contribution to `spread_of`."""
  kept = tf.nest.map_structure(
    lambda t: tf.where(takes_part, tf.cast(t, tf.float32), 0.0), tuple(state)
  )
  return collections.OrderedDict(
    {
      SIMULATED: collections.OrderedDict(
        state=kept, square=tree.squared_norm(kept)
      )
    }
  )


def spread_of(
  sums: collections.OrderedDict[str, Any], count: tf.Tensor
) -> tf.Tensor:
  """Computes the mean of |Theta_i - mean Theta|^2: FedPAC's Delta_D.

  arXiv 2602.19271, over the clients' preconditioners Theta_i, all alike.

  Args:
    sums: The cohort's sum of what `spread` returns.
    count: Number of participating clients, float32 scalar.

  Returns:
    A float32 scalar; NaN without clients.
  """
  sums = sums[SIMULATED]
  mean_square = sums['square'] / count
  square_of_mean = tree.squared_norm(sums['state']) / count**2
  return tf.maximum(mean_square - square_of_mean, 0.0)
