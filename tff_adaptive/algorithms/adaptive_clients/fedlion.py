"""FedLion: Lion clients initialized with the mean of their momenta."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class MeanMomentum(exchange.Exchange):
  """The statistics of FedLion: Tang and Chang, arXiv 2402.09941.

  Clients start from the mean of the last cohort's momenta m_i, taken with the
  weights of the model's mean; from 0 in the first round.

  Without weight decay, a client's update divided by its learning rate is an
  integer from -K to K in every coordinate, with K the number of its local
  steps.
  """

  def __init__(self, weight_decay: float):
    self._integers = not weight_decay

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(m=tuple(tree.zeros(specs)))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(client.optimizer_state, **client.statistics)

  def report(self, client: exchange.Client) -> exchange.Report:
    return exchange.report(
      weighted=collections.OrderedDict(m=client.optimizer_state['m'])
    )

  def preconditioner(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(client.optimizer_state['m'])

  def update_bits(self, client: exchange.Client) -> Optional[tf.Tensor]:
    if not self._integers:
      return None
    steps = tf.cast(client.num_steps, tf.float32)
    bits = tf.math.ceil(tf.math.log(2 * steps + 1) / tf.math.log(2.0) - 1e-5)
    # During a warm-up, steps differ in length and the sums are not integers.
    return tf.where(tf.equal(client.full_steps, steps), bits, 32.0)

  def merge(self, server: exchange.Server) -> structures.Statistics:
    return server.report.weighted


@methods.method(
  'fedlion',
  printed='FedLion',
  client='lion',
  fixes=('client',),
  defaults={'client_learning_rate': 1e-3},
  unnoised='their momenta',
  client_words='Lion from the mean momentum',
  server_words='any',
  costs=methods.Costs(
    down='momentum, d',
    up='momentum, d',
    models_down=2,
    models_up=2,
    optimizer=1,
  ),
  one_version=True,
  look=37,
)
class FedLion(methods.Options):
  """Lion clients initialized with the mean of the last cohort's momenta (Tang
  and Chang).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': MeanMomentum(chosen.client_optimizer.weight_decay)}
