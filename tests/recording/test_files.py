"""Files are whole or not there, also when a writer was killed."""

import os

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.recording import files


def rows_of(path):
  lines = path.read_text().splitlines()
  return [line.split(',') for line in lines]


def test_atomic_write_leaves_nothing_beside(tmp_path):
  files.write_atomically(tmp_path / 'a', b'one')
  files.write_atomically(tmp_path / 'a', b'two')
  assert (tmp_path / 'a').read_bytes() == b'two'
  assert os.listdir(tmp_path) == ['a']


def test_write_that_fails_keeps_the_old_file(tmp_path):
  (tmp_path / 'a').mkdir()
  with pytest.raises(errors.RunError, match='cannot be written'):
    files.write_atomically(tmp_path / 'a', b'one')
  assert os.listdir(tmp_path) == ['a']


def test_columns_come_in_the_order_of_the_contract(tmp_path):
  table = files.RowFile(tmp_path / 'm.csv')
  table.append({'round': 0, 'validation/acc': 0.5, 'validation/loss': 2.0})
  table.append(
    {
      'round': 1,
      'train/acc': np.float32(0.1),
      'train/loss': 1.5,
      'step_size/mean': 0.25,
      'seconds': 0.5,
      'bytes_down': 8,
      'bytes_up': 9,
    }
  )
  assert rows_of(tmp_path / 'm.csv') == [
    [
      'round',
      'train/loss',
      'train/acc',
      'validation/loss',
      'validation/acc',
      'step_size/mean',
      'seconds',
      'bytes_down',
      'bytes_up',
    ],
    ['0', '', '', '2.0', '0.5', '', '', '', ''],
    ['1', '1.5', '0.1', '', '', '0.25', '0.5', '8', '9'],
  ]


def test_values_read_back_exactly(tmp_path):
  values = [np.float32(1) / 3, np.pi, np.float32('nan'), np.int64(7), 1e-45]
  table = files.RowFile(tmp_path / 'm.csv')
  table.append({'round': 1, **{f'v{i}': v for i, v in enumerate(values)}})
  (row,) = files.RowFile(tmp_path / 'm.csv').rows
  for i, value in enumerate(values):
    np.testing.assert_equal(type(value)(row[f'v{i}']), value)


def test_rows_after_a_round_are_dropped(tmp_path):
  table = files.RowFile(tmp_path / 'm.csv')
  for r in range(6):
    table.append({'round': r, 'a': r * r})
  again = files.RowFile(tmp_path / 'm.csv')
  assert again.drop_after(3) == 2
  again.append({'round': 4, 'a': -1.5e-07})
  assert [r[0] for r in rows_of(tmp_path / 'm.csv')[1:]] == list('01234')
  assert rows_of(tmp_path / 'm.csv')[-1] == ['4', '-1.5e-07']


def test_every_cut_of_the_file_can_be_read(tmp_path):
  table = files.RowFile(tmp_path / 'm.csv')
  for r in range(3):
    table.append({'round': r, 'a': r / 7})
  whole = (tmp_path / 'm.csv').read_bytes()
  for cut in range(len(whole) + 1):
    (tmp_path / 'cut.csv').write_bytes(whole[:cut])
    rows = files.RowFile(tmp_path / 'cut.csv').rows
    assert [r['round'] for r in rows] == list('012')[: len(rows)]
    complete = whole[:cut].count(b'\n')
    assert len(rows) == max(complete - 1, 0)


def test_values_added_to_the_last_row(tmp_path):
  table = files.RowFile(tmp_path / 'm.csv')
  table.append({'round': 1, 'a': 1})
  table.append({'round': 2, 'a': 2})
  table.extend_last({'test/loss': 0.5})
  assert files.RowFile(tmp_path / 'm.csv').rows == [
    {'round': '1', 'test/loss': '', 'a': '1'},
    {'round': '2', 'test/loss': '0.5', 'a': '2'},
  ]


@pytest.mark.parametrize(
  'content, complaint',
  [
    (b'a,b\n1,2\n', 'not written by a run'),
    (b'round,a\n1,2\n2\n', 'damaged in line 3'),
    (b'round,a\nx,2\n', 'damaged in line 2'),
    (b'round,a\n1,2\n3,2\n', 'damaged in line 3'),
    (b'round,a\n1,2..5\n', 'damaged in line 2'),
    (b'round,a\n1,"2\n', 'no whole CSV file'),
    (b'\xff\xfe\n', 'cannot be read'),
  ],
)
def test_files_that_no_run_wrote(tmp_path, content, complaint):
  (tmp_path / 'm.csv').write_bytes(content)
  with pytest.raises(errors.RunError, match=complaint):
    files.RowFile(tmp_path / 'm.csv')


def test_looking_whether_a_folder_can_be_written_leaves_no_trace(tmp_path):
  files.check_writable(tmp_path / 'a' / 'b')
  assert not os.listdir(tmp_path)
  (tmp_path / 'file').write_text('')
  with pytest.raises(errors.SettingsError, match='--root_output_dir'):
    files.check_writable(tmp_path / 'file' / 'b')
  assert os.listdir(tmp_path) == ['file']


def test_two_processes_in_one_folder(tmp_path):
  folder = tmp_path / 'run'
  complains = pytest.raises(errors.SettingsError, match='Another process')
  with files.RunFolder(folder), complains, files.RunFolder(folder):
    pass
  with files.RunFolder(tmp_path / 'run'):
    pass


def test_settings_round_trip_and_damage(tmp_path):
  with files.RunFolder(tmp_path / 'run') as folder:
    assert folder.read_hparams() is None
    folder.write_hparams({'settings': {'a': 0.1, 'b': None}})
    assert folder.read_hparams() == {'settings': {'a': 0.1, 'b': None}}
    for damage in ('{', '[1]', '\x00', '{"settings": []}', '[' * 9999):
      folder.hparams.write_text(damage)
      with pytest.raises(errors.SettingsError, match='settings'):
        folder.read_hparams()
