"""MOON: clients kept near the server's representations."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import additions
from tff_adaptive.processes import exchange
from tff_adaptive.processes import objectives


class PreviousModel(exchange.Exchange):
  """The model that a client's last round ended with, kept on the client.

  The first previous model of a client is the model that it receives.
  """

  def memory(self, specs: structures.FlatSpecs) -> structures.Memory:
    return collections.OrderedDict(
      seen=tf.constant(False),
      weights=tuple(tf.zeros(s.shape, s.dtype) for s in specs),
    )

  def context(
    self,
    statistics: structures.Statistics,
    memory: structures.Memory,
    start: structures.FlatWeights,
  ) -> structures.FlatWeights:
    return tuple(
      tf.where(memory['seen'], previous, received)
      for previous, received in zip(memory['weights'], start)
    )

  def remember(self, local: exchange.Local) -> structures.Memory:
    return collections.OrderedDict(seen=tf.constant(True), weights=local.end)


@parameters.checked
def pieces(
  client_optimizer: tff.learning.optimizers.Optimizer,
  server_optimizer: tff.learning.optimizers.Optimizer,
  *,
  contrastive_strength: parameters.NonNegative = 1.0,
  temperature: parameters.Positive = 0.5,
) -> additions.Additions:
  """Adds MOON's contrastive term (Li et al., arXiv 2103.16257).

  Args:
    client_optimizer: Any.
    server_optimizer: Any.
    contrastive_strength: mu, what the term is multiplied with.
    temperature: T, what cosines are divided by.
  """
  del client_optimizer, server_optimizer
  return {
    'exchange': PreviousModel(),
    'objective': objectives.Contrastive(contrastive_strength, temperature),
  }
