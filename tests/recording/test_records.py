"""Rows of a run: compared when it goes on, and dropped behind that."""

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import records
from tff_adaptive.lab.recording.checkpoints import folder as checkpoints


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


def test_checksums_of_all_rows(folder):
  found = record(folder, 2)
  assert found.row_sums['metrics'].shape == (3,)
  assert found.row_sums['step_sizes'].shape == (4,)
  assert len(set(found.row_sums['metrics'].tolist())) == 3
  # A table without rows makes no file.
  other = files.RunFolder(folder.path / 'other')
  other.path.mkdir()
  assert records.Records(other).sync(0)['step_sizes'].size == 0
  assert not other.step_sizes.exists()


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
  assert {t: len(s) for t, s in sums.items()} == dict.fromkeys(sums, 3)
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


@pytest.mark.parametrize(
  'table, old, new, complaint',
  [
    ('metrics', '\n1,1.0', '\n1,1.5', r'metrics.csv .* in line 3 \(round 1\)'),
    ('metrics', '\n1,1.0', '\n1,01.0', r'metrics.csv .* in line 3 \(round 1\)'),
    ('step_sizes', '1,b,0.5', '1,b,0.6', r'sizes.csv .* in line 3 \(round 1\)'),
    (
      'step_sizes',
      '2,b,0.5\n',
      '',
      r'has 3 rows up to round 2, but had 4 when',
    ),
    (
      'step_sizes',
      '2,b,0.5\n',
      '2,b,0.5\n2,c,1.0\n',
      'has 5 rows .*had 4 when',
    ),
    (
      'metrics',
      '\n2,0.66',
      '\nx2,0.66',
      'metrics.csv cannot be read as a table',
    ),
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
  path.write_text(text)
  assert records.Records(folder, found).dropped == 1


@pytest.mark.parametrize('table', records.TABLES)
def test_tables_that_are_gone(folder, table):
  found = record(folder, 2)
  getattr(folder, table).unlink()
  with pytest.raises(
    errors.RunError, match=r'has 0 rows up to round 2, but ha'
  ):
    records.Records(folder, found)


def test_checksums_fewer_than_rows_are_no_shorter_check(folder):
  """The last row could be anything otherwise."""
  found = record(folder, 2)
  for table in records.TABLES:
    sums = dict(found.row_sums, **{table: found.row_sums[table][:-1]})
    with pytest.raises(errors.RunError, match=r'when the checkpoint of that'):
      records.Records(folder, checkpoints.Checkpoint(2, None, sums))
