"""FedYogi: Yogi on the server."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedyogi',
  printed='FedYogi',
  server='yogi',
  fixes=('server',),
  client_words='SGD or any',
  server_words='Yogi',
  look=4,
)
class FedYogi(methods.Options):
  """Yogi on the server (Reddi et al.)."""
