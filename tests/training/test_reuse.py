"""Runs of one structure share their traced round, to the same bits."""

import gc
import weakref

import numpy as np
import pytest

import tasks
from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import training
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import parts
from tff_adaptive.lab.training import reuse

pytestmark = pytest.mark.usefixtures('undrawn')

# Numbers that are part of the state, by method, each unlike its default.
_NUMBERS = {
  'client_learning_rate': 0.03,
  'server_learning_rate': 0.3,
  'server_adaptivity': 0.02,
  'client_adaptivity': 0.02,
  'beta_1': 0.5,
  'beta_2': 0.6,
  'client_beta_1': 0.4,
  'client_beta_2': 0.7,
  'momentum': 0.3,
  'client_momentum': 0.2,
  'initial_accumulator': 0.3,
  'proximal_strength': 0.2,
  'contrastive_strength': 0.4,
  'temperature': 0.8,
  'rho': 0.1,
  'alpha': 0.3,
  'c': 0.7,
  'gamma_b': 0.4,
  'gamma': 1.5,
  'delta': 0.2,
  'lower_bound': -0.1,
  'weight_decay': 0.05,
}
_FEW = ('fedadam', 'feddyn', 'moon')


def test_a_task_without_files_is_prepared_once():
  def task(**more):
    return experiment.create_task(
      training.settings(task='quadratics', algorithm='fedadam', **more)
    )

  first = task(client_learning_rate=0.1)
  assert task(client_learning_rate=0.2) is first
  for more in ({'seed': 1}, {'quadratics_noise': 1.0}):
    assert task(**more) is not first
  assert task() is first
  from_files = dict(task='table', data='synthetic')
  one, other = (
    experiment.create_task(training.settings(**from_files)) for _ in range(2)
  )
  assert one is not other  # Files may change.


class _Reading:
  """Settings that remember which of them were read."""

  def __init__(self, settings):
    self._settings = settings
    self.names = set()

  def __getattr__(self, name):
    self.names.add(name)
    return getattr(self._settings, name)


def test_tasks_are_told_apart_by_all_that_prepares_them():
  settings = training.settings(
    task='digits', algorithm='fedadam', lora_rank=2, mixed_precision='bfloat16',
    validation_split='clients', validation_share=0.2, evaluate_clients='all',
    client_test_share=0.2,
  )  # fmt: skip
  read = _Reading(settings)
  parts.prepare(tasks.create('digits'), read)
  assert read.names <= {*parts.PREPARED_BY}
  assert {'seed', 'lora_targets', 'client_test_share'} <= read.names


def _metrics(folder, name, method, **numbers):
  settings = training.settings(
    task='digits',
    digits_num_clients=4,
    max_elements_per_client=20,
    algorithm=method,
    total_rounds=2,
    experiment_name=name,
    root_output_dir=str(folder),
    **{'clients_per_round': 3, **numbers},
  )
  training.run(settings, say=lambda text: None)
  rows = (folder / name / 'metrics.csv').read_text().splitlines()
  # The seconds are those of the clock.
  head = rows[0].split(',')
  left = [i for i, column in enumerate(head) if 'seconds' not in column]
  return [[row.split(',')[i] for i in left] for row in rows]


def _numbers_of(method):
  accepted = algorithms.parameters_of(method)
  chosen = {n: v for n, v in _NUMBERS.items() if n in accepted}
  if method == 'fednova':  # Momentum and a proximal term exclude each other.
    del chosen['client_momentum']
  return chosen


def _check(method, folder):
  numbers = dict(_numbers_of(method), seed=3)
  reuse.clear()
  before = reuse.traces()
  alone = _metrics(folder, 'alone', method, **numbers)
  reuse.clear()
  # Whether a number is 0 is part of the structure.
  usual = {
    name: 0.5 * value if value < 1 else value + 1
    for name, value in numbers.items()
    if name != 'seed'
  }
  others = _metrics(folder, 'others', method, **usual, seed=8)
  shared = _metrics(folder, 'shared', method, **numbers)
  assert reuse.traces() == before + 2
  assert shared == alone
  assert others != alone


@pytest.mark.parametrize(
  'method', tiers.exhaustive_but(['fedadam'], _FEW, slow=['moon'])
)
def test_a_shared_round_gives_the_same_bits(method, tmp_path):
  _check(method, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
  'method', [m for m in algorithms.names() if m not in _FEW]
)
def test_every_methods_shared_round_gives_the_same_bits(method, tmp_path):
  _check(method, tmp_path)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'adapts', [True, False], ids=['adaptive clipping', 'fixed clipping']
)
def test_private_runs_share_their_round(adapts, tmp_path):
  numbers = dict(
    dp_clip_norm=0.5, dp_noise_multiplier=0.15, clients_per_round=2, seed=3
  )
  usual = dict(dp_clip_norm=1.0, dp_noise_multiplier=0.25, seed=8)
  if adapts:
    numbers |= dict(
      dp_adaptive_clipping=True, dp_clip_quantile=0.7, dp_clip_learning_rate=0.4
    )
    usual |= dict(dp_adaptive_clipping=True)
  run = lambda name, more: _metrics(tmp_path, name, 'fedavg', **more)
  reuse.clear()
  before = reuse.traces()
  alone = run('alone', numbers)
  reuse.clear()
  others, shared = run('others', usual), run('shared', numbers)
  assert reuse.traces() == before + 2
  assert shared == alone
  assert others != alone


@pytest.mark.exhaustive
def test_what_is_in_the_graph_is_traced_again(tmp_path):
  reuse.clear()
  before = reuse.traces()
  run = lambda name, **more: _metrics(tmp_path, name, 'fedadam', **more)
  run('one')
  run('two', client_learning_rate=0.01, seed=1, clients_per_round=2)
  assert reuse.traces() == before + 1
  run('three', client_momentum=0.9)
  assert reuse.traces() == before + 2
  decay = dict(
    client_lr_schedule='exp_decay',
    client_lr_decay_steps=2,
    client_lr_decay_rate=0.5,
  )
  four = run('four', **decay)
  assert reuse.traces() == before + 3
  # Where a schedule starts is a number of the state.
  other = run('five', client_learning_rate=0.02, **decay)
  assert reuse.traces() == before + 3
  assert other != four
  reuse.clear()
  assert run('alone', client_learning_rate=0.02, **decay) == other


def test_a_model_that_follows_from_the_data_is_not_shared():
  """The error of a table's numbers is in their unit, which the data have."""
  made = {
    'task': 'table', 'table_target': 'number', 'data': 'synthetic',
    'algorithm': 'fedavg', 'client_learning_rate': 0.1,
  }  # fmt: skip
  keys = []
  for seed in (0, 1, 0):
    settings = training.settings(**made, table_seed=seed)
    keys.append(reuse.model_key(settings, experiment.create_task(settings)))
  assert keys[0] == keys[2] != keys[1]


def test_what_is_made_of_an_object_is_dropped_with_it():
  class Owner:
    pass

  owner, made = Owner(), []

  def make():
    made.append(np.zeros(3))
    return made[-1]

  assert reuse.beside(owner, 'a', make) is reuse.beside(owner, 'a', make)
  assert reuse.beside(owner, 'b', make) is not reuse.beside(owner, 'a', make)
  assert len(made) == 2
  kept = weakref.ref(made[0])
  made.clear()
  assert kept() is not None
  del owner
  gc.collect()
  assert kept() is None
