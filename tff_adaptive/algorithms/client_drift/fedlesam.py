"""FedLESAM: sharpness-aware clients with one gradient per step."""

from __future__ import annotations

import collections
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers import wrapped
from tff_adaptive.processes import exchange


class Displaced(wrapped.Wrapped):
  """Steps with the gradient at x + e, where e is the exchange's context."""

  note = 'with g = g(x + e), e = rho (x_old - x_t) / |x_old - x_t|'

  def gradient_point(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    context: structures.FlatWeights,
  ) -> Optional[structures.WeightsT]:
    return tree.add(weights, context)


class LastReceived(exchange.Exchange):
  """The perturbation of FedLESAM: Fan et al., arXiv 2405.18890.

  A client keeps x_old, the model that it received when it last took part, and
  evaluates all gradients of a round at x + e with a constant e:

    e = rho (x_old - x_t) / |x_old - x_t|

  e is 0 for a client that takes part for the first time, and if the model has
  not changed.
  """

  hparam_names = ('_rho',)

  def __init__(self, rho: float):
    self._rho = rho

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(
      seen=tf.constant(False), received=tuple(tree.zeros(specs))
    )

  def context(self, client: exchange.Client) -> structures.FlatWeights:
    back = tree.subtract(client.state['received'], tuple(client.received))
    scale = tf.math.divide_no_nan(self._rho, tree.norm(back))
    scale = tf.where(client.state['seen'], scale, 0.0)
    return tuple(tf.cast(scale, b.dtype) * b for b in back)

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    return collections.OrderedDict(
      seen=tf.constant(True), received=tuple(client.received)
    )


@methods.method(
  'fedlesam',
  printed='FedLESAM',
  accepts={'client': methods.GRADIENTS_ALONE},
  # A wrapped optimizer sees no batches, by which epochs are counted.
  hides=('delay_unit', 'local_epochs'),
  client_words='SGD or any, with a fixed perturbation',
  server_words='any',
  costs=methods.Costs(keeps='model received, d', context=1, kept=1),
  look=28,
)
class FedLesam(methods.Options):
  """Sharpness-aware clients with one gradient per step (Fan et al.)."""

  in_state = frozenset({'rho'})

  rho: parameters.NonNegative = 0.1
  """Norm of the perturbation e, in units of x."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'client_optimizer': Displaced(base=chosen.client_optimizer),
      'exchange': LastReceived(self.rho),
    }
