"""--task=package.module:function: its flags, its checks, its runs."""

import json
import os
import pathlib
import sys

import pytest

import tasks
from tests import own_tasks
from tests import programs
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import training
from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.report import page
from tff_adaptive.lab.sweep import flags as sweep_flags


@pytest.fixture(name='place', scope='module')
def place_fixture(tmp_path_factory):
  """A task in the current folder."""
  folder = tmp_path_factory.mktemp('own')
  before, path = os.getcwd(), list(sys.path)
  os.chdir(folder)
  yield own_tasks.write(folder, 'own_points')
  os.chdir(before)
  sys.path[:] = path


def parse(*arguments):
  return flags.Flags().parse(arguments)


def complaint(*arguments):
  with pytest.raises(errors.SettingsError) as error:
    parse(*arguments)
  assert '\n' not in str(error.value) and str(error.value).endswith('.')
  return str(error.value)


def test_arguments_are_flags(place, tmp_path):
  settings = parse(
    f'--task={place}', '--hospital_sites=6', '--nohospital_hard'
  ).settings
  assert settings.task == place
  assert settings.task_options == {
    'sites': 6,
    'skew': 0.5,
    'hard': False,
    'model': 'small',
    'batch_size': 8,
  }
  assert settings.identity['task'] == place
  assert settings.identity['hospital_sites'] == 6
  assert settings.identity['client_batch_size'] == 8
  assert settings.name.startswith('hospital-delta_sgd-')
  # In a file of flags and from Python just the same.
  file = tmp_path / 'own.flags'
  file.write_text(f'--hospital_sites=6\n--task\n{place}\n')
  assert parse(f'--flagfile={file}').settings.identity == settings.identity
  same = training.settings(task=place, hospital_sites=6)
  assert same.identity == settings.identity
  shared = parse(f'--task={place}', '--client_batch_size=3').settings
  assert shared.task_options['batch_size'] == 3


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--hospital_sites=0.5'], ['--hospital_sites', 'whole number', '0.5']),
    (['--hospital_skew=much'], ['--hospital_skew', 'a number', 'much']),
    (['--hospital_model=huge'], ['--hospital_model', "'small', 'large'"]),
    (['--hospital_site=3'], ['--hospital_site;', '--hospital_sites']),
    (['--data=synthetic'], ['--data=synthetic', 'would be ignored']),
    (['--cache_dir=x'], ['--cache_dir=x', 'would be ignored']),
    (
      ['--client_epochs_per_round=2'],
      ['=2 would be ignored', 'no such option'],
    ),
    (['--digits_alpha=2'], ['--digits_alpha', 'would be ignored']),
  ],
)
def test_what_is_wrong_with_its_flags(place, arguments, parts):
  message = complaint(f'--task={place}', *arguments)
  assert all(part in message for part in parts), message


def test_functions_that_cannot_be_tasks(place, tmp_path):
  module = place.partition(':')[0]
  pathlib.Path('own_odd.py').write_text(
    'def client(learning_rate=1.0):\n  pass\n'
    'def needs(path: str, data="points.csv", epochs: int = 3):\n  pass\n'
    'def kept(cache_dir="/data"):\n  pass\n'
    'def digits(alpha=1.0):\n  pass\n'
  )
  assert f'{module}.py defines no function wrong' in complaint(
    f'--task={module}:wrong'
  )
  assert 'there is no module nowhere' in complaint('--task=nowhere:wrong')
  assert 'MODULE:FUNCTION' in complaint('--task=hospital')
  assert complaint('--task=own_odd:needs') == (
    '--needs_path must be given: --task=own_odd:needs has no default for it.'
  )
  for place, flag in (
    ('own_odd:client', '--client_learning_rate'),
    ('own_odd:digits', '--digits_alpha'),
  ):
    message = complaint(f'--task={place}')
    assert f'whose flag {flag} already exists' in message
  # Its own `data` is no choice between real and synthetic ones; the function's
  # own default is the flag's.
  settings = parse('--task=own_odd:needs', '--needs_path=x').settings
  assert settings.task_options == dict(path='x', data='points.csv', epochs=3)
  assert settings.identity['client_epochs_per_round'] == 3
  assert settings.identity['needs_data'] == 'points.csv'
  with pytest.raises(parameters.ParameterError, match='has no default'):
    training.settings(task='own_odd:needs')
  kept, elsewhere = (
    parse('--task=own_odd:kept', *more).settings
    for more in ([], ['--cache_dir=x'])
  )
  assert kept.task_options == dict(cache_dir='/data')
  assert elsewhere.task_options == dict(cache_dir='x')
  assert kept.identity == elsewhere.identity


def test_a_sweep_knows_the_flags_of_an_axis(place):
  sweep = sweep_flags.parse(
    [f'--axis=task={place}', '--axis=hospital_sites=3,5', '--hospital_skew=1']
  )
  assert [p.settings.task_options['sites'] for p in sweep.points] == [3, 5]
  assert all(p.settings.task_options['skew'] == 1.0 for p in sweep.points)
  assert sweep.folder.name.startswith('sweep-hospital-')


def test_help_tells_its_flags(place, capsys):
  assert command_line.main([f'--task={place}', '--help']) == 0
  text = capsys.readouterr().out
  assert f'Of --task={place}:' in text
  assert '  --hospital_sites\n      Number of hospitals. Default: 4.' in text
  assert command_line.main(['--task=own_points:wrong', '--help']) == 2


@pytest.mark.exhaustive
def test_an_entry_point_names_a_task(tmp_path):
  own_tasks.write(tmp_path, 'installed_points')
  info = tmp_path / 'mine-1.0.dist-info'
  info.mkdir()
  (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: mine\n')

  def run(entries, *arguments, code=2):
    (info / 'entry_points.txt').write_text(f'[tff_adaptive.tasks]\n{entries}')
    return programs.run(
      programs.MAIN, *arguments, code=code, PYTHONPATH=tmp_path
    )

  both = 'clinic = installed_points:hospital\nlost = installed_points:nothing\n'
  listed = run(both, 'list', code=0)
  assert '  clinic                Points of hospitals, of two' in listed.stdout
  assert 'The task that installed_points:nothing returns' in listed.stdout
  wrong = run(both, '--task=clinic', '--clinic_sites=x')
  assert wrong.stderr == "--clinic_sites must be a whole number, got 'x'.\n"
  lost = run(both, '--task=lost')
  assert 'defines no function nothing' in lost.stderr
  taken = run('digits = installed_points:hospital\n', 'list')
  assert 'entry point digits' in taken.stderr
  assert len(taken.stderr.splitlines()) == 1


_SMALL = ('--total_rounds=2', '--rounds_per_eval=1', '--clients_per_round=2')


@pytest.mark.exhaustive
def test_a_run_and_its_description(place, capsys):
  computed = own_tasks.write(
    pathlib.Path.cwd(), 'own_computed', computed_default=True
  )
  arguments = [f'--task={computed}', '--hospital_skew=0.1', *_SMALL]
  assert command_line.main([*arguments, '--dry_run']) == 0
  text = capsys.readouterr().out
  assert f'task         {computed}: Points of hospitals, of two classes' in text
  assert 'model        8 weights' in text
  assert 'clients      2 of 4' in text and '--hospital_skew=0.1' in text
  assert command_line.main([*arguments, '--experiment_name=one']) == 0
  folder = pathlib.Path('runs/one')
  hparams = json.loads((folder / 'hparams.json').read_text())
  assert hparams['settings']['task'] == computed
  assert len((folder / 'metrics.csv').read_text().splitlines()) == 4
  assert command_line.main([*arguments, '--experiment_name=one']) == 0
  assert 'This run is already finished' in capsys.readouterr().out
  written, _ = page.write(pathlib.Path('runs'))
  assert 'hospital' in written.read_text()
  assert (
    command_line.main(['export', 'runs/one', 'model', f'--task={computed}'])
    == 0
  )


def test_functions_that_do_not_return_a_task(place, capsys):
  del place
  pathlib.Path('own_wrong.py').write_text(
    'def three():\n  return 3\n\n'
    'def fails(sites=2):\n  return 1 / (sites - sites)\n'
  )
  assert command_line.main(['--task=own_wrong:three', '--dry_run']) == 2
  assert capsys.readouterr().err == (
    '--task=own_wrong:three: own_wrong:three must return a '
    'tff.simulation.baselines.BaselineTask, got int.\n'
  )
  assert command_line.main(['--task=own_wrong:fails', '--dry_run']) == 2
  message = capsys.readouterr().err
  assert 'own_wrong:fails fails: ZeroDivisionError: division by' in message
  assert '(line 5 of ' in message and message.count('\n') == 1
  with pytest.raises(tasks.OwnCodeError, match='must return a tff'):
    tasks.create('own_wrong:three')
  with pytest.raises(ValueError, match='no option `what`; it accepts sites'):
    tasks.create('own_wrong:fails', what=1)
