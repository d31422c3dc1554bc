"""Mixes: choices with their shares, as words; imports no TensorFlow."""

from collections.abc import Mapping
from typing import NamedTuple

from tff_adaptive import optimizers
from tff_adaptive import parameters


class Mix(NamedTuple):
  """The choices of a blended client; see `blended.build_blended`.

  Attributes:
    optimizers: Shares by optimizer.
    rates: Learning rates by optimizer, where they were given.
    delays: Shares by delay.
    epochs: Shares by local epochs.
  """

  optimizers: Mapping[str, float]
  rates: Mapping[str, float]
  delays: Mapping[int, float]
  epochs: Mapping[int, float]


def read(
  *,
  client_mix: str,
  client_learning_rates: str,
  delay_mix: str,
  epochs_mix: str,
) -> Mix:
  """Reads the arguments of `blended.build_blended`.

  Raises:
    ParameterError: If one cannot be read or its shares do not sum to 1.
  """
  shares, rates = _read_optimizers(client_mix, client_learning_rates)
  return Mix(
    shares,
    rates,
    read_counts(delay_mix, 'delay_mix'),
    read_counts(epochs_mix, 'epochs_mix'),
  )


def read_mix(text: str, name: str) -> dict[str, float]:
  """Reads 'adam=0.5,sgd=0.5'.

  Raises:
    ParameterError: If it cannot be read, a share is negative, or the shares do
      not sum to 1.
  """
  mix: dict[str, float] = {}
  for part in text.split(','):
    word, _, share = part.partition('=')
    try:
      value = float(share)
    except ValueError:
      value = float('nan')
    word = word.strip()
    if not word or not value >= 0 or word in mix:
      raise parameters.ParameterError(
        name,
        '{} must list each choice once with its share, such as '
        "'a=0.25,b=0.75', got {text!r}.",
        text=text,
      )
    mix[word] = value
  total = sum(mix.values())
  if abs(total - 1) > 1e-6:
    raise parameters.ParameterError(
      name,
      'The shares of {} must sum to 1, got {total:g} from {text!r}.',
      total=total,
      text=text,
    )
  return mix


def read_counts(text: str, name: str) -> dict[int, float]:
  """Reads '1=0.5,5=0.5'.

  Raises:
    ParameterError: As `read_mix`, or if a choice is no whole number from 1 on.
  """
  counts = {}
  for word, share in read_mix(text, name).items():
    if not word.isdecimal() or int(word) < 1:
      raise parameters.ParameterError(
        name,
        'The choices of {} must be whole numbers at least 1, got {word!r}.',
        word=word,
      )
    counts[int(word)] = share
  return counts


def _read_optimizers(mix: str, rates: str) -> tuple[dict[str, float], dict]:
  shares = read_mix(mix, 'client_mix')
  accepted = optimizers.client_names()
  for name in shares:
    if name not in accepted:
      raise parameters.ParameterError(
        'client_mix',
        '{} may name {accepted}, got {name!r}.',
        accepted=', '.join(accepted),
        name=name,
      )
  given: dict[str, float] = {}
  for part in filter(None, rates.split(',')):
    name, _, rate = part.partition('=')
    own = optimizers.parameters_of('client', name) if name in shares else {}
    if 'learning_rate' not in own:
      raise parameters.ParameterError(
        'client_learning_rates',
        '{} gives rates to optimizers of {client_mix} that have one, such as '
        "'adam=0.001', got {part!r}.",
        part=part,
      )
    try:
      given[name] = own['learning_rate'].parse(rate)
    except parameters.ParameterError as e:
      raise e.renamed(lambda _: 'client_learning_rates') from e
  return shares, given
