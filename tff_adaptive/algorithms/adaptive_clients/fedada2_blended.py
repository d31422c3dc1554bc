"""Blended FedAda2: pseudo-gradients weighted by the sampled optimizer."""

from __future__ import annotations

from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers.clients import blended
from tff_adaptive.processes import exchange


class WeightedByOptimizer(exchange.Exchange):
  """Updates w(O) (x_K - x_t), with O the optimizer that the client sampled.

  Line 7 of Algorithm 5 of FedAda2 (arXiv 2410.18117); Algorithms 8 and 10 call
  the weights Xi. They scale the averaged updates and are not weights of the
  mean.
  """

  def __init__(self, optimizer: blended.Blended):
    self._optimizer = optimizer

  def update(self, client: exchange.Client) -> structures.FlatWeights:
    weight = self._optimizer.weight_of(client.optimizer_state)
    return tuple(tf.cast(weight, u.dtype) * u for u in super().update(client))


@methods.method(
  'fedada2_blended',
  printed='FedAda\N{SUPERSCRIPT TWO} blended',
  client='blended',
  server='adagrad',
  fixes=('client',),
  accepts={'server': methods.ADAPTIVE},
  defaults={'server_learning_rate': 0.03},
  client_words='sampled by each client',
  server_words='Adagrad, Adam, Yogi, AMS',
  costs=methods.Costs(optimizer=3.008, holds='its own'),
  look=18,
)
class FedAda2Blended(methods.Options):
  """Clients that sample their local optimizer in every round, under an adaptive
  server (Lee et al.).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    if not chosen.client_optimizer.weighs:
      return {}
    return {'exchange': WeightedByOptimizer(chosen.client_optimizer)}
