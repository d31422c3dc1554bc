"""Local-AMSGrad: moments averaged in every round."""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class Moments(exchange.Exchange):
  """The means of the clients' m and v, weighted as the model.

  The server sends both and v_max, the running maximum of the mean v.
  """

  def __init__(self, start: float):
    self._start = start

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      m=tree.zeros(specs),
      v=tree.zeros(specs, self._start),
      v_max=tree.zeros(specs, self._start),
    )

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(client.optimizer_state, **client.statistics)

  def report(self, client: exchange.Client) -> exchange.Report:
    state = client.optimizer_state
    return exchange.report(
      weighted=collections.OrderedDict(m=state['m'], v=state['v'])
    )

  def preconditioner(self, client: exchange.Client) -> structures.FlatWeights:
    return tuple(tf.nest.flatten(client.optimizer_state['v']))

  def merge(self, server: exchange.Server) -> structures.Statistics:
    mean = server.report.weighted
    return collections.OrderedDict(
      m=mean['m'],
      v=mean['v'],
      v_max=tf.nest.map_structure(
        tf.maximum, server.statistics['v_max'], mean['v']
      ),
    )


@methods.method(
  'local_amsgrad',
  printed='Local AMSGrad',
  client='amsgrad',
  fixes=('client', 'server'),
  unnoised='their moments',
  client_words='AMSGrad',
  server_words='mean',
  costs=methods.Costs(
    down='moments, 3 d',
    up='moments, 2 d',
    models_down=4,
    models_up=3,
    optimizer=3,
  ),
  one_version=True,
  look=22,
)
class LocalAmsgrad(methods.Options):
  """AMSGrad clients whose moments are averaged (Chen et al.)."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': Moments(chosen.client_optimizer.epsilon)}
