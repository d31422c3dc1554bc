"""Search spaces and their trials."""

import dataclasses
import json
import math
import os
import pathlib

import pytest

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.sweep import grids


def parse(dimensions, method='fedavg'):
  form = {'source': 'x', 'dimensions': dimensions}
  return spaces.parse(form, 'it', method)


def checked(folder, dimensions):
  submission = entries.Submission('fedavg', parse(dimensions))
  chosen = workloads.choose('hospitals')
  runner.Runner(submission, chosen, folder, {}, {}).check(entries.PROTOCOLS[1])


def _read_space(path):
  return spaces.read(path, 'fedavg')


def test_every_method_with_clients_has_a_space_and_a_source():
  assert set(spaces.METHODS) == set(algorithms.names()) - {'centralized'}
  for name in spaces.METHODS:
    assert len(spaces.of_method(name).source) > 20, name
  with pytest.raises(errors.SettingsError, match="got 'centralized'"):
    spaces.of_method('centralized')


@pytest.mark.parametrize('method', spaces.METHODS)
def test_methods_accept_their_trials(method):
  parser, workload = grids.Parser({}), workloads.GROUPS['core'][2]
  trials = spaces.of_method(method).trials(workload.name, workload.rounds)[:16]
  for flags in (*trials, {}):
    parser.parse({**workload.flags(), 'algorithm': method, **flags})


def test_spaces_are_read_as_they_are_written():
  for name in spaces.METHODS:
    space = spaces.of_method(name)
    plain = json.loads(json.dumps(dataclasses.asdict(space)))
    assert spaces.parse(plain, 'it', name) == space


def test_trials_fill_the_space_evenly():
  space = spaces.Space('x', {'a': {'low': 1e-3, 'high': 1e1}})
  drawn = [float(f['a']) for f in space.trials('digits', 100)[:16]]
  decades = [math.floor(math.log10(v)) for v in drawn]
  # A Sobol sequence has as many points in each quarter.
  assert sorted(decades) == [-3] * 4 + [-2] * 4 + [-1] * 4 + [0] * 4
  longer = [float(f['a']) for f in space.trials('digits', 100)]
  assert longer[:16] == drawn
  other = [float(f['a']) for f in space.trials('hospitals', 100)[:16]]
  assert other != drawn


def test_discrete_values_come_equally_often():
  space = spaces.Space(
    'x', {'a': {'values': [1, 2]}, 'b': {'low': 1, 'high': 2}}
  )
  drawn = [flags['a'] for flags in space.trials('digits', 100)[:16]]
  assert drawn.count('1') == drawn.count('2') == 8


def test_a_value_may_be_several_flags_and_the_horizon():
  cosine = {'client_lr_schedule': 'cosine', 'client_lr_decay_steps': 'horizon'}
  space = parse({'schedule': {'values': [{}, cosine]}})
  found = {tuple(f.items()) for f in space.trials('digits', 77)}
  assert found == {
    (),
    (('client_lr_schedule', 'cosine'), ('client_lr_decay_steps', '77')),
  }


@pytest.mark.parametrize(
  'dimension, message',
  [
    ({'low': 1}, "'high' is a required property"),
    ({'high': 1}, "'low' is a required property"),
    ({'low': 1, 'high': 1}, '0 < low < high'),
    ({'low': 1, 'high': math.inf}, '0 < low < high'),
    ({'low': 1e-300, 'high': 1e300}, '0 < low < high'),
    ({'low': math.nan, 'high': 1}, '0 < low < high'),
    ({'low': 0, 'high': 1}, r'\$\.dimensions\.a\.low, 0 is less than'),
    ({'low': 'a', 'high': 1}, "low, 'a' is not of type 'number'"),
    ({'low': 1, 'high': 2, 'step': 1}, "'step' was unexpected"),
    ({'low': 1, 'high': 2, 'values': [1]}, 'were unexpected'),
    ({'values': []}, r'values, \[\] should be non-empty'),
    ({'values': 3}, "values, 3 is not of type 'array'"),
    ({'values': [None]}, r'values\[0\], None is not of type'),
    ({'step': 1}, 'is a required property'),
    (3, "a, 3 is not of type 'object'"),
  ],
)
def test_bad_dimensions_are_refused(dimension, message):
  with pytest.raises(errors.SettingsError, match=message):
    parse({'a': dimension})


_FIXED = {
  'task': 'evil_mod:pwn',
  'algorithm': 'fedadam',
  'preset': 'fedopt/emnist/fedadam',
  'digits_alpha': 1000,
  'runtime': 'native',
  'ray_address': 'auto',
  'total_rounds': 9,
  'client_batch_size': 9,
  'client_devices': 'cross_silo',
  'validation_split': 'test',
  'seed': 1,
  'root_output_dir': '/tmp/elsewhere',
  'initial_weights': '/tmp/export',
  'cache_dir': '/tmp',
  'trackers': 'mlflow:http://localhost',
  'dp_clip_norm': 1,
  'aggregator': 'compression',
  'nobody': 1,
}


@pytest.mark.parametrize('flag', _FIXED)
def test_only_settings_of_the_method_are_tuned(flag):
  rate = {'client_learning_rate': 0.05}
  for form in (
    {flag: {'values': [_FIXED[flag]]}},
    {flag: {'values': [rate, _FIXED[flag]]}},
    {flag: {'low': 1, 'high': 2}},
    {'both': {'values': [{flag: _FIXED[flag]}]}},
    {'both': {'values': [rate, {**rate, flag: _FIXED[flag]}]}},
    {'client_learning_rate': {'values': [0.1, {flag: _FIXED[flag]}]}},
  ):
    with pytest.raises(errors.SettingsError, match=f'tunes {flag!r}'):
      parse(form)


@pytest.mark.parametrize(
  'dimension, message',
  [
    ({'client_optimizer': {'values': ['evil_mod:pwn']}}, "got 'evil_mod:pwn'"),
    ({'server_optimizer': {'values': ['sgd', 'json']}}, "got 'json'"),
    ({'client_learning_rate': {'values': ['evil_mod:pwn']}}, 'evil_mod:pwn'),
    ({'client_learning_rate': {'values': [-1]}}, 'got -1'),
    ({'s': {'values': [{'client_lr_schedule': 'a.csv'}]}}, "got 'a.csv'"),
    ({'client_momentum': {'low': 0.5, 'high': 3}}, 'client_momentum must be'),
  ],
)
def test_values_are_those_that_the_method_accepts(tmp_path, dimension, message):
  with pytest.raises(errors.SettingsError, match=message):
    checked(tmp_path, dimension)


def test_own_options_cannot_be_named_like_the_workloads(monkeypatch):
  monkeypatch.setattr(methods._TABLE, '_rows', dict(methods._TABLE))

  @methods.method('strong')
  class Strong(methods.Options):
    """A method with options of its own."""

    strength: parameters.Positive = 1.0
    """The strength."""

  assert Strong.strength == 1.0
  # Registered after spaces were read.
  parse({'strength': {'low': 1, 'high': 2}}, 'strong')
  with pytest.raises(errors.SettingsError, match="tunes 'total_rounds'"):
    parse({'total_rounds': {'values': [7]}}, 'strong')

  @methods.method('stronger')
  class Stronger(Strong):
    """A method with an option of all runs."""

    total_rounds: parameters.Count = 5
    """The number of rounds."""

  assert Stronger.total_rounds == 5
  with pytest.raises(
    errors.SettingsError, match="'total_rounds', which is a f"
  ):
    parse({'total_rounds': {'values': [7]}}, 'stronger')


def test_methods_that_are_not_registered_have_no_space():
  for name in ('pulled', 'centralized', 'evil_mod:pwn', r'\\input{x}', 3, []):
    with pytest.raises(errors.SettingsError, match='there is no such method'):
      parse({'client_learning_rate': {'values': [1]}}, name)


def test_optimizers_bring_their_settings(tmp_path):
  adam = {'client_optimizer': 'adam', 'client_beta_1': 0.9}
  form = {
    'client': {'values': [{'client_optimizer': 'sgd'}, adam]},
    'server': {
      'values': [
        {'server_optimizer': 'biclip', 'server_clip_upper': 0.1},
        {'server_lr_schedule': 'cosine', 'server_lr_decay_steps': 'horizon'},
      ]
    },
  }
  checked(tmp_path, form)
  form['client'] = {'values': [{}, {'client_beta_1': 0.9}]}
  with pytest.raises(errors.SettingsError, match='client_beta_1'):
    checked(tmp_path, form)


def test_values_in_mappings_are_single():
  for value in ([1], {'a': 1}, None):
    form = {'s': {'values': [{'client_learning_rate': value}]}}
    with pytest.raises(errors.SettingsError, match='is not of type'):
      parse(form)


@pytest.mark.parametrize('text', ['{', '[]', '{"dimensions": {}}', '{"a": 1}'])
def test_files_that_hold_no_space_are_named(tmp_path, text):
  path = tmp_path / 'space.json'
  path.write_text(text)
  with pytest.raises(errors.SettingsError, match=r'space\.json'):
    spaces.read(path, 'fedavg')


def test_pipes_and_devices_are_not_read(tmp_path):
  os.mkfifo(tmp_path / 'pipe')
  for path in (tmp_path / 'pipe', pathlib.Path('/dev/zero'), tmp_path):
    for read in (_read_space, entries.read, grids.read_axes):
      with pytest.raises(errors.SettingsError, match='not a regular'):
        read(path)


def test_numbers_have_few_digits():
  space = spaces.Space('x', {'a': {'low': 1e-3, 'high': 1e2}})
  for flags in space.trials('digits', 100):
    assert len(flags['a']) <= 9 and 1e-3 <= float(flags['a']) <= 1e2
