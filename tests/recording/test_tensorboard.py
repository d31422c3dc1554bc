"""The rows of a run as TensorBoard shows them."""

import pytest
import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import tensorboard


def record(folder, first, last, rows=()):
  """Records rounds after those of `rows`."""
  board = tensorboard.TensorBoard(folder)
  board.start(hooks.Start(folder=folder.parent, total_rounds=9, rows=rows))
  for number in range(first, last + 1):
    row = {'round': number, 'train/loss': 1 / (number + 1)}
    values = {'validation/loss': 2.0}
    board.evaluation(hooks.Evaluation(round_number=number, values=values))
    board.round(hooks.Round(row={**row, **values}))
  board.evaluation(
    hooks.Evaluation(round_number=last, values={'test/loss': 3.0}, final=True)
  )
  board.end(hooks.End(status=hooks.FINISHED, round_number=last))


def events(folder):
  return [
    (event.step, value.tag, round(value.simple_value, 3))
    for path in folder.iterdir()
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]


def test_events_are_those_of_the_rows(tmp_path):
  folder = tmp_path / 'tensorboard'
  record(folder, 0, 3)
  kept = [{'round': '0', 'train/loss': '1.0', 'validation/loss': ''}]
  record(folder, 1, 2, rows=kept)
  assert events(folder) == [
    (0, 'train/loss', 1.0),
    (1, 'train/loss', 0.5),
    (1, 'validation/loss', 2.0),
    (2, 'train/loss', 0.333),
    (2, 'validation/loss', 2.0),
    (2, 'test/loss', 3.0),
  ]


def test_a_folder_that_cannot_be_written(tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.RunError, match='file/board cannot be written'):
    record(tmp_path / 'file' / 'board', 0, 1)
