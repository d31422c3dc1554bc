"""FedAdam: Adam on the server."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedadam',
  printed='FedAdam',
  server='adam',
  fixes=('server',),
  client_words='SGD or any',
  server_words='Adam',
  look=3,
)
class FedAdam(methods.Options):
  """Adam on the server (Reddi et al.)."""
