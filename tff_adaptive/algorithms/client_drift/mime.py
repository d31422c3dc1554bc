"""MIME and MimeLite: server statistics, frozen during local steps."""

from __future__ import annotations

import collections
from typing import Any, ClassVar

from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.client_drift import frozen
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff
from tff_adaptive.processes import exchange


class ServerStatistics(exchange.Exchange):
  """The server's optimizer state: Karimireddy et al., arXiv 2008.03606.

  The server sends the state of the base optimizer and, after the round, updates
  it once with the cohort's mean gradient at x_t. MIME also corrects the
  clients' gradients with that mean. Clients must know it before they start,
  which takes one more exchange per round.
  """

  def __init__(self, base: tff.learning.optimizers.Optimizer, corrects: bool):
    self._base = base
    self._corrects = corrects
    self.full_gradient_pass = 'before' if corrects else 'after'

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    state = self._base.initialize(specs)
    return collections.OrderedDict(
      base=tf.nest.map_structure(tf.convert_to_tensor, state)
    )

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    # Clients keep their own learning rate, which a schedule may have changed.
    hparams = self._base.get_hparams(client.optimizer_state['base'])
    received = self._base.set_hparams(client.statistics['base'], hparams)
    state = collections.OrderedDict(client.optimizer_state, base=received)
    if self._corrects:
      state['start'] = client.received
      state['mean_gradient'] = client.full_gradient
    return state

  def merge(self, server: exchange.Server) -> structures.Statistics:
    # The step's weights are discarded, so any starting point will do.
    anywhere = tuple(tf.zeros_like(g) for g in server.full_gradient)
    state, _ = self._base.next(
      server.statistics['base'], anywhere, server.full_gradient
    )
    return collections.OrderedDict(base=state)


_ROW: dict[str, Any] = dict(
  # The base optimizer's state does not change within a round.
  hides=('delay', 'delay_unit', 'local_epochs'),
  accepts={'client': ('adagrad', 'adam', 'sgd')},
  unnoised='their gradients at the received weights',
  client_words='base optimizer, frozen',
  server_words='any',
)


@methods.method(
  'mime',
  printed='Mime',
  # With momentum 0.9 the steady-state step is ten times as long.
  defaults={'client_momentum': 0.9, 'client_learning_rate': 0.02},
  costs=methods.Costs(
    down='state and gradient, 2 d',
    up='gradient, d',
    models_down=3,
    models_up=2,
    optimizer=3,
    gradients=3,
  ),
  one_version=True,
  look=19,
  **_ROW,
)
class Mime(methods.Options):
  """Clients that use the server's statistics and corrected gradients
  (Karimireddy et al.).
  """

  corrects: ClassVar[bool] = True

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'client_optimizer': frozen.Frozen(
        base=chosen.client_optimizer, corrects=self.corrects
      ),
      'exchange': ServerStatistics(chosen.client_optimizer, self.corrects),
    }


@methods.method(
  'mimelite',
  printed='MimeLite',
  defaults={'client_momentum': 0.9, 'client_learning_rate': 0.01},
  costs=methods.Costs(
    down='state, d',
    up='gradient, d',
    models_down=2,
    models_up=2,
    optimizer=1,
    gradients=2,
  ),
  one_version=True,
  look=20,
  **_ROW,
)
class MimeLite(Mime):
  """MIME without gradient correction."""

  corrects = False
