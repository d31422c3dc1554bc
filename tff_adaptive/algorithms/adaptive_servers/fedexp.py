"""FedExP: server step sizes that grow with the disagreement of clients."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import exchanges
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.privacy import mechanism
from tff_adaptive.processes import exchange


class Extrapolation(exchanges.OwnRate):
  """FedExP's extrapolation: Jhunjhunwala et al., arXiv 2301.09604.

  With p_i the weights of the model's mean, and Delta the mean of the Delta_i:

    Delta = max(1, sum p_i |Delta_i|^2 / (2 (|Delta|^2 + epsilon))) Delta

  A client sends |Delta_i|^2, one number. To evaluate the mean of the last two
  models, the server also keeps its last step, unless that was its first.
  """

  update_formula = (
    'Delta = max(1, mean |Delta_i|^2 / (2 (|Delta|^2 + epsilon))) Delta'
  )

  hparam_names = ('_epsilon',)

  def __init__(self, epsilon: float, average_last_two: bool):
    self._epsilon = epsilon
    self._average_last_two = average_last_two
    self.update_formula += f'\nwith epsilon = {epsilon:g}'
    if average_last_two:
      self.update_formula += '\nevaluated: (x_t + x_(t-1)) / 2'

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    statistics = collections.OrderedDict(rate=tf.constant(1.0))
    if self._average_last_two:
      statistics['has_stepped'] = tf.constant(False)
      statistics['last_step'] = tuple(tree.zeros(specs))
    return statistics

  def report(self, client: exchange.Client) -> exchange.Report:
    squares = tree.squared_norm(self.update(client))
    return exchange.report(weighted=collections.OrderedDict(squares=squares))

  def merge(self, server: exchange.Server) -> structures.Statistics:
    apart = server.report.weighted['squares']
    together = 2 * (tree.squared_norm(server.update) + self._epsilon)
    merged = collections.OrderedDict(
      server.statistics,
      rate=tf.maximum(1.0, tf.math.divide_no_nan(apart, together)),
    )
    if self._average_last_two:
      merged['has_stepped'] = tf.constant(True)
      merged['last_step'] = tuple(
        tf.where(server.statistics['has_stepped'], step, tf.zeros_like(step))
        for step in self.step(server._replace(statistics=merged))
      )
    return merged

  def evaluated(self, server: exchange.Server) -> structures.Structure:
    if not self._average_last_two:
      return server.weights
    back = tf.nest.pack_sequence_as(
      server.weights, server.statistics['last_step']
    )
    return tree.add_scaled(server.weights, -0.5, back)

  def restarted(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    if not self._average_last_two:
      return statistics
    return collections.OrderedDict(
      statistics,
      has_stepped=tf.constant(False),
      last_step=tuple(tf.zeros_like(x) for x in statistics['last_step']),
    )


@methods.method(
  'fedexp',
  printed='FedExP',
  **methods.OWN_STEP,
  unnoised='the squared norms of their updates',
  client_words='SGD or any',
  server_words='extrapolated step',
  costs=methods.Costs(up='a number'),
  one_version=True,
  look=23,
)
class FedExp(methods.Options):
  """A server whose step grows with the disagreement of its clients
  (Jhunjhunwala et al.).
  """

  in_state = frozenset({'server_adaptivity'})

  server_adaptivity: parameters.NonNegative = 1e-3
  """epsilon, in units of |Delta|^2; the authors' code starts at 1e-3 for CIFAR
  and at 0.1 for EMNIST."""

  average_last_two: bool = True
  """Whether to evaluate and save the average of the last two models, as in the
  authors' code. Training continues from the last model.
  """

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    why = 'its step follows from the norms of all updates, as they are'
    mechanism.refuse_bounds(values, 'fedexp', why)

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': Extrapolation(self.server_adaptivity, self.average_last_two)
    }
