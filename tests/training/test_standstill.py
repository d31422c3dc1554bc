"""What is said of runs that get nowhere."""

from tff_adaptive.recording import hooks
from tff_adaptive.training import standstill


def watched(rows, **bounds):
  said = []
  watch = standstill.Standstill(said.append, bounds)
  for number, row in enumerate(rows):
    watch.round(hooks.Round(row={'round': number, **row}))
  return said


def steps(share, low=0.5, high=0.5):
  return {
    'step_size/at_bound': share,
    'step_size/min': low,
    'step_size/max': high,
  }


def accuracy(value):
  name = 'sparse_categorical_accuracy'
  return {'validation/loss': 1.0, f'validation/{name}': value}


def test_steps_that_are_all_at_their_bound():
  rows = [{}, steps(1), steps(0.9), *[steps(1.0)] * 20]
  assert watched(rows, gamma_b=0.5) == [
    'In rounds 3 to 7 every step of every client was at its upper bound (0.5):'
    ' clients train as with a fixed learning rate, which may be too large or '
    'too small; another bound than --gamma_b=0.5 may help.'
  ]
  (spread,) = watched([steps('1.0', 0.5, '2')] * 5)
  assert 'upper bound (0.5 to 2): ' in spread and spread.endswith('too small.')
  assert not watched([steps(1.0)] * 4)
  assert not watched([steps(1.0), steps(0.99)] * 10)
  assert not watched([{'train/loss': 1.0}] * 10)


def test_a_metric_that_stands_still():
  rows = [accuracy(0.01), *[row for _ in range(12) for row in ({}, {}, flat())]]
  (said,) = watched(rows)
  assert said.startswith(
    'Accuracy has stood at 0.0431 for 10 evaluations, from round 3 to 30; '
  )
  rising = [accuracy(0.04 + 0.001 * i) for i in range(30)]
  assert not watched(rising)
  assert not watched([flat()] * 9)


def flat():
  return accuracy(0.0431)


def test_metrics_that_may_stand_still():
  assert not watched([accuracy(0.99)] * 20)
  assert not watched([{'validation/mean_absolute_error': 0.5}] * 20)
  assert not watched([{'validation/loss': 0.5}] * 20)
  assert watched([{'validation/recall': 0.5}] * 20)
