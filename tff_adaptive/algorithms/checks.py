"""Hyperparameters of a method that must fit each other.

Importing this module imports no TensorFlow.
"""

from typing import Optional

from tff_adaptive import parameters


def one_of_momentum_and_proximal(
  client_momentum: float, proximal_strength: float
) -> None:
  """Raises `ParameterError` for both: FedNova weighs steps by either."""
  if client_momentum and proximal_strength:
    raise parameters.ParameterError(
      'proximal_strength',
      '{} ({strength:g}) and {client_momentum} ({momentum:g}) do not go '
      'together under FedNova, whose paper weighs steps with one of them; give '
      'one.',
      strength=proximal_strength,
      momentum=client_momentum,
    )


def compression(
  compressor: str, compression_ratio: Optional[float], aggregator: str
) -> None:
  """Raises `ParameterError` for a ratio or an aggregator that does not fit."""
  if compressor == 'sign' and compression_ratio is not None:
    raise parameters.ParameterError(
      'compression_ratio',
      '{} ({ratio:g}) would be ignored: {compressor} is {chosen!r}; give '
      '{compressor}=topk.',
      ratio=compression_ratio,
      chosen=compressor,
    )
  if aggregator == 'compression':
    raise parameters.ParameterError(
      'aggregator',
      '{}=compression does not go with {compressor}={chosen}: clients keep the '
      'error of one compression, of which they know, and TFF would add '
      'another; give {aggregator}=mean or {aggregator}=secure.',
      chosen=compressor,
    )
