"""FedAvg: federated averaging."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedavg',
  printed='FedAvg',
  fixes=('server',),
  accepts={'server': methods.BUILDING_BLOCKS},
  hides=('momentum', 'nesterov'),
  client_words='SGD or any',
  server_words='plain mean',
  look=0,
)
class FedAvg(methods.Options):
  """Federated averaging: SGD clients, their mean applied."""
