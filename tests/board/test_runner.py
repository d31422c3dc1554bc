"""The runs of an entry, and which of them tuning selects."""

import dataclasses
import math

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads

_LOSSES = [0.5, 0.2, math.inf, 0.4]


def protocol_of(trials, budgets, **others):
  return dataclasses.replace(
    entries.QUICK, trials=trials, budgets=budgets, **others
  )


def test_tuning_and_reporting_have_different_seeds():
  for protocol in (*entries.PROTOCOLS.values(), entries.QUICK):
    assert not {*protocol.tuning_seeds} & {*protocol.seeds}
    assert max(protocol.budgets) <= protocol.trials


def test_settings_that_some_budget_selects_are_repeated():
  protocol = protocol_of(4, [2, 4])
  assert protocol.selected(_LOSSES) == [0, 1, 3]
  assert protocol_of(4, [4]).selected(_LOSSES) == [1]


def test_a_budget_in_blocks_selects_the_best_of_each():
  protocol = protocol_of(4, [2, 4], in_blocks=True)
  assert protocol.shares(_LOSSES, 2).tolist() == [0, 0.5, 0, 0.5]
  assert protocol.shares(_LOSSES, 4).tolist() == [0, 1, 0, 0]
  assert protocol.selected(_LOSSES) == [1, 3]


def test_a_trial_counts_by_its_mean_over_tuning_seeds():
  protocol = protocol_of(2, [1], tuning_seeds=[7, 8])
  made = {}
  for trial, finals in enumerate([(1.0, 4.0), (2.0, math.nan)]):
    for seed, final in zip(protocol.tuning_seeds, finals):
      rows = [{'round': 0}, {'round': 1, 'validation/loss': final}]
      name = entries.name_of('digits', trial, seed)
      made[name] = records.of_rows(rows, 1, 'finished').of_tuning()
  assert protocol.criteria(made, 'digits') == [2.5, math.inf]


def test_names_tell_what_runs_are():
  for setting in ('default', '13'):
    name = entries.name_of('digits_rotated', setting, 5)
    assert entries.split(name) == ('digits_rotated', setting, 5)


def test_flags_of_runs(tmp_path):
  workload = workloads.choose('digits')[0]
  submission = entries.Submission('fedprox', spaces.of_method('fedprox'))
  made = runner.Runner(submission, [workload], tmp_path, {}, {})
  tuned = made.flags(workload, '2', 7)
  trial = submission.space.trials('digits', workload.rounds)[2]
  assert tuned == {
    **workload.flags(),
    **trial,
    'algorithm': 'fedprox',
    'seed': '7',
    'client_datasets_random_seed': '7',
  }
  default = made.flags(workload, 'default', 7)
  assert 'proximal_strength' not in default
  assert int(default['total_rounds']) == 1.5 * workload.rounds
  made.check(entries.PROTOCOLS[1])
  assert not list(tmp_path.iterdir())


def test_flags_that_a_method_refuses_are_told_with_the_run(tmp_path):
  # A decay is of a schedule, and there is none.
  space = spaces.Space('x', {'client_lr_decay_rate': {'values': [0.9]}})
  made = runner.Runner(
    entries.Submission('fedavg', space),
    workloads.choose('digits'),
    tmp_path,
    {},
    {},
  )
  with pytest.raises(errors.SettingsError, match='In the run digits-0-seed1'):
    made.check(entries.PROTOCOLS[1])


def test_another_space_is_another_folder():
  one = entries.Submission('fedavg', spaces.of_method('fedavg'))
  other = entries.Submission(
    'fedavg', spaces.Space('x', {'client_learning_rate': {'values': [1]}})
  )
  assert one.label != other.label and one.label.startswith('fedavg-')
