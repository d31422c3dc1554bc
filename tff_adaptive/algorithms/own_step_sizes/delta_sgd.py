"""Delta-SGD: clients that adapt their own step size."""

from tff_adaptive.algorithms import methods


@methods.method(
  'delta_sgd',
  printed='\N{GREEK CAPITAL LETTER DELTA}-SGD',
  client='delta_sgd',
  fixes=('client',),
  client_words='SGD, step size from local smoothness',
  server_words='any',
  costs=methods.Costs(optimizer=1, gradients=2),
  look=7,
)
class DeltaSgd(methods.Options):
  """Clients that tune their own step size (Kim et al.)."""
