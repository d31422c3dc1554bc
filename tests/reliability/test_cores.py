"""The number of cores, and of clients at once, changes no bit."""

import os

import pytest

from tests import tiers
from tests.reliability import drills

# Sums that TensorFlow divides among threads if it may: 784 to 1000 units.
_WIDE = [
  *('--task=emnist_autoencoder', '--data=synthetic'),
  *('--server_learning_rate=0.01', '--clients_per_round=4', '--total_rounds=2'),
  *('--rounds_per_eval=2', '--root_output_dir=runs'),
]


@pytest.mark.parametrize(
  'arguments',
  tiers.exhaustive_but(
    [],
    [
      ['--runtime=in_process'],
      ['--runtime=native'],
      ['--algorithm=centralized'],
      ['--threads_per_operation=2'],
    ],
  ),
)
def test_cores_and_clients_at_once_change_nothing(
  launcher, tmp_path, arguments
):
  cores = sorted(os.sched_getaffinity(0))

  def run(count, *others):
    os.sched_setaffinity(launcher.pid, cores[:count])
    name = f'cores_{count}{"".join(others)}'
    launcher.start([*_WIDE, *arguments, *others, f'--experiment_name={name}'])
    assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
    return tmp_path / 'runs' / name

  one = run(1)
  if '--algorithm=centralized' in arguments:
    drills.assert_same_run(one, run(2))
    return
  drills.assert_same_run(one, run(2, '--max_concurrent_clients=1'))
  if arguments != ['--runtime=in_process']:
    drills.assert_same_run(one, run(2, '--max_concurrent_clients=2'))


@pytest.mark.exhaustive
def test_threads_of_an_operation_belong_to_the_run(launcher, tmp_path):
  arguments = [*_WIDE, '--experiment_name=run']
  launcher.start([*arguments, '--threads_per_operation=2'])
  assert launcher.wait() == 0, (tmp_path / 'output.log').read_text()
  launcher.start(arguments)
  assert launcher.wait() == 2
  said = (tmp_path / 'output.log').read_text()
  assert '--threads_per_operation was 2, now not set' in said
