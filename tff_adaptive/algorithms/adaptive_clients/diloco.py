"""DiLoCo: AdamW clients and Nesterov momentum on the server."""

from __future__ import annotations

from typing import Literal

from tff_adaptive.algorithms import exchanges
from tff_adaptive.algorithms import methods


class KeepingClients(methods.Options):
  """Options of methods whose client optimizers keep state between rounds."""

  client_state: Literal['kept', 'fresh'] = 'kept'
  """Whether a client keeps its optimizer state (moments and step count) between
  the rounds in which it participates, instead of resetting it every round. With
  small cohorts of many clients the kept moments are stale.
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    if self.client_state == 'fresh':
      return {}
    return {'exchange': exchanges.KeptState(chosen.client_optimizer)}


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
  client_words='AdamW with kept state',
  server_words='Nesterov 0.9 or any',
  costs=methods.Costs(keeps='moments, 2 d', optimizer=2, kept=2),
  look=32,
)
class DiLoCo(KeepingClients):
  """AdamW clients that keep their moments between rounds, many local steps, and
  Nesterov momentum on the server (Douillard et al.).

  arXiv 2311.08105. The defaults are OpenDiLoCo's, for language models and
  hundreds of local steps; OpenDiLoCo sets beta_2 = 0.95.
  """
