"""FedSPS: stochastic Polyak step sizes on clients."""

from tff_adaptive.algorithms import methods


@methods.method(
  'fedsps',
  printed='FedSPS',
  client='polyak',
  fixes=('client',),
  client_words='stochastic Polyak steps',
  server_words='any',
  look=8,
)
class FedSps(methods.Options):
  """Clients with stochastic Polyak steps (Mukherjee et al.)."""
