"""What is said of runs that get nowhere."""

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training.loop import early_stopping


def watched(rows, **bounds):
  said = []
  watch = early_stopping.PlateauWarning(said.append, bounds)
  for number, row in enumerate(rows):
    watch.round(hooks.Round(row={'round': number, **row}))
  return said


def steps(share, low=0.5, high=0.5):
  return {
    'step_size/at_bound': share,
    'step_size/min': low,
    'step_size/max': high,
  }


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


def evaluation(value, loss=1.0):
  return {
    'validation/loss': loss,
    'validation/sparse_categorical_accuracy': value,
  }


def ended(rows, status=hooks.FINISHED):
  said = []
  watch = early_stopping.PlateauWarning(said.append)
  for number, row in enumerate(rows):
    watch.round(hooks.Round(row={'round': number, **row}))
  before = len(said)
  watch.end(hooks.End(status=status, round_number=len(rows)))
  return said[:before], said[before:]


def test_a_model_at_chance():
  rows = [evaluation(0.1 + 0.001 * (i % 3), 2.3) for i in range(9)]
  (meanwhile,), (last,) = ended(rows)
  assert 'no better than the 0.1 of the untrained' in meanwhile
  assert 'after round 5' in meanwhile and 'after round 8' in last
  assert ended(rows, hooks.STOPPED)[1] == []
  # Rare words: little is right for long, and the loss tells that it learns.
  assert ended([evaluation(0.0, 9 - 0.2 * i) for i in range(9)]) == ([], [])
  # A model that was trained elsewhere.
  assert ended([evaluation(0.97, 0.1)] * 9) == ([], [])


def test_a_model_that_unlearns():
  up = [evaluation(v) for v in (0.1, 0.5, 0.9)]
  (meanwhile,), (last,) = ended([*up, evaluation(0.3), evaluation(0.2), {}])
  assert meanwhile.startswith(
    'Accuracy is 0.2 after round 4, far below the 0.9'
  )
  assert last == meanwhile
  # A single bad evaluation is reported only at the end, and not at all if the
  # metric recovers.
  assert ended([*up, evaluation(0.3)])[0] == []
  assert len(ended([*up, evaluation(0.3)])[1]) == 1
  assert ended([*up, evaluation(0.3), evaluation(0.8)]) == ([], [])


def test_a_loss_that_has_grown_tenfold():
  rows = [{'validation/loss': loss} for loss in (2.0, 1.0, 19.0, 21.0)]
  (meanwhile,), (last,) = ended(rows)
  assert last == meanwhile
  assert meanwhile.startswith(
    'The validation loss is 21 after round 3, and was'
  )
  (_,), (infinite,) = ended([*rows[:2], {'validation/loss': float('nan')}])
  assert 'is nan after round 2' in infinite


def test_a_loss_that_grows_under_noise():
  rows = [{'validation/loss': loss} for loss in (2.0, 1.9, 2.3, 2.6)]
  assert ended(rows) == ([], [])
  private = [row | {'privacy/epsilon': 3.0} for row in rows]
  (meanwhile,), (last,) = ended(private)
  assert last == meanwhile
  assert meanwhile == (
    'The validation loss is 2.6 after round 3, and was 2 after round 0: the '
    'noise of differential privacy outweighs the updates; more clients per '
    'round, a smaller server learning rate or less noise (a larger epsilon) '
    'may help.'
  )
  private[-1]['validation/loss'] = 30.0
  assert any('smaller server learning' in said for said in ended(private)[1])


def test_a_resumed_run_knows_its_best():
  said = []
  watch = early_stopping.PlateauWarning(said.append)
  cells = [
    {'round': str(i), **evaluation(str(v))} for i, v in enumerate([0.1, 0.9])
  ]
  watch.start(hooks.Start(folder=None, total_rounds=9, rows=cells))
  for number in (2, 3):
    watch.round(hooks.Round(row={'round': number, **evaluation(0.1)}))
  assert len(said) == 1 and 'of round 1' in said[0]
