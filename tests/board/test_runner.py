"""The runs of an entry, and which of them tuning selects."""

import math

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads

_LOSSES = [0.5, 0.2, math.inf, 0.4]


def test_tuning_and_reporting_have_different_seeds():
  for protocol in (runner.FULL, runner.QUICK, runner.BASELINE):
    assert protocol.tuning_seed not in protocol.seeds
    assert max(protocol.budgets) <= protocol.trials
  assert (runner.FULL.trials, len(runner.FULL.seeds)) == (16, 5)
  assert (runner.BASELINE.trials, len(runner.BASELINE.seeds)) == (50, 10)
  # Paired: newcomers and baselines have the same fresh seeds.
  assert runner.BASELINE.seeds[:5] == runner.FULL.seeds


def test_resampled_orders_select_more_than_the_best():
  protocol = runner.Protocol(trials=4, budgets=(2, 4))
  shares = protocol.shares(_LOSSES, 2)
  # Of six pairs the best is in three, the second best the better in two more.
  np.testing.assert_allclose(shares, [1 / 6, 3 / 6, 0, 2 / 6], atol=0.05)
  assert protocol.selected(_LOSSES) == [0, 1, 3]
  assert runner.Protocol(trials=4, budgets=(4,)).selected(_LOSSES) == [1]


def test_baselines_take_the_first_trials():
  protocol = runner.Protocol(trials=4, budgets=(1, 4), resampled=False)
  assert list(protocol.shares(_LOSSES, 1)) == [1, 0, 0, 0]
  assert protocol.selected(_LOSSES) == [0, 1]


def test_names_tell_what_runs_are():
  for setting in ('default', '13'):
    name = runner.name_of('digits_rotated', setting, 5)
    assert runner.split(name) == ('digits_rotated', setting, 5)


def test_flags_of_runs(tmp_path):
  workload = workloads.choose('digits')[0]
  contestant = runner.Contestant('fedprox', spaces.of_method('fedprox'))
  made = runner.Runner(contestant, [workload], tmp_path, {}, {})
  tuned = made._flags(workload, '2', 7)
  trial = contestant.space.trials('digits', workload.rounds, 16)[2]
  assert tuned == {
    **workload.flags(),
    **trial,
    'algorithm': 'fedprox',
    'seed': '7',
    'client_datasets_random_seed': '7',
  }
  default = made._flags(workload, 'default', 7)
  assert 'proximal_strength' not in default
  assert int(default['total_rounds']) == 1.5 * workload.rounds
  made.check()
  assert not list(tmp_path.iterdir())


def test_flags_that_a_method_refuses_are_told_with_the_run(tmp_path):
  # A decay is of a schedule, and there is none.
  space = spaces.Space('x', {'client_lr_decay_rate': spaces.Discrete([0.9])})
  made = runner.Runner(
    runner.Contestant('fedavg', space),
    workloads.choose('digits'),
    tmp_path,
    {},
    {},
  )
  with pytest.raises(errors.SettingsError, match='In the run digits-0-seed1'):
    made.check()


def test_another_space_is_another_folder():
  one = runner.Contestant('fedavg', spaces.of_method('fedavg'))
  other = runner.Contestant(
    'fedavg', spaces.Space('x', {'client_learning_rate': spaces.Discrete([1])})
  )
  assert one.label != other.label and one.label.startswith('fedavg-')
