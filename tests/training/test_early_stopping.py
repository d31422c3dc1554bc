"""When a run ends early, and what it is judged by."""

import numpy as np
import pytest

from tests import runs
from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training.loop import early_stopping

_COLUMNS = [
  'round',
  'train/loss',
  'validation/loss',
  'validation/sparse_categorical_accuracy',
  'ema/loss',
  'ema/sparse_categorical_accuracy',
]


@pytest.mark.parametrize(
  'asked, column, rises, target',
  [
    (None, 'validation/sparse_categorical_accuracy', True, None),
    ('loss:0.5', 'validation/loss', False, 0.5),
    ('accuracy:0.9', 'validation/sparse_categorical_accuracy', True, 0.9),
    ('ema/accuracy:1', 'ema/sparse_categorical_accuracy', True, 1.0),
    ('ema/loss:1e-3', 'ema/loss', False, 1e-3),
    ('validation/loss:2', 'validation/loss', False, 2.0),
    ('loss:min', 'validation/loss', False, None),
    ('accuracy:min', 'validation/sparse_categorical_accuracy', False, None),
  ],
)
def test_what_is_meant(asked, column, rises, target):
  assert early_stopping.goal_of(asked, _COLUMNS) == early_stopping.Goal(
    column, rises, target
  )


def test_a_task_without_a_metric_is_judged_by_its_loss():
  goal = early_stopping.goal_of(
    None, ['validation/loss', 'validation/num_examples']
  )
  assert goal == early_stopping.Goal('validation/loss', False)


@pytest.mark.parametrize('asked', ['recall:0.5', 'train/loss:1', 'test/loss:1'])
def test_a_metric_that_there_is_not(asked):
  with pytest.raises(errors.SettingsError) as raised:
    early_stopping.goal_of(asked, _COLUMNS)
  assert 'they have loss, sparse_categorical_accuracy' in str(raised.value)


@pytest.mark.parametrize(
  'text', ['accuracy', ':0.5', 'loss:low', 'loss:nan', 'loss:MIN']
)
def test_a_target_is_a_name_and_a_number(text):
  with pytest.raises(errors.SettingsError, match='must be NAME:VALUE'):
    runs.parse(f'--target_metric={text}')


def ended(goal, values, patience=None):
  """The number of evaluations after which a run ends, and why."""
  rules = early_stopping.EarlyStopping(goal, patience)
  for count, value in enumerate(values, start=1):
    rules.evaluation(
      hooks.Evaluation(round_number=count, values={goal.column: value})
    )
    if rules.reason is not None:
      return count, rules.reason
  return None, None


_LOSS = early_stopping.Goal('validation/loss', False)


@pytest.mark.parametrize(
  'values, patience, count',
  [
    ([3, 2, 1], 1, None),
    ([3, 2, 2, 1], 1, 3),
    ([3, 2, 2, 1, 1.5, 1], 2, 6),
    ([3, float('nan'), 2], 1, 2),
    ([3, 4, 5, 2, 4], 3, None),
    ([float('nan')] * 3, 3, 3),
  ],
)
def test_patience(values, patience, count):
  found, reason = ended(_LOSS, values, patience)
  assert found == count
  assert (reason is None) == (count is None)


def test_a_resumed_run_compares_as_the_file_has_it():
  """A float32 is another number than the digits that it is written with."""
  value = np.float32(0.3)
  rules = early_stopping.EarlyStopping(
    early_stopping.Goal('validation/accuracy', True), 1
  )
  rules.look_back([{'round': '1', 'validation/accuracy': str(value)}])
  rules.evaluation(
    hooks.Evaluation(round_number=2, values={'validation/accuracy': value})
  )
  assert rules.reason is not None


def test_targets():
  values = [0.2, 0.6, 0.9, 0.95]
  rising = early_stopping.Goal('validation/accuracy', True, 0.9)
  assert ended(rising, values)[0] == 3
  assert 'is 0.9, and --target_metric asked for 0.9' in ended(rising, values)[1]
  falling = early_stopping.Goal('validation/loss', False, 0.3)
  assert ended(falling, values[::-1])[0] == 4


def test_the_test_split_ends_nothing():
  rules = early_stopping.EarlyStopping(
    early_stopping.Goal('validation/loss', False, 1.0)
  )
  rules.evaluation(
    hooks.Evaluation(
      round_number=3, values={'validation/loss': 0.5}, final=True
    )
  )
  assert rules.reason is None


def test_rows_of_a_finished_run_decide_alike():
  rows = [
    {'round': str(n), 'validation/loss': v}
    for n, v in enumerate(['3.0', '', '2.0', '', '2.0', '', '2.5'])
  ]
  assert early_stopping.is_over(rows, None, 2)
  assert not early_stopping.is_over(rows[:5], None, 2)
  assert not early_stopping.is_over(rows, None, 3)
  assert not early_stopping.is_over(rows, None, None)
  assert early_stopping.is_over(rows, 'loss:2.5', None)
  assert not early_stopping.is_over(rows, 'accuracy:0.5', None)
