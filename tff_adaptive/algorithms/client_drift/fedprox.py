"""FedProx: a proximal term in the clients' loss."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedprox',
  printed='FedProx',
  defaults={'proximal_strength': 0.01},
  client_words='SGD or any, with a proximal term',
  server_words='any',
  look=13,
)
class FedProx(methods.Options):
  """Clients kept near the received model by a proximal term (Li et al.)."""
