"""FedHyper: a server learning rate adapted by hypergradients."""

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
from tff_adaptive.processes import exchange


class Hypergradient(exchanges.OwnRate):
  """FedHyper-G: Wang et al., arXiv 2310.03156.

  With Delta_t the mean update of round t and alpha_1 the given learning rate:

    alpha_t = clip(alpha_(t-1) + <Delta_t, Delta_(t-1)>, lower, upper)
    x       = x + alpha_t Delta_t

  The clipped rate is carried over to the next round. A round without an update
  changes neither.
  """

  of_one_version = False
  update_formula = (
    'Delta = alpha_t Delta_t\n'
    'alpha_t = clip(alpha_(t-1) + <Delta_t, Delta_(t-1)>, {:g}, {:g}), '
    'from {:g}'
  )

  hparam_names = ('_lower', '_upper')

  def __init__(self, rate: float, lower: float, upper: float):
    self._rate = rate
    self._lower = lower
    self._upper = upper
    self.update_formula = self.update_formula.format(lower, upper, rate)

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    return collections.OrderedDict(
      rate=tf.constant(self._rate, tf.float32),
      has_stepped=tf.constant(False),
      last_update=tuple(tree.zeros(specs)),
    )

  def merge(self, server: exchange.Server) -> structures.Statistics:
    old = server.statistics
    turn = tree.dot(server.update, old['last_update'])
    rate = tf.clip_by_value(old['rate'] + turn, self._lower, self._upper)
    return collections.OrderedDict(
      rate=tf.where(old['has_stepped'], rate, old['rate']),
      has_stepped=tf.constant(True),
      last_update=server.update,
    )

  def restarted(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    return collections.OrderedDict(
      statistics,
      has_stepped=tf.constant(False),
      last_update=tuple(tf.zeros_like(u) for u in statistics['last_update']),
    )


@methods.method(
  'fedhyper',
  printed='FedHyper',
  **methods.OWN_STEP,
  client_words='SGD or any',
  server_words='hypergradient learning rate',
  look=36,
)
class FedHyper(methods.Options):
  """A server whose learning rate grows while successive updates agree and
  shrinks when they do not (Wang et al.).
  """

  in_state = frozenset({'server_learning_rate', 'hyper_lower', 'hyper_upper'})

  server_learning_rate: parameters.Positive = 1.0
  """alpha_1, the learning rate of the first round, in units of Delta."""

  hyper_lower: parameters.Positive = 0.2
  """Smallest rate after the first round."""

  hyper_upper: parameters.Positive = 5.0
  """Largest rate after the first round."""

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    if values['hyper_lower'] > values['hyper_upper']:
      raise parameters.ParameterError(
        'hyper_lower',
        '{} ({lower:g}) must not be above {hyper_upper} ({upper:g}).',
        lower=values['hyper_lower'],
        upper=values['hyper_upper'],
      )

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': Hypergradient(
        self.server_learning_rate, self.hyper_lower, self.hyper_upper
      )
    }
