"""Real processes through the whole program, in this process."""

import collections
import json

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import recorded
from tests import runs
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import training
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.lab.commands import train as command
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training.loop import loop
from tff_adaptive.lab.training.loop import stopping

pytestmark = pytest.mark.usefixtures('undrawn')

# A dense model of two layers, where which one it is does not matter.
_SMALL = ['--task=table']


def settings_of(folder, *arguments):
  usual = ['--data=synthetic', '--total_rounds=4', '--clients_per_round=3']
  usual += ['--rounds_per_eval=2', '--rounds_per_checkpoint=2']
  return runs.settings_of(folder, *usual, *arguments)


def table(settings):
  return recorded.rows(settings.folder)


def test_a_resumed_run_has_the_same_summary(tmp_path):
  folder = files.RunFolder(tmp_path)
  file = tables.RowFile(folder.metrics)
  names = ('recall', 'accuracy', 'loss', 'num_examples')
  file.append({'round': 1, **{f'train/{n}': 0.5 for n in names}})
  text = command.summary(file.rows, folder)
  head = text.splitlines()[0].split()
  assert head == ['round', 'recall', 'accuracy', 'loss', 'num', 'examples']
  read = tables.RowFile(folder.metrics).rows
  assert command.summary(read, folder) == text


@pytest.mark.exhaustive
@pytest.mark.usefixtures('pictures')
def test_default_experiment_stopped_and_resumed(tmp_path, stop_in_round):
  whole = settings_of(tmp_path / 'whole', '--record_step_sizes')
  runs.train(whole)
  parts = settings_of(tmp_path / 'parts', '--record_step_sizes')
  stop_in_round(4)
  with pytest.raises(stopping.Stopped):
    runs.train(parts)
  assert train.prepare(parts) is None
  result = runs.train(parts)
  assert result.resumed_from == 3
  assert table(parts) == table(whole)
  by_client, again = (
    tables.RowFile(files.RunFolder(s.folder).step_sizes).rows
    for s in (whole, parts)
  )
  assert by_client == again

  rows = table(whole)
  assert [r['round'] for r in by_client] == sorted(3 * ['1', '2', '3', '4'])
  for row in rows[1:]:
    own = [r for r in by_client if r['round'] == row['round']]
    assert len({r['client'] for r in own}) == 3
    steps = [int(r['steps']) for r in own]
    mean = np.average([float(r['mean']) for r in own], weights=steps)
    assert mean == pytest.approx(float(row['step_size/mean']), rel=1e-5)
  for column in (
    *('train/loss', 'train/sparse_categorical_accuracy', 'step_size/mean'),
    *('step_size/min', 'step_size/max', 'bytes_down', 'bytes_up'),
    *('clients/rejected', 'update/norm'),
  ):
    assert rows[1][column] != '', column
  assert rows[1]['clients/count'] == '3'
  assert rows[0]['validation/loss'] != rows[-1]['validation/loss']
  finished = train.prepare(whole)
  assert finished is not None
  text = command.summary(finished.rows, files.RunFolder(whole.folder))
  for word in ('train', 'validation', 'test', 'accuracy', 'curves.png'):
    assert word in text
  hparams = json.loads((whole.folder / 'hparams.json').read_text())
  assert hparams['settings'] == whole.identity
  assert hparams['versions']['tensorflow-federated'] == '0.87.0'
  assert (whole.folder / 'partition.npz').exists()
  assert (whole.folder / 'labels.png').exists()
  assert set(hparams['division']['label_distances']) == {
    'jensen_shannon',
    'hellinger',
  }


@pytest.mark.slow
@pytest.mark.parametrize(
  'arguments',
  [
    ['fedexp', '--average_last_two'],
    ['fednova', '--client_momentum=0.5'],
    ['fedcm'],
    ['feddyn'],
    ['fedlesam', '--client_optimizer=dog'],
    ['fedmuon'],
    ['fedadamw'],
    ['fedcams', '--compressor=topk'],
    ['fedsam', '--client_optimizer=prodigy', '--record_step_sizes'],
    ['fedadam', '--client_optimizer=schedule_free_sgd'],
  ],
  ids=lambda arguments: arguments[0],
)
def test_whatever_is_kept_is_resumed(tmp_path, stop_in_round, arguments):
  algorithm, *more = arguments
  whole, parts = (
    settings_of(
      tmp_path / name,
      f'--algorithm={algorithm}',
      *more,
      '--client_lr_schedule=inv_sqrt_decay',
      '--client_lr_decay_steps=2',
      '--client_lr_decay_rate=0.5',
      '--client_warmup_steps=2',
    )
    for name in ('whole', 'parts')
  )
  runs.train(whole)
  stop_in_round(4)
  with pytest.raises(stopping.Stopped):
    runs.train(parts)
  assert runs.train(parts).resumed_from == 3
  assert table(parts) == table(whole)


def test_results_of_nobody_knows_what(tmp_path):
  settings = settings_of(tmp_path)
  settings.folder.mkdir()
  (settings.folder / 'metrics.csv').write_text('round\n0\n')
  with pytest.raises(errors.SettingsError, match=r'hparams.json'):
    train.prepare(settings)


def test_dry_run_says_it_all_and_writes_nothing(tmp_path):
  settings = settings_of(tmp_path / 'runs')
  text = command.describe(settings)
  for part in (
    'eta_k',
    'x = x + learning_rate m / (sqrt(v) + epsilon)',
    '3 of 20 clients a round',
    '4 rounds',
    '--server_learning_rate=0.01',
    'each client receives 54,8',
  ):
    assert part in text, text
  assert not list(tmp_path.iterdir())


def test_more_clients_than_the_task_has(tmp_path):
  settings = settings_of(tmp_path / 'runs', '--clients_per_round=21')
  for run in (train.run, command.describe):
    with pytest.raises(errors.SettingsError, match=r'=21 .* 20 '):
      run(settings)
  assert not list(tmp_path.iterdir())


def test_a_run_from_python(tmp_path):
  said, rows, told = [], [], []

  class Teller(hooks.Hook):
    def start(self, event):
      told.append(('start', event.total_rounds, event.settings['task']))

    def evaluation(self, event):
      told.append(('evaluation', event.round_number, event.final))

    def round(self, event):
      told.append(('round', event.number))
      rows.append(event.row)

    def end(self, event):
      told.append(('end', event.status, event.round_number))

  settings = training.settings(
    task='digits',
    data='synthetic',
    algorithm='fedadam',
    client_learning_rate=0.05,
    beta_1=0.8,
    digits_alpha=2,
    total_rounds=2,
    clients_per_round=3,
    root_output_dir=str(tmp_path),
  )
  assert settings.hyperparameters['beta_1'] == 0.8
  assert settings.task_options['alpha'] == 2.0
  result = training.run(settings, say=said.append, hooks=[Teller()])
  assert len(result.rows) == len(rows) == 3
  assert told == [
    ('start', 2, 'digits'),
    ('evaluation', 0, False),
    ('round', 0),
    ('round', 1),
    ('evaluation', 2, False),
    ('round', 2),
    ('evaluation', 2, True),
    ('end', 'finished', 2),
  ]
  assert float(result.rows[-1]['test/loss']) > 0
  assert (settings.folder / 'metrics.csv').is_file()
  # A picture that could not be written is drawn now.
  (settings.folder / 'curves.png').unlink()
  again = training.run(settings, say=said.append)
  assert (settings.folder / 'curves.png').is_file()
  shown = [
    [{k: v for k, v in row.items() if v} for row in r.rows]
    for r in (result, again)
  ]
  assert shown[0] == shown[1] and not again.seconds
  assert said[-1].startswith('This run is already finished')
  # The command line says the same of it.
  words = ['--task=digits', '--data=synthetic', '--algorithm=fedadam']
  words += ['--client_learning_rate=0.05', '--beta_1=0.8']
  words += ['--digits_alpha=2', '--total_rounds=2', '--clients_per_round=3']
  assert runs.parse(*words).identity == settings.identity


@pytest.mark.parametrize(
  'given, words',
  [
    ({'client_learning_rate': -1}, '`client_learning_rate` must be a number'),
    ({'algorithm': 'fedavg', 'gamma': 1.0}, '`gamma`=1.0 would be ignored'),
    ({'total_rounds': 2.5}, '`total_rounds` must be a whole number'),
    ({'total_round': 2}, 'no flag `total_round`; similar ones are `total_rou'),
    ({'digits_alpha': 0}, '`digits_alpha` must be a number above 0'),
    ({'beta_1': 1}, '`beta_1` must be a number at'),
    ({'task': 'fmnist', 'digits_alpha': 1}, 'would be ignored: `task`=fmnist'),
    ({'worker_retries': 1}, '`worker_retries`=1 would be ignored: `runtime`'),
    ({'preset': 'what'}, '`preset`=what is not a preset'),
    ({'dry_run': True}, 'no flag `dry_run`'),
    (
      {'server_lr_schedule': 'exp_decay', 'server_lr_decay_steps': 3},
      "`server_lr_schedule`='exp_decay' needs `server_lr_decay_rate`.",
    ),
  ],
)
def test_complaints_to_python_name_keywords(given, words):
  if 'client_learning_rate' in given:
    given['client_optimizer'] = 'sgd'
  with pytest.raises(parameters.ParameterError) as raised:
    training.settings(**given)
  assert words in str(raised.value)
  assert '--' not in str(raised.value).replace('see main.py --help', '')


@pytest.mark.exhaustive
def test_one_plan_and_one_of_everything_a_run(tmp_path, monkeypatch):
  """From the flag to the step a value is checked, and a rule built, once."""
  rate = 0.0123457
  counts = collections.Counter()

  def counted(module, name, of=lambda *_, **__: True):
    original = getattr(module, name)

    def count(*args, **kwargs):
      counts[name] += of(*args, **kwargs)
      return original(*args, **kwargs)

    monkeypatch.setattr(module, name, count)

  counted(parameters.Parameter, 'check', lambda _, value: value == rate)
  counted(configuration_lib, 'resolve')
  counted(building, 'build_components')
  counted(tff.learning.optimizers, 'build_sgdm')
  settings = settings_of(
    tmp_path,
    *_SMALL,
    '--total_rounds=1',
    '--algorithm=fedadam',
    f'--client_learning_rate={rate}',
  )
  runs.train(settings)
  once = ('check', 'resolve', 'build_components', 'build_sgdm')
  assert counts == dict.fromkeys(once, 1)


def test_hooks_are_told_of_the_end_even_if_a_stop_cannot_be_saved(
  tmp_path, monkeypatch
):
  ends = []

  class Stopper(hooks.Hook):
    def round(self, event):
      if event.number == 1:
        raise stopping.Stopped(15)

    def end(self, event):
      ends.append((event.status, event.reason))

  def fail(self):
    raise errors.RunError('The disk is full.')

  monkeypatch.setattr(loop.Training, '_save_stopped', fail)
  settings = training.settings(
    task='quadratic', total_rounds=3, root_output_dir=str(tmp_path)
  )
  with pytest.raises(errors.RunError, match='The disk is full'):
    training.run(settings, say=lambda _: None, hooks=[Stopper()])
  [(status, reason)] = ends
  assert status == 'failed' and 'disk is full' in reason


@pytest.mark.parametrize(
  'error', [training.Stopped(), errors.RunError('no network')]
)
def test_a_hook_that_fails_at_the_end_is_told_and_ends_nothing(
  tmp_path, capsys, error
):
  ends = []

  class Last(hooks.Hook):
    def end(self, event):
      ends.append(event.status)
      raise error

  settings = training.settings(
    task='quadratic', total_rounds=1, root_output_dir=str(tmp_path)
  )
  result = training.run(settings, hooks=[Last()])
  assert len(result.rows) == 2 and ends == ['finished']
  told = f'A hook failed at the end of the run: {error}.'
  assert told in capsys.readouterr().out
