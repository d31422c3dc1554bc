"""Rows of a run: compared when it goes on, and dropped behind that."""

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import records


@pytest.fixture(name='folder')
def folder_fixture(tmp_path):
  return files.RunFolder(tmp_path)


def record(folder, last, first=0, checkpoint=None):
  """Records rounds; returns the checkpoint of the last."""
  kept = records.Records(folder, checkpoint)
  for number in range(first, last + 1):
    steps = [{'client': c, 'mean': 0.5} for c in 'ab'] if number else []
    row = {'round': number, 'train/loss': 2.0 / (number + 1)}
    kept.round(hooks.Round(row=row, steps=steps))
  sums = kept.sync(last)
  return checkpoints.Checkpoint(last, None, sums)


def test_rows_after_the_checkpoint_go(folder):
  first = record(folder, 1)
  record(folder, 4)
  kept = records.Records(folder, first)
  assert kept.dropped == 3 and [r['round'] for r in kept.rows] == ['0', '1']
  assert folder.step_sizes.read_text().count('\n') == 3
  again = record(folder, 4, first=2, checkpoint=first)
  whole = files.RunFolder(folder.path / 'whole')
  whole.path.mkdir()
  for table, sums in record(whole, 4).row_sums.items():
    assert again.row_sums[table].tolist() == sums.tolist()
  assert folder.metrics.read_text() == whole.metrics.read_text()


def test_a_round_that_failed_after_its_row_is_not_summed(folder):
  kept = records.Records(folder)
  for number in range(4):
    steps = [{'client': 'a', 'mean': 0.5}]
    kept.round(hooks.Round(row={'round': number}, steps=steps))
  sums = kept.sync(2)
  assert {t: s[0] for t, s in sums.items()} == dict.fromkeys(sums, 3)
  assert records.Records(folder, checkpoints.Checkpoint(2, 0, sums)).dropped


def test_values_of_the_test_split_and_new_columns_change_no_checksum(folder):
  found = record(folder, 2)
  kept = records.Records(folder, found)
  values = {'test/loss': 0.5}
  kept.evaluation(hooks.Evaluation(round_number=2, values=values))
  assert 'test/loss' not in kept.rows[-1]  # It comes with its round's row.
  kept.evaluation(hooks.Evaluation(round_number=2, values=values, final=True))
  assert kept.rows[-1]['test/loss'] == '0.5'
  kept.round(hooks.Round(row={'round': 3, 'new': 1}))
  assert records.Records(folder, found).dropped == 1


def test_more_rounds_drop_the_final_evaluation(folder):
  found = record(folder, 2)
  kept = records.Records(folder, found)
  kept.forget_final()  # There is none yet.
  event = hooks.Evaluation(
    round_number=2,
    values={'per_client/loss/mean': 0.5},
    final=True,
    clients=[{'client': 'a', 'per_client/loss': 0.5}],
  )
  kept.evaluation(event)
  assert folder.clients.exists()
  kept.forget_final()
  assert not folder.clients.exists()
  assert not kept.rows[-1]['per_client/loss/mean']


@pytest.mark.parametrize(
  'table, old, new, complaint',
  [
    ('metrics', '\n1,1.0', '\n1,1.5', 'its 3 rows up to round 2 are not'),
    ('metrics', '\n1,1.0', '\n1,01.0', 'its 3 rows up to round 2 are not'),
    ('step_sizes', '1,b,0.5', '1,b,0.6', 'sizes.csv is damaged'),
    ('step_sizes', '2,b,0.5\n', '', 'its 3 rows .* are not the 4 that'),
    ('step_sizes', '2,b,0.5\n', '2,b,0.5\n2,c,1.0\n', 'its 5 rows'),
    ('metrics', '\n2,0.66', '\nx2,0.66', 'metrics.csv cannot be read as'),
  ],
)
def test_rows_that_are_not_what_they_were(folder, table, old, new, complaint):
  found = record(folder, 2)
  record(folder, 3, first=3, checkpoint=found)
  path = getattr(folder, table)
  text = path.read_text()
  assert text.count(old) == 1
  path.write_text(text.replace(old, new))
  with pytest.raises(errors.RunError, match=complaint):
    records.Records(folder, found)
  path.unlink()
  with pytest.raises(errors.RunError, match=f'{table}.csv is damaged: its 0'):
    records.Records(folder, found)
  path.write_text(text)
  assert records.Records(folder, found).dropped == 1


def test_a_row_a_client_in_the_cohorts_order():
  nan = float('nan')
  table = np.array(
    [
      [1, 2, 0.25, 0.125, 0.5, 0.5, 0.0625, 0.5],
      [0, 0, nan, nan, nan, nan, nan, nan],
    ],
    np.float32,
  )
  metrics = {'client_work': {'step_size_of_clients': table}}
  assert records.step_rows(['b', 'a'], metrics) == [
    {
      'client': 'b',
      'took_part': 1,
      'steps': 2,
      'mean': 0.25,
      'min': 0.125,
      'max': 0.5,
      'last': 0.5,
      'spread': 0.0625,
      'at_bound': 0.5,
    },
    {'client': 'a', 'took_part': 0, 'steps': 0}
    | dict.fromkeys(('mean', 'min', 'max', 'last', 'spread', 'at_bound')),
  ]
  with pytest.raises(ValueError):
    records.step_rows(['b'], metrics)


@pytest.mark.parametrize('metrics', [(), {}, {'client_work': {'train': 1}}])
def test_no_rows_where_nothing_was_recorded(metrics):
  assert records.step_rows(['a'], metrics) == []
