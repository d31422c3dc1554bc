"""Runs of other people: reading one imports and calls nothing that it names."""

import ast
import json
import pathlib
import sys

import pytest

import main
from tests import made_up
from tests import own_tasks
from tff_adaptive import errors
from tff_adaptive import training
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.report import runs

_ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(name='trap')
def trap_fixture(tmp_path, monkeypatch):
  """A module in the current folder that leaves a mark when it is imported."""
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  (tmp_path / 'trap_of_a_run.py').write_text(
    'import pathlib\n'
    'DEFAULT = len("computed")\n'
    'def mark(cmd: str = "", count=DEFAULT, **_):\n'
    '  pathlib.Path("called").write_text(cmd)\n'
    'pathlib.Path("imported").write_text("")\n'
  )
  yield tmp_path
  sys.modules.pop('trap_of_a_run', None)


def foreign(folder, **settings):
  """Makes a run and changes what its hparams.json says."""
  run = made_up.run(folder, 'run', '--total_rounds=2')
  hparams = json.loads((run / 'hparams.json').read_text())
  hparams['settings'] |= settings
  (run / 'hparams.json').write_text(json.dumps(hparams))
  return run


def marks(folder):
  return {p.name for p in folder.iterdir()} & {'imported', 'called', 'new'}


_NAMED = [
  dict(task='subprocess:getoutput', getoutput_cmd='touch called'),
  dict(task='trap_of_a_run:mark', mark_cmd='x', mark_count=3),
  dict(task='table', table_path='people.csv', model='trap_of_a_run:mark'),
]


@pytest.mark.parametrize('settings', _NAMED)
def test_export_calls_nothing_that_a_run_names(trap, capsys, settings):
  (trap / 'people.csv').write_text('x,label,client\n1,a,b\n2,b,b\n' * 9)
  run = foreign(trap, **settings)
  assert main.main(['export', str(run), 'new']) == 2
  [said] = capsys.readouterr().err.splitlines()
  flag = '--model' if 'model' in settings else '--task'
  assert f'{flag}={settings[flag[2:]]}' in said and 'trust' in said
  # What the function would be given is seen before anybody agrees.
  assert 'getoutput_cmd' not in settings or "'touch called'" in said
  assert not marks(trap)
  # Another function than the run's is no answer.
  assert main.main(['export', str(run), 'new', f'{flag}=os:getcwd']) == 2
  assert f'{flag}={settings[flag[2:]]}' in capsys.readouterr().err
  assert not marks(trap)


@pytest.mark.parametrize('settings', _NAMED)
@pytest.mark.parametrize(
  'words', [['report', '.'], ['compare', 'run']], ids=lambda w: w[0]
)
def test_reports_call_nothing_that_a_run_names(trap, capsys, words, settings):
  foreign(trap, **settings)
  assert main.main(words) == 0
  capsys.readouterr()
  assert not marks(trap)


@pytest.mark.exhaustive
def test_agreed_code_is_called(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', [str(tmp_path), *sys.path])
  place = own_tasks.write(tmp_path, 'own_agreed')
  settings = training.settings(
    task=place,
    hospital_sites=3,
    clients_per_round=2,
    total_rounds=1,
    experiment_name='run',
    root_output_dir=str(tmp_path),
  )
  training.run(settings, say=lambda _: None)
  with pytest.raises(errors.SettingsError, match='hospital_sites=3'):
    export.export(settings.folder, tmp_path / 'new')
  export.export(settings.folder, tmp_path / 'new', task=place)
  assert (tmp_path / 'new' / 'export.json').exists()


@pytest.mark.parametrize(
  'flag, value, part',
  [
    ('--task', 'digits', 'is only for runs with a user-defined task'),
    ('--model', 'os:getcwd', 'is only for runs with a user-defined task'),
  ],
)
def test_code_that_a_run_does_not_ask_for(tmp_path, capsys, flag, value, part):
  run = made_up.run(tmp_path, 'run', '--total_rounds=2')
  target = str(tmp_path / 'new')
  assert main.main(['export', str(run), target, f'{flag}={value}']) == 2
  assert part in capsys.readouterr().err


@pytest.mark.parametrize(
  'settings',
  [
    dict(runtime='in_process; import os'),
    dict(runtime='native', ema_decay='0.9'),
    dict(root_output_dir='/', experiment_name='x'),
    dict(configuration='x'),
    dict(task_options='x'),
    dict(runtime_options='x'),
    dict(algorithm='os:getcwd'),
    dict(client_optimizer='os:getcwd'),
    dict(seed='0'),
    dict(seed=-1),
    dict(freeze=3),
    dict(total_rounds=True),
    dict(validation_split=7),
    dict(clients_per_round=2.5),
  ],
)
def test_settings_of_odd_kinds_are_a_sentence(tmp_path, settings):
  run = foreign(tmp_path, **settings)
  try:
    read = export.settings_of(runs.load(run))
  except errors.SettingsError as e:
    assert str(run) in str(e)
  else:
    assert read.runtime in ('in_process', 'native')
    assert read.folder == run


def test_nothing_unpacks_code():
  """No call in the sources builds objects, and so calls, of what a file says.

  A Keras model is never read, only its weights.
  """
  forbidden = {
    *('load_model', 'model_from_json', 'model_from_config', 'from_config'),
    *(
      'deserialize',
      'deserialize_keras_object',
      'enable_unsafe_deserialization',
    ),
    *('unsafe_load', 'Unpickler', 'exec', 'load_library', 'load_op_library'),
  }
  found = []
  for path in [
    *_ROOT.glob('tff_adaptive/**/*.py'),
    *_ROOT.glob('tasks/**/*.py'),
  ]:
    for node in ast.walk(ast.parse(path.read_text('utf-8'))):
      if isinstance(node, ast.Call):
        name = getattr(node.func, 'attr', getattr(node.func, 'id', ''))
        module = getattr(getattr(node.func, 'value', None), 'id', '')
        if name in forbidden or module in ('pickle', 'marshal', 'dill'):
          found.append(f'{path.relative_to(_ROOT)}:{node.lineno} {name}')
  assert not found
