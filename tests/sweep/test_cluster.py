"""Sweeps on the machines of a Ray cluster."""

import io
import threading
import time

import pytest

from tests import recorded
from tff_adaptive import errors
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.training import experiment


def _sweep(root, *more):
  return flags.parse(
    [
      '--task=quadratic',
      '--algorithm=fedavg',
      '--rounds_per_eval=3',
      '--clients_per_round=2',
      '--experiment_name=s',
      f'--root_output_dir={root}',
      *more,
    ]
  )


@pytest.mark.exhaustive
def test_trials_run_on_the_machines_of_a_cluster(ray_nodes, tmp_path):
  sweep = _sweep(
    tmp_path,
    '--total_rounds=3',
    '--axis=seed=0,1,2',
    f'--ray_address={ray_nodes.address}',
  )
  said = io.StringIO()
  rows = launch.run(sweep, stream=said)
  assert [row.status for row in rows] == ['finished'] * 3, said.getvalue()
  alone = _sweep(tmp_path / 'alone', '--total_rounds=3', '--axis=seed=1')
  [point] = alone.points
  experiment.run(point.settings, say=lambda _: None)
  assert recorded.rows(point.folder) == recorded.rows(sweep.points[1].folder)


@pytest.mark.slow
def test_twenty_trials_survive_a_lost_machine(ray_nodes, tmp_path):
  more = ['--total_rounds=400', f'--axis=seed={",".join(map(str, range(20)))}']
  sweep = _sweep(tmp_path, *more, f'--ray_address={ray_nodes.address}')
  said = io.StringIO()

  def lose():
    deadline = time.monotonic() + 120
    done = tmp_path / 's' / 'results.csv'
    while time.monotonic() < deadline:
      if done.exists() and done.read_text().count('finished') >= 5:
        break
      time.sleep(0.05)
    ray_nodes.kill()

  thread = threading.Thread(target=lose)
  thread.start()
  rows = launch.run(sweep, stream=said)
  thread.join()
  ray_nodes.add()  # For the tests after this.
  assert [row.status for row in rows] == ['finished'] * 20, said.getvalue()
  # None is another run than it would have been.
  alone = _sweep(tmp_path / 'alone', *more, '--workers=2')
  launch.run(alone, stream=io.StringIO())
  for ours, theirs in zip(sweep.points, alone.points, strict=True):
    assert recorded.rows(ours.folder) == recorded.rows(theirs.folder)


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['--gpus_per_trial=1'], ['--gpus_per_trial', '--ray_address']),
    (['--ray_address=somewhere'], ['--ray_address', 'host:port']),
    (['--ray_address=auto', '--workers=0'], ['--workers=0']),
    (['--ray_address=auto', '--runtime=ray'], ['--runtime=ray']),
  ],
)
def test_flags_that_do_not_go_together(tmp_path, arguments, words):
  with pytest.raises(errors.SettingsError) as refusal:
    _sweep(tmp_path, '--axis=seed=0', *arguments)
  for word in words:
    assert word in str(refusal.value)
