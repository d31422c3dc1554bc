"""FedCAMS: compressed updates with client-side error feedback."""

from __future__ import annotations

import collections
from collections.abc import Mapping
from typing import Any, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import tree
from tff_adaptive.privacy import mechanism
from tff_adaptive.processes import encodings
from tff_adaptive.processes import exchange


class ErrorFeedback(exchange.Exchange):
  """Error feedback of compressed updates: Wang et al., arXiv 2205.02719.

  With C the compressor, applied to all trainable weights as one vector:

    u   = x_K - x_t + e_i
    e_i = u - C(u)                                     initially 0

  The client sends C(u). A client outside the cohort keeps its e_i.
  """

  def __init__(self, encoding: encodings.Encoding, name: str):
    self.encoding = encoding
    self._compress = encoding.compress
    self.update_formula = (
      f'Delta = mean C(Delta_i + e_i), C = {name}\n'
      'e_i = Delta_i + e_i - C(Delta_i + e_i), from 0'
    )

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> structures.ClientState:
    return collections.OrderedDict(error=tuple(tree.zeros(specs)))

  def _due(self, client: exchange.Client) -> structures.FlatWeights:
    return tree.add(super().update(client), tuple(client.state['error']))

  def update(self, client: exchange.Client) -> structures.FlatWeights:
    due = self._due(client)
    return encodings.split(self._compress(encodings.joined(due)), like=due)

  def next_client_state(
    self, client: exchange.Client
  ) -> structures.ClientState:
    error = tree.subtract(self._due(client), self.update(client))
    return collections.OrderedDict(error=error)


class Compressing(methods.Options):
  """Options of methods with compressed client updates and error feedback."""

  compressor: Literal['sign', 'topk'] = 'sign'
  """Compressor of the d entries of u: 'sign' sends sign(u) |u|_1 / d; 'topk'
  the max(floor(r d), 1) entries of largest absolute value."""

  compression_ratio: Optional[parameters.Ratio] = None
  """r of 'topk'; 1/64 by default."""

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    compressor, ratio = values['compressor'], values['compression_ratio']
    if compressor == 'sign' and ratio is not None:
      raise parameters.ParameterError(
        'compression_ratio',
        '{} ({ratio:g}) would be ignored: {compressor} is {chosen!r}; give '
        '{compressor}=topk.',
        ratio=ratio,
        chosen=compressor,
      )
    why = 'clients count what they send as received'
    mechanism.refuse_bounds(values, 'error feedback', why)
    if values['aggregator'] == 'compression':
      raise parameters.ParameterError(
        'aggregator',
        '{}=compression cannot be combined with {compressor}={chosen}: clients '
        'keep the error of their own compression only.',
        chosen=compressor,
      )

  def compression(self) -> tuple[encodings.Encoding, str]:
    """Returns the compressor and its formula as text."""
    if self.compressor == 'sign':
      return encodings.Signs(), 'sign(u) |u|_1 / d'
    ratio = 1 / 64 if self.compression_ratio is None else self.compression_ratio
    return encodings.TopK(ratio), f'top {ratio:g} d of u'


@methods.method(
  'fedcams',
  printed='FedCAMS',
  server='ams',
  defaults={'server_learning_rate': 0.1},
  client_words='SGD or any, compressed: 0.05 d up',
  server_words='AMSGrad or any',
  costs=methods.Costs(keeps='error, d', models_up=1 / 20, kept=1),
  look=31,
)
class FedCams(Compressing):
  """Clients that compress their updates with error feedback, under FedAMS (Wang
  et al.).
  """

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    return {'exchange': ErrorFeedback(*self.compression())}
