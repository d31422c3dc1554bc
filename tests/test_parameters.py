"""Hyperparameters: ranges, words, and the classes that declare them."""

import dataclasses
import inspect
import pickle
from typing import Literal, Optional

import pytest

from tff_adaptive import parameters


class Base(parameters.Described):
  """Fields that subclasses inherit."""

  rate: parameters.Positive = 0.5
  """How fast,
  in units of x."""

  decay: parameters.Fraction = 0.9
  """Per step."""


class Rule(Base):
  """All kinds of hyperparameters."""

  decay: parameters.Fraction = 0.8
  steps: parameters.Count = 1
  word: Literal['one', 'two'] = 'one'
  flag: bool = False
  maybe: Optional[parameters.NonNegative] = None
  _cache: int = 0

  def check(self):
    if self.flag and self.word == 'two':
      raise parameters.ParameterError('flag', '{} does not go with {word}=two.')


class Needy(Base):
  """A field without a default."""

  size: parameters.Count


@pytest.fixture(name='read')
def _read():
  return parameters.parameters_of(Rule)


def test_fields_are_hyperparameters(read):
  assert list(read) == ['decay', 'steps', 'word', 'flag', 'maybe', 'rate']
  assert read['rate'].default == 0.5 and not read['rate'].required
  assert read['word'].choices == ('one', 'two')
  assert read['maybe'].optional and read['maybe'].default is None
  assert read['flag'].kind is bool
  assert parameters.parameters_of(Needy)['size'].required


def test_an_inherited_field_is_described_once(read):
  assert read['rate'].help == 'How fast, in units of x.'
  assert read['decay'].help == 'Per step.' and read['decay'].default == 0.8
  assert read['steps'].help == ''


def test_a_description_is_frozen_and_compared_by_its_values():
  rule = Rule(rate=1)
  assert rule == Rule(rate=1.0) and hash(rule) == hash(Rule(rate=1.0))
  assert rule != Rule() and rule != Base(rate=1)
  with pytest.raises(dataclasses.FrozenInstanceError):
    rule.rate = 2.0
  with pytest.raises(TypeError):
    Rule(1.0)
  with pytest.raises(TypeError, match='size'):
    Needy()


def test_values_that_do_not_fit_each_other_are_refused():
  with pytest.raises(parameters.ParameterError, match='`flag` does not go'):
    Rule(flag=True, word='two')
  with pytest.raises(parameters.ParameterError, match='`flag` does not go'):
    dataclasses.replace(Rule(flag=True), word='two')


@pytest.mark.parametrize(
  'name,value,words',
  [
    ('rate', 0, 'a number above 0, got 0'),
    ('rate', float('nan'), 'a number above 0, got nan'),
    ('rate', float('inf'), 'a number above 0, got inf'),
    ('rate', 'fast', "a number above 0, got 'fast'"),
    ('rate', True, 'a number above 0, got True'),
    ('rate', None, 'a number above 0, got None'),
    ('decay', 1.0, 'a number at least 0 and below 1, got 1.0'),
    ('steps', 1.5, 'a whole number at least 1, got 1.5'),
    ('steps', 0, 'a whole number at least 1, got 0'),
    ('word', 'three', "one of 'one', 'two', got 'three'"),
    ('flag', 1, 'True or False, got 1'),
    ('maybe', -1, 'a number at least 0 or None, got -1'),
  ],
)
def test_values_out_of_range_are_refused_in_words(read, name, value, words):
  with pytest.raises(parameters.ParameterError) as error:
    Rule(**{name: value})
  assert str(error.value).startswith(f'`{name}` must be {words}')
  with pytest.raises(parameters.ParameterError) as error:
    read[name].check(value)
  told = error.value.told(lambda parameter: f'--{parameter}')
  assert told.startswith(f'--{name} must be {words}')


def test_values_in_range_arrive_with_the_type_that_is_meant():
  got = Rule(rate=1, steps=2.0, maybe=None)
  assert got.rate == 1.0 and isinstance(got.rate, float)
  assert got.steps == 2 and isinstance(got.steps, int)
  assert got.maybe is None


@pytest.mark.parametrize(
  'name,text,value',
  [
    ('rate', '1e-3', 1e-3),
    ('steps', '3', 3),
    ('word', 'two', 'two'),
    ('flag', 'true', True),
    ('flag', 'False', False),
    ('maybe', 'None', None),
    ('maybe', '0', 0.0),
  ],
)
def test_words_of_the_command_line(read, name, text, value):
  assert read[name].parse(text) == value


def test_words_that_cannot_be_read(read):
  with pytest.raises(parameters.ParameterError, match="got 'abc'"):
    read['rate'].parse('abc')
  with pytest.raises(parameters.ParameterError, match="got 'maybe'"):
    read['flag'].parse('maybe')


def test_help_of_arguments_is_read_from_a_docstring():
  def build():
    """Does nothing.

    Args:
      rate: How fast,
        in units of x.
      decay, steps: Share one text.

    Returns:
      Nothing.
    """

  helps = parameters.argument_help(inspect.getdoc(build))
  assert helps == {
    'rate': 'How fast, in units of x.',
    'decay': 'Share one text.',
    'steps': 'Share one text.',
  }


def test_errors_are_told_by_the_names_that_were_used():
  error = parameters.ParameterError(
    'rate', '{} is {got!r}, and {other} is {{}}: {got.real:g}.', got=3
  )
  assert str(error) == '`rate` is 3, and `other` is {}: 3.'
  assert (error.parameter, error.names) == ('rate', ['rate', 'other'])
  outer = error.renamed(lambda name: f'client_{name}')
  outer = outer.renamed({'client_rate': 'client_sgd_rate'}.get)
  assert outer.parameter == 'client_sgd_rate'
  error = error.renamed(lambda name: f'server_{name}')
  assert error.told(lambda name: f'--{name}') == (
    '--server_rate is 3, and --server_other is {}: 3.'
  )
  again = pickle.loads(pickle.dumps(error))
  assert str(again) == str(error) and again.names == error.names


def test_values_in_errors_may_look_like_names():
  with pytest.raises(parameters.ParameterError) as raised:
    Rule(word='{rate} {} %s')
  assert "got '{rate} {} %s'" in str(raised.value)


def test_renaming_what_a_block_raises():
  with (
    pytest.raises(parameters.ParameterError, match='`client_rate` must'),
    parameters.renamed({'rate': 'client_rate'}),
  ):
    Rule(rate=-1)
