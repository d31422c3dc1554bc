"""Centralized training on pooled data, the baseline without federation."""

from tff_adaptive.algorithms import methods


@methods.method(
  'centralized',
  printed='Centralized',
  client='none',
  defaults={'server_learning_rate': 0.1},
  has_clients=False,
  look=6,
)
class Centralized(methods.Options):
  """No federation: --server_optimizer trains on the pooled data of all clients,
  with as many examples per round as a cohort has on average.
  """
