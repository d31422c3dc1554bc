"""FedPer: last layers that stay on each client."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import personal_layers


@methods.method(
  'fedper',
  printed='FedPer',
  client_words='SGD or any; last layers stay',
  server_words='any',
  costs=methods.Costs(keeps='its last layers', holds='1.007 d'),
  look=40,
)
class FedPer(methods.Options):
  """Clients with last layers of their own (Arivazhagan et al.)."""

  personal_layers: parameters.Count = 1
  """K_P, the number of last layers (with weights) kept on each client. A
  variable without a name counts as a layer.
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:

    def choose(names: Sequence[str]) -> list[bool]:
      # Adapters are named after their kernels: 'dense/kernel/a'.
      whole = [
        re.sub('/[ab]$', '', n) if n.count('/') > 1 else n for n in names
      ]
      layers = [n.rpartition('/')[0] or f'{i}' for i, n in enumerate(whole)]
      last = list(dict.fromkeys(layers))[-self.personal_layers :]
      return [layer in last for layer in layers]

    return {'exchange': personal_layers.PersonalLayers(choose)}
