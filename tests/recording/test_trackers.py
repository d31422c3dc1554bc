"""Recorders for MLflow and W&B; each needs its package."""

import asyncio
import collections
import importlib.util
import pathlib
import time
import tomllib

import numpy as np
import pytest

from tests import runs
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import releases
from tff_adaptive.lab.recording import trackers
from tff_adaptive.lab.training import experiment

_ROOT = pathlib.Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.usefixtures('undrawn')


def needs(package):
  missing = importlib.util.find_spec(package) is None
  return pytest.mark.skipif(missing, reason=f'{package} is not installed')


def record(hook, folder, *, first=0, last=3, status=hooks.FINISHED):
  """Records rounds, as a run of an identity does."""
  hook.start(
    hooks.Start(
      folder=folder,
      total_rounds=9,
      identity='0123456789abcdef' * 4,
      settings={'task': 'digits', 'seed': 3, 'cohort': None},
      resumed_from=first - 1 if first else None,
    )
  )
  for number in range(first, last + 1):
    row = {'round': number, 'train/loss': np.float32(1 / (number + 1))}
    hook.round(hooks.Round(row=row))
  hook.evaluation(
    hooks.Evaluation(round_number=last, values={'test/loss': 2.0}, final=True)
  )
  hook.end(hooks.End(status=status, round_number=last))


@pytest.mark.parametrize('name', ['mlflow', 'mlflow:', 'tensorboard:x', ':x'])
def test_names_that_are_none(name):
  with pytest.raises(parameters.ParameterError) as raised:
    trackers.build([name])
  assert 'must be mlflow:URI or wandb:PROJECT' in str(raised.value)


@pytest.mark.parametrize('name', ['mlflow:x', 'wandb:x'])
def test_a_package_that_is_missing_is_named(name, tmp_path, monkeypatch):
  settings = runs.settings_of(tmp_path, f'--trackers={name}')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda _: None)
  with pytest.raises(errors.SettingsError) as raised:
    experiment.build_trackers(settings)
  # What pyproject.toml's extra of that name installs.
  with open(_ROOT / 'pyproject.toml', 'rb') as file:
    extras = tomllib.load(file)['project']['optional-dependencies']
  (package,) = extras[name.partition(':')[0]]
  assert str(raised.value).endswith(f': pip install {package}.')
  assert not list(tmp_path.iterdir())


def test_the_flag_may_be_given_several_times():
  words = ['--trackers=mlflow:a', '--trackers=wandb:b,mlflow:c']
  settings = runs.parse(*words)
  assert settings.trackers == ('mlflow:a', 'wandb:b', 'mlflow:c')
  assert settings.identity == runs.parse().identity


@needs('mlflow')
def test_mlflow(tmp_path):
  import mlflow  # pylint: disable=g-import-not-at-top

  uri = f'sqlite:///{tmp_path}/mlflow.db'
  folder = tmp_path / 'mine'
  [hook] = trackers.build([f'mlflow:{uri}'])
  record(hook, folder, last=1, status=hooks.STOPPED)
  record(trackers.MLflow(uri), folder, first=2)
  client = mlflow.MlflowClient(tracking_uri=uri)
  experiment_id = client.get_experiment_by_name('tff_adaptive').experiment_id
  [run] = client.search_runs([experiment_id])
  assert run.info.run_name == 'mine' and run.info.status == 'FINISHED'
  assert run.data.params == {'task': 'digits', 'seed': '3'}
  history = client.get_metric_history(run.info.run_id, 'train/loss')
  assert [(m.step, round(m.value, 3)) for m in history] == [
    (0, 1.0),
    (1, 0.5),
    (2, 0.333),
    (3, 0.25),
  ]
  history = client.get_metric_history(run.info.run_id, 'test/loss')
  assert [m.step for m in history] == [1, 3]


@needs('wandb')
def test_wandb_offline(tmp_path, monkeypatch):
  monkeypatch.setenv('WANDB_MODE', 'offline')
  folder = tmp_path / 'mine'
  folder.mkdir()
  record(trackers.build(['wandb:project'])[0], folder)
  [kept] = folder.glob('wandb/offline-run-*/run-0123456789abcdef*.wandb')
  # A process of W&B's own writes it.
  until = time.monotonic() + 20
  while b'finished' not in kept.read_bytes() and time.monotonic() < until:
    time.sleep(0.1)
  content = kept.read_bytes()
  for word in (b'digits', b'train/loss', b'test/loss', b'finished'):
    assert word in content


class Collecting(hooks.Hook):
  def __init__(self):
    self.told = []

  def start(self, event):
    self.told.append(event)

  round = end = start


def test_a_recorder_as_a_release_manager(tmp_path):
  hook = Collecting()
  metrics = collections.OrderedDict(
    train=collections.OrderedDict(loss=np.float32(0.5), words=b'no number'),
    count=3,
    weights=np.zeros(2),
  )
  with releases.HookReleaseManager(
    hook, folder=tmp_path, total_rounds=5, settings={'task': 'mine'}
  ) as manager:
    asyncio.run(manager.release(metrics, 1))
    asyncio.run(manager.release(0.25, 2))
  start, first, second, end = hook.told
  assert (start.total_rounds, start.settings) == (5, {'task': 'mine'})
  assert len(start.identity) == 64
  assert first.row == {'round': 1, 'train/loss': 0.5, 'count': 3}
  assert second.row == {'round': 2, 'value': 0.25}
  assert (end.status, end.round_number) == (hooks.FINISHED, 2)


def test_a_program_that_fails_says_so(tmp_path):
  hook = Collecting()
  with (
    pytest.raises(OSError),
    releases.HookReleaseManager(hook, folder=tmp_path, total_rounds=5),
  ):
    raise OSError('a disk')
  assert hook.told[-1] == hooks.End(
    status=hooks.FAILED, round_number=0, reason='a disk'
  )
