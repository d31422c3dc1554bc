"""The model of the best round, across stops and resumes."""

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import best
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training.loop import early_stopping

_GOAL = early_stopping.Goal('validation/accuracy', True)


class Run:
  """A run whose model is its round."""

  def __init__(self, folder, rows=()):
    self.round = int(rows[-1]['round']) if rows else 0
    self.keeper = best.Best(folder, _GOAL, self.weights, run='mine')
    self.keeper.start(
      hooks.Start(
        folder=folder,
        total_rounds=9,
        rows=rows,
        resumed_from=int(rows[-1]['round']) if rows else None,
      )
    )

  def weights(self):
    return [np.full([2], self.round, np.float32)]

  def evaluate(self, number, value, final=False):
    self.round = number
    self.keeper.evaluation(
      hooks.Evaluation(
        round_number=number, values={'validation/accuracy': value}, final=final
      )
    )

  def save(self, number):
    """What happens around a checkpoint."""
    self.keeper.write()
    self.keeper.prune(number)


def names(folder):
  return sorted(p.name for p in folder.iterdir())


def load(folder, shape=(2,)):
  last = max(checkpoints.paths(folder, 'best'), default=0)
  zeros = [np.zeros(shape, np.float32)]
  (array,) = best.load(folder, 'mine', zeros, last)
  return last, array.tolist()


def test_the_best_is_kept(tmp_path):
  run = Run(tmp_path)
  for number, value in enumerate([0.9, 0.2, 0.5, 0.5, 0.4, float('nan')]):
    run.evaluate(number, value)
  run.evaluate(6, 0.99, final=True)
  assert not names(tmp_path)  # There is no checkpoint that would need it.
  run.save(5)
  # The untrained model does not count, nor does the test.
  assert load(tmp_path) == (2, [2.0, 2.0])
  run.evaluate(7, 0.6)
  run.save(7)
  assert names(tmp_path) == ['best_7.safetensors']


def test_the_best_of_a_round_with_a_checkpoint_is_written_at_once(tmp_path):
  """A round is evaluated before its checkpoint, and told of after it."""
  run = Run(tmp_path)
  run.evaluate(1, 0.3)
  run.save(2)
  run.evaluate(2, 0.5)
  assert load(tmp_path) == (2, [2.0, 2.0])
  assert len(names(tmp_path)) == 2
  run.save(3)
  assert names(tmp_path) == ['best_2.safetensors']


def test_a_killed_run_still_has_what_its_checkpoint_knows(tmp_path):
  run = Run(tmp_path)
  run.evaluate(1, 0.3)
  run.save(2)
  run.evaluate(4, 0.6)
  run.keeper.write()
  assert len(names(tmp_path)) == 2  # Killed before the checkpoint.
  rows = [
    {'round': '0', 'validation/accuracy': '0.9'},
    {'round': '1', 'validation/accuracy': '0.3'},
    {'round': '2', 'validation/accuracy': ''},
  ]
  again = Run(tmp_path, rows)
  assert load(tmp_path) == (1, [1.0, 1.0])
  again.evaluate(3, 0.2)
  again.save(3)
  assert load(tmp_path) == (1, [1.0, 1.0])
  again.evaluate(4, 0.6)
  again.save(4)
  assert load(tmp_path) == (4, [4.0, 4.0])


def test_a_run_killed_between_checkpoint_and_best_model_has_both(tmp_path):
  run = Run(tmp_path)
  run.evaluate(1, 0.3)
  run.save(2)  # Killed before the hook is notified of round 2.
  rows = [
    {'round': '1', 'validation/accuracy': '0.3'},
    {'round': '2', 'validation/accuracy': '0.5'},
  ]
  Run(tmp_path, rows)
  assert load(tmp_path) == (2, [2.0, 2.0])


def test_what_cannot_be_loaded(tmp_path):
  with pytest.raises(errors.RunError, match='has no saved best model'):
    load(tmp_path / 'none')
  run = Run(tmp_path)
  run.evaluate(1, 0.3)
  run.save(1)
  with pytest.raises(errors.DamagedError, match='another method or model'):
    load(tmp_path, shape=(3,))
  with pytest.raises(errors.DamagedError, match='another run'):
    best.load(tmp_path, 'yours', run.weights(), 1)
  (tmp_path / 'best_1.safetensors').write_bytes(b'')
  with pytest.raises(errors.DamagedError):
    load(tmp_path)
