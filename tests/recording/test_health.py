"""What is said of runs that have not learned."""

from tff_adaptive.lab.recording import health


def concerns(rows):
  return health.concerns(
    [{'round': number, **row} for number, row in enumerate(rows)]
  )


def evaluation(value, loss=1.0):
  return {
    'validation/loss': loss,
    'validation/sparse_categorical_accuracy': value,
  }


def test_a_model_at_chance():
  rows = [evaluation(0.1 + 0.001 * (i % 3), 2.3) for i in range(9)]
  (last,) = concerns(rows)
  assert 'after round 8, no better than the 0.1 of the untrained' in last
  # Rare words: little is right for long, and the loss tells that it learns.
  assert not concerns([evaluation(0.0, 9 - 0.2 * i) for i in range(9)])
  # A model that was trained elsewhere.
  assert not concerns([evaluation(0.97, 0.1)] * 9)


def test_a_model_that_unlearns():
  up = [evaluation(v) for v in ('0.1', '0.5', '0.9')]  # As a resumed run's.
  (last,) = concerns([*up, evaluation(0.3), evaluation(0.2), {}])
  assert last.startswith('Accuracy is 0.2 after round 4, far below the 0.9')
  assert not concerns([*up, evaluation(0.3), evaluation(0.8)])


def test_a_loss_that_has_grown_tenfold():
  rows = [{'validation/loss': loss} for loss in (2.0, 1.0, 19.0, 21.0)]
  (last,) = concerns(rows)
  assert last.startswith('The validation loss is 21 after round 3, and was')
  (infinite,) = concerns([*rows[:2], {'validation/loss': float('nan')}])
  assert 'is nan after round 2' in infinite


def test_a_loss_that_grows_under_noise():
  rows = [{'validation/loss': loss} for loss in (2.0, 1.9, 2.3, 2.6)]
  assert not concerns(rows)
  private = [row | {'privacy/epsilon': 3.0} for row in rows]
  (last,) = concerns(private)
  assert last == (
    'The validation loss is 2.6 after round 3, and was 2 after round 0: the '
    'noise of differential privacy outweighs the updates; more clients per '
    'round, a smaller server learning rate or less noise (a larger epsilon) '
    'may help.'
  )
