"""MIME and MimeLite: server statistics, frozen during local steps."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.optimizers import frozen
from tff_adaptive.processes import exchange


class ServerStatistics(exchange.Exchange):
  """The server's optimizer state: Karimireddy et al., arXiv 2008.03606.

  The server keeps the base optimizer's state and sends it; after the round it
  steps it once with the cohort's mean gradient at x_t. MIME also corrects the
  clients' gradients with that mean, for which clients must know it before they
  start: one more exchange in the round.
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

  def begin(
    self,
    statistics: structures.Statistics,
    optimizer_state: structures.OptimizerState,
    start: structures.FlatWeights,
    full_gradient: structures.FlatWeights,
  ) -> structures.OptimizerState:
    # The clients' learning rate is the state's own or a schedule's, not what
    # the server's copy was made with.
    hparams = self._base.get_hparams(optimizer_state['base'])
    received = self._base.set_hparams(statistics['base'], hparams)
    state = collections.OrderedDict(optimizer_state, base=received)
    if self._corrects:
      state['start'] = start
      state['mean_gradient'] = full_gradient
    return state

  def merge(
    self, statistics: structures.Statistics, cohort: exchange.Cohort
  ) -> structures.Statistics:
    # Optimizers move weights and state together; only the state is wanted.
    anywhere = tuple(tf.zeros_like(g) for g in cohort.full_gradient)
    state, _ = self._base.next(
      statistics['base'], anywhere, cohort.full_gradient
    )
    return collections.OrderedDict(base=state)


def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds what MIME does with its base optimizer, the clients'."""
  return _pieces(client_optimizer, server_optimizer, corrects=True)


def lite_pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
) -> additions.Additions:
  """Adds what MimeLite does: as MIME, without correcting gradients."""
  return _pieces(client_optimizer, server_optimizer, corrects=False)


def _pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  corrects: bool,
) -> additions.Additions:
  del server_optimizer
  return {
    'client_optimizer': frozen.Frozen(client_optimizer, corrects=corrects),
    'exchange': ServerStatistics(client_optimizer, corrects),
  }
