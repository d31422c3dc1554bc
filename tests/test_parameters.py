"""Hyperparameters: ranges, words, and signatures read without importing."""

import pathlib
import pickle
import subprocess
import sys
from typing import Literal
from typing import Optional

import pytest

from tff_adaptive import builders
from tff_adaptive import parameters


@parameters.checked
def build(
  model=None,
  *,
  rate: parameters.Positive = 0.5,
  decay: parameters.Fraction = 0.9,
  steps: parameters.Count = 1,
  word: Literal['one', 'two'] = 'one',
  flag: bool = False,
  maybe: Optional[parameters.NonNegative] = None,
):
  """Does nothing.

  Args:
    model: Not checked.
    rate: How fast,
      in units of x.
    decay, steps: Share one text.
    word: Which.

  Returns:
    All of them.
  """
  return dict(
    rate=rate, decay=decay, steps=steps, word=word, flag=flag, maybe=maybe
  )


@pytest.fixture(name='read')
def _read():
  return builders.read(__file__, 'build')


def test_signature_is_read_from_the_source(read):
  assert list(read) == ['rate', 'decay', 'steps', 'word', 'flag', 'maybe']
  assert read['rate'].default == 0.5 and not read['rate'].required
  assert read['rate'].help == 'How fast, in units of x.'
  assert read['decay'].help == read['steps'].help == 'Share one text.'
  assert read['word'].choices == ('one', 'two')
  assert read['maybe'].optional and read['maybe'].default is None
  assert read['flag'].kind is bool


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
    build(**{name: value})
  assert str(error.value).startswith(f'`{name}` must be {words}')
  with pytest.raises(parameters.ParameterError) as error:
    read[name].check(value)
  told = error.value.told(lambda parameter: f'--{parameter}')
  assert told.startswith(f'--{name} must be {words}')


def test_values_in_range_arrive_with_the_type_that_is_meant():
  got = build(rate=1, steps=2.0, maybe=None)
  assert got['rate'] == 1.0 and isinstance(got['rate'], float)
  assert got['steps'] == 2 and isinstance(got['steps'], int)
  assert got['maybe'] is None


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


def test_missing_function_is_an_error():
  with pytest.raises(LookupError, match='no function nothing'):
    builders.read(__file__, 'nothing')
  with pytest.raises(LookupError, match=r'finds no module tff_adaptive\.none'):
    builders.parameters_of('tff_adaptive.none:build')
  with pytest.raises(LookupError, match='finds no module none'):
    builders.parameters_of('none.at.all:build')


@pytest.mark.parametrize(
  'argument', ['rate: Rate = 1.0', 'rate: float = 1 / 3', 'rate: float = ONE']
)
def test_what_cannot_be_read_without_importing_is_an_error(tmp_path, argument):
  path = tmp_path / 'rule.py'
  path.write_text(f'def build(*, {argument}): pass')
  with pytest.raises(LookupError, match='must annotate `rate` of build'):
    builders.read(path, 'build')


def test_functions_are_found_by_their_place():
  place = 'tff_adaptive.optimizers.adam:build_adam'
  assert builders.parameters_of(place)['learning_rate'].default == 0.01
  with pytest.raises(parameters.ParameterError, match='above 0'):
    builders.load(place)(learning_rate=-1.0)
  # A plan has checked its values; they are not checked again.
  assert builders.load(place, checks=False)(learning_rate=-1.0) is not None


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
    build(word='{rate} {} %s')
  assert "got '{rate} {} %s'" in str(raised.value)


def test_renaming_what_a_block_raises():
  with (
    pytest.raises(parameters.ParameterError, match='`client_rate` must'),
    parameters.renamed({'rate': 'client_rate'}),
  ):
    build(rate=-1)


def test_the_package_and_its_lists_import_no_tensorflow():
  code = (
    'import sys\n'
    'from tff_adaptive import algorithms, optimizers\n'
    'for name in algorithms.names(): algorithms.parameters_of(name)\n'
    'optimizers.parameters_of("client", "delta_sgd")\n'
    'algorithms.check("fedadam", client_learning_rate=0.1)\n'
    'assert "tensorflow" not in sys.modules\n'
  )
  root = pathlib.Path(__file__).resolve().parents[1]
  subprocess.run([sys.executable, '-c', code], check=True, cwd=root, timeout=60)
