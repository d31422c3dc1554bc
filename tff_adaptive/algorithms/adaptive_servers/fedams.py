"""FedAMS: AMSGrad on the server."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedams',
  printed='FedAMS',
  server='ams',
  fixes=('server',),
  defaults={'server_learning_rate': 0.03},
  client_words='SGD or any',
  server_words='AMSGrad',
  look=5,
)
class FedAms(methods.Options):
  """AMSGrad with max stabilisation on the server (Wang et al.)."""
