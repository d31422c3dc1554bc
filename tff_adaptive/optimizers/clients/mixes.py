"""Parsers of mixes, choices with their probabilities; imports no TensorFlow."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tff_adaptive import optimizers
from tff_adaptive import parameters


class Mix(NamedTuple):
  """The parsed choices of a blended client; see `blended.Blended`.

  Attributes:
    optimizers: Probability of each optimizer.
    settings: Hyperparameters given for each optimizer: 'learning_rate', 'delay'
      and 'initial_accumulator'.
    delays: Probability of each delay, for optimizers without one of their own.
    epochs: Probability of each number of local epochs, for optimizers without
      one of their own.
    own_epochs: Local epochs of each optimizer for which they are given.
    weights: Factor of the pseudo-gradient of each optimizer for which it is
      given.
  """

  optimizers: Mapping[str, float]
  settings: Mapping[str, Mapping[str, Any]]
  delays: Mapping[int, float]
  epochs: Mapping[int, float]
  own_epochs: Mapping[str, int]
  weights: Mapping[str, float]

  @property
  def longest(self) -> int:
    """The largest number of local epochs that a client may sample."""
    return max([*self.epochs, *self.own_epochs.values()])


def read(
  *,
  client_mix: str,
  client_learning_rates: str,
  client_delays: str,
  client_epochs: str,
  client_starts: str,
  client_weights: str,
  delay_mix: str,
  epochs_mix: str,
) -> Mix:
  """Parses the hyperparameters of `blended.Blended`.

  Raises:
    ParameterError: If one cannot be parsed or its probabilities do not sum to
      1.
  """
  shares = _read_optimizers(client_mix)
  settings: dict[str, dict[str, Any]] = {name: {} for name in shares}
  for argument, text, flag, example in (
    ('learning_rate', client_learning_rates, 'client_learning_rates', '0.001'),
    ('delay', client_delays, 'client_delays', '5'),
    ('initial_accumulator', client_starts, 'client_starts', '0.01'),
  ):
    kinds = {
      name: own[argument]
      for name in shares
      if argument in (own := optimizers.parameters_of('client', name))
    }
    for name, value in _read_values(text, flag, kinds, example).items():
      settings[name][argument] = value
  count = parameters.Parameter('epochs', parameters.Count, 1, '')
  weight = parameters.Parameter('weight', parameters.Positive, 1.0, '')
  return Mix(
    shares,
    settings,
    read_counts(delay_mix, 'delay_mix'),
    read_counts(epochs_mix, 'epochs_mix'),
    _read_values(
      client_epochs, 'client_epochs', dict.fromkeys(shares, count), '2'
    ),
    _read_values(
      client_weights, 'client_weights', dict.fromkeys(shares, weight), '0.5'
    ),
  )


def read_mix(text: str, name: str) -> dict[str, float]:
  """Parses probabilities of named choices, such as 'adam=0.5,sgd=0.5'.

  Raises:
    ParameterError: If the text cannot be parsed, a probability is negative, or
      the probabilities do not sum to 1.
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
        '{} must list each choice once with its probability, such as '
        "'a=0.25,b=0.75', got {text!r}.",
        text=text,
      )
    mix[word] = value
  total = sum(mix.values())
  if abs(total - 1) > 1e-6:
    raise parameters.ParameterError(
      name,
      'The probabilities of {} must sum to 1, got {total:g} from {text!r}.',
      total=total,
      text=text,
    )
  return mix


def read_counts(text: str, name: str) -> dict[int, float]:
  """Parses probabilities of positive integers, such as '1=0.5,5=0.5'.

  Raises:
    ParameterError: If `read_mix` raises it, or a choice is not an integer of at
      least 1.
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


def _read_optimizers(mix: str) -> dict[str, float]:
  """Parses the probabilities of optimizers and checks the optimizers' names."""
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
  return shares


def _parts(text: str) -> list[str]:
  return [part.strip() for part in text.split(',') if part]


def _read_values(
  text: str,
  flag: str,
  kinds: Mapping[str, parameters.Parameter],
  example: str,
) -> dict[str, Any]:
  """Parses one value per optimizer, such as 'adam=0.001,sgd=0.1'.

  Args:
    text: The text to parse.
    flag: The argument that the text was given as.
    kinds: The parameter that each optimizer's value must satisfy; optimizers
      without the parameter are absent.
    example: An example of a value, for the error message.

  Raises:
    ParameterError: If the text cannot be parsed, names an optimizer twice or
      names an optimizer without the parameter.
  """
  given: dict[str, Any] = {}
  for part in _parts(text):
    name, _, value = part.partition('=')
    if name not in kinds or name in given:
      raise parameters.ParameterError(
        flag,
        '{} must name, once each, optimizers of {client_mix} that have one, '
        "such as 'adam={example}', got {part!r}.",
        example=example,
        part=part,
      )
    try:
      given[name] = kinds[name].parse(value)
    except parameters.ParameterError as e:
      raise e.renamed(lambda _: flag) from e
  return given
