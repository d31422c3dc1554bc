"""FedBN: normalisation layers that stay on each client."""

from __future__ import annotations

from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import personal_layers

# Keras' names for the weights of its normalisation layers.
_SCALE_AND_SHIFT = ('gamma', 'beta')


@methods.method(
  'fedbn',
  printed='FedBN',
  client_words='SGD or any; normalisation stays',
  server_words='any',
  costs=methods.Costs(keeps='its normalisation', holds='1.001 d'),
  look=41,
)
class FedBN(methods.Options):
  """Clients with normalisation layers of their own (Li et al.)."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {
      'exchange': personal_layers.PersonalLayers(
        lambda names: [n.rpartition('/')[2] in _SCALE_AND_SHIFT for n in names]
      )
    }
