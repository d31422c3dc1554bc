"""FedAvgM: federated averaging with server momentum."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedavgm',
  printed='FedAvgM',
  fixes=('server',),
  defaults={'momentum': 0.9},
  client_words='SGD or any',
  server_words='momentum 0.9',
  look=1,
)
class FedAvgM(methods.Options):
  """Federated averaging with momentum 0.9 on the server."""
