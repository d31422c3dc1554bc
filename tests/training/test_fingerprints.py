"""What a run reads, changed between two starts."""

import shutil

import numpy as np
import pytest

from tests import helpers
from tests import recorded
from tff_adaptive import errors
from tff_adaptive import training
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.training.data import fingerprints

pytestmark = pytest.mark.usefixtures('undrawn')


def start(folder, rounds=1, **more):
  settings = training.settings(
    algorithm='fedavg',
    client_optimizer='sgd',
    client_learning_rate=0.1,
    clients_per_round=2,
    total_rounds=rounds,
    rounds_per_eval=1,
    root_output_dir=str(folder),
    experiment_name='run',
    **more,
  )
  return settings, training.run(settings, say=lambda _: None)


def table(path, shift=0.0):
  rows = [f'{i % 7 + shift},{i % 2},c{i % 3}' for i in range(30)]
  path.write_text('\n'.join(['x,label,client', *rows]))
  return dict(task='table', table_path=str(path))


@pytest.mark.exhaustive
def test_a_table_of_the_same_shape(tmp_path):
  path = tmp_path / 'points.csv'
  settings, _ = start(tmp_path, **table(path))
  # Each feature is standardised: the shift alone is seen by nothing else.
  table(path, shift=3.0)
  text = path.read_text().splitlines()
  path.write_text('\n'.join([text[0], *reversed(text[1:])]))
  before = sorted(p.stat().st_mtime_ns for p in settings.folder.rglob('*'))
  with pytest.raises(
    errors.SettingsError, match='started with a different version'
  ):
    start(tmp_path, rounds=2, task='table', table_path=str(path))
  after = sorted(p.stat().st_mtime_ns for p in settings.folder.rglob('*'))
  assert len(before) == len(after)
  with pytest.raises(errors.SettingsError, match='version of its data'):
    export.export(settings.folder, tmp_path / 'model')
  table(path)
  assert start(tmp_path, rounds=2, **table(path))[1].resumed_from == 1


def test_other_examples_of_clients_that_are_not_in_memory(tmp_path):
  found = fingerprints.fingerprint(helpers.task())
  assert found == fingerprints.fingerprint(helpers.task())
  for sizes in ((6, 9, 5), (6, 9, 5, 7)):
    other = fingerprints.fingerprint(helpers.task(sizes=sizes))
    with pytest.raises(errors.SettingsError, match='version of its data'):
      fingerprints.check_same(found, other, tmp_path)
  # Of test clients, too.
  assert fingerprints.fingerprint(helpers.task(test_size=22)) != found
  for before, now in ((None, found), (found, None), (found, found)):
    fingerprints.check_same(before, now, tmp_path)


@pytest.mark.exhaustive
def test_initial_weights_are_not_needed_again(tmp_path):
  first = training.settings(
    task='quadratic',
    total_rounds=1,
    root_output_dir=str(tmp_path),
    experiment_name='first',
  )
  training.run(first, say=lambda _: None)
  given = dict(task='quadratic', initial_weights=str(first.folder))
  settings, _ = start(tmp_path, **given)
  shutil.rmtree(first.folder)
  assert start(tmp_path, rounds=2, **given)[1].resumed_from == 1
  losses = [float(r['validation/loss']) for r in recorded.rows(settings.folder)]
  assert len(losses) == 3 and np.isfinite(losses).all()
