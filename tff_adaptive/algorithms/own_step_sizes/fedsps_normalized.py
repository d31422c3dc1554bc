"""FedSPS-Normalized: clients weighted by the inverse of their total step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.processes import exchange


class InverseStepSum(exchange.Exchange):
  """A client weight of 1 / nu_i, with nu_i a sum of the client's step sizes.

  A client with nu_i = 0 has weight 0; if all have, the model does not change.
  """

  def __init__(self, nu: str):
    self._nu = nu
    but = ' but the last' if nu == 'printed' else ''
    self.weight_formula = (
      f'1 / nu, nu the sum of its step sizes in the round{but}'
    )

  def weight(self, client: exchange.Client) -> tf.Tensor:
    state = client.optimizer_state
    last = state['gamma'] if self._nu == 'printed' else 0.0
    return tf.math.divide_no_nan(1.0, state['total'] - last)


@methods.method(
  'fedsps_normalized',
  printed='FedSPS-Normalized',
  client='polyak',
  fixes=('client',),
  unnoised='weights computed from their steps',
  client_words='Polyak steps',
  server_words='any',
  costs=methods.Costs(up='its weight'),
  look=10,
)
class FedSpsNormalized(methods.Options):
  """FedSPS with clients weighted by the inverse of their summed step sizes."""

  nu: Literal['all', 'printed'] = 'all'
  """Local step sizes summed in nu: 'all', as described in the paper (D.1.1), or
  'printed', all but the last, as in its Algorithm 2 (nu = 0 for a client with a
  single step).
  """

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    if values['aggregator'] in ('median', 'trimmed_mean', 'secure'):
      raise parameters.ParameterError(
        'aggregator',
        '{}={given} ignores or rounds the weights of clients, which {method} '
        'computes; give {aggregator}=mean.',
        given=values['aggregator'],
        method='fedsps_normalized',
      )
    if values['client_weighting'] != 'examples':
      raise parameters.UnusedError(
        'client_weighting',
        '{}={given} would be ignored: {method} computes the weights of clients '
        'itself; leave the default.',
        given=values['client_weighting'],
        method='fedsps_normalized',
      )

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': InverseStepSum(self.nu)}
