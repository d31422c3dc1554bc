"""The model of the best round, across stops and resumes."""

import numpy as np

from tff_adaptive.lab.recording import best
from tff_adaptive.lab.training.loop import ending

_GOAL = ending.Goal('validation/accuracy', True)


def model_of(number):
  return [np.full([2], number, np.float32)]


def judged(values, start=0, saved=None, rows=(), goal=_GOAL):
  """The entries for a checkpoint after evaluations; a model is its round."""
  keeper = best.Best(goal, model_of(0))
  if saved is not None:
    keeper.restore(saved, rows)
  for number, value in enumerate(values, start):
    row = {} if value is None else {'validation/accuracy': value}
    keeper.judge(number, row, lambda number=number: model_of(number))
  return keeper.saved


def is_of(saved, number):
  return saved['round'] == number and saved['model'][0][0] == number


def test_the_best_is_kept_but_for_the_untrained_model():
  assert is_of(judged([]), 0)
  assert is_of(judged([0.9, 0.2, 0.5, 0.5, None, 0.4, float('nan')]), 2)


def test_a_resumed_run_has_what_its_checkpoint_knows():
  saved = judged([0.9, 0.3, ''])
  rows = [
    {'round': f'{i}', 'validation/accuracy': text}
    for i, text in enumerate(['0.9', '0.3', ''])
  ]
  assert is_of(judged([0.2], 3, saved, rows), 1)
  assert is_of(judged([0.2, 0.6], 3, saved, rows), 4)


def test_a_model_that_another_measure_chose_is_dropped():
  saved = judged([0.9, 0.3, 0.2])
  rows = [{'round': '1', 'validation/loss': '2'}]
  rows += [{'round': '2', 'validation/loss': '1'}]
  by_loss = ending.Goal('validation/loss', False)
  assert judged([], 3, saved, rows, by_loss)['round'] == 0
