"""FedAdamW: clients' second moments averaged as one number per variable."""

from __future__ import annotations

import collections

from tff_adaptive import structures
from tff_adaptive.algorithms import exchanges
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange


class BlockMeans(exchange.Exchange):
  """The statistics of FedAdamW: Liu et al., arXiv 2510.27486.

  The server sends v (one number per variable), the direction Delta_G and a
  count T of local steps, all initially 0. Clients send the mean of their last v
  over each variable and the sum of their local learning rates, eta K_i. The
  server computes

    v       = mean of the clients' means
    Delta_G = -Delta / mean of eta K_i
    T       = T + max K_i
  """

  sees_update = True

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      v=tuple(tf.zeros([], s.dtype) for s in specs),
      direction=tuple(tree.zeros(specs)),
      count=tf.constant(0, tf.int32),
    )

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return collections.OrderedDict(
      client.optimizer_state,
      v=tuple(
        tf.fill(x.shape, mean)
        for x, mean in zip(client.received, client.statistics['v'])
      ),
      direction=client.statistics['direction'],
      count=client.statistics['count'],
    )

  def report(self, client: exchange.Client) -> exchange.Report:
    state = client.optimizer_state
    return exchange.report(
      weighted=collections.OrderedDict(
        v=tuple(tf.reduce_mean(v) for v in state['v']),
        path=exchanges.local_path(client, state['learning_rate']),
      ),
      maximum=collections.OrderedDict(num_steps=client.num_steps),
    )

  def merge(self, server: exchange.Server) -> structures.Statistics:
    mean = server.report.weighted
    return collections.OrderedDict(
      v=mean['v'],
      direction=exchanges.global_direction(server, mean['path']),
      count=server.statistics['count'] + server.report.maximum['num_steps'],
    )


@methods.method(
  'fedadamw',
  printed='FedAdamW',
  client='adamw_global',
  defaults={'client_learning_rate': 0.001},
  fixes=('client',),
  unnoised='means of their second moments',
  client_words='AdamW',
  server_words='any',
  costs=methods.Costs(
    down='direction, d', up='numbers', models_down=2, optimizer=3
  ),
  one_version=True,
  look=30,
)
class FedAdamW(methods.Options):
  """AdamW clients whose second moments are averaged, one number per variable
  (Liu et al.).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': BlockMeans()}
