"""DiLoCo: AdamW clients, Nesterov's momentum on the server."""

from __future__ import annotations

from typing import Literal

from tff_adaptive.algorithms import additions
from tff_adaptive.algorithms import kept_state
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tff


class KeepingClients(methods.Options):
  """Options of methods whose clients' optimizers go on where they stopped."""

  client_state: Literal['kept', 'fresh'] = 'kept'
  """Whether a client's optimizer goes on with the moments and the step count of
  the last round in which the client took part, or starts afresh in every round.
  With small cohorts of many clients, kept moments are old when they are
  used."""

  def additions(
    self,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_optimizer: tff.learning.optimizers.Optimizer,
  ) -> additions.Additions:
    del server_optimizer
    if self.client_state == 'fresh':
      return {}
    return {'exchange': kept_state.KeptState(client_optimizer)}


@methods.method(
  'diloco',
  printed='DiLoCo',
  client='adamw',
  fixes=('client',),
  defaults={
    'client_learning_rate': 4e-4,
    'weight_decay': 0.1,
    'server_learning_rate': 0.7,
    'momentum': 0.9,
    'nesterov': True,
  },
  client_words='AdamW, its state kept',
  server_words='Nesterov 0.9 or any',
  costs=methods.Costs(keeps='moments, 2 d', optimizer=2, kept=2),
  look=32,
)
class DiLoCo(KeepingClients):
  """AdamW clients whose moments go on from round to round, many steps between
  rounds, and Nesterov's momentum on the server (Douillard et al.).

  arXiv 2311.08105. The defaults are OpenDiLoCo's, for language models and
  hundreds of local steps; it has beta_2 = 0.95.
  """
