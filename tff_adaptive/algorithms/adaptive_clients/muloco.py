"""MuLoCo: DiLoCo with Muon clients."""

from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.adaptive_clients import diloco


@methods.method(
  'muloco',
  printed='MuLoCo',
  client='muon',
  fixes=('client',),
  defaults={
    'client_learning_rate': 0.02,
    'client_momentum': 0.95,
    'weight_decay': 0.01,
    'server_learning_rate': 0.7,
    'momentum': 0.6,
    'nesterov': True,
  },
  client_words='Muon with kept state',
  server_words='Nesterov 0.6 or any',
  costs=methods.Costs(keeps='momenta, d', optimizer=1, kept=1),
  look=33,
)
class MuLoCo(diloco.KeepingClients):
  """DiLoCo with Muon clients, whose updates are better aligned with one another
  (Therien et al.).

  arXiv 2505.23725; the defaults are those of the authors' library. Variables of
  rank 0 and 1 keep two moments.
  """
