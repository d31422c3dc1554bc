"""FedAdagrad: Adagrad on the server."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedadagrad',
  printed='FedAdagrad',
  server='adagrad',
  fixes=('server',),
  client_words='SGD or any',
  server_words='Adagrad',
  look=2,
)
class FedAdagrad(methods.Options):
  """Adagrad on the server (Reddi et al.)."""
