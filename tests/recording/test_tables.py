"""Tables are readable at any moment, and hold what a run wrote or nothing."""

import json

import numpy as np
import pandas as pd
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.recording import tables


def rows_of(path):
  lines = path.read_text().splitlines()
  return [line.split(',') for line in lines]


def test_columns_come_in_the_order_of_the_contract(tmp_path):
  table = tables.RowFile(tmp_path / 'm.csv')
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
      *('round', 'train/loss', 'train/acc', 'validation/loss'),
      *('validation/acc', 'step_size/mean', 'seconds', 'bytes_down'),
      'bytes_up',
    ],
    ['0', '', '', '2.0', '0.5', '', '', '', ''],
    ['1', '1.5', '0.1', '', '', '0.25', '0.5', '8', '9'],
  ]


def test_values_read_back_exactly(tmp_path):
  values = [np.float32(1) / 3, np.pi, np.float32('nan'), np.int64(7), 1e-45]
  table = tables.RowFile(tmp_path / 'm.csv')
  table.append({'round': 1, **{f'v{i}': v for i, v in enumerate(values)}})
  (row,) = tables.RowFile(tmp_path / 'm.csv').rows
  for i, value in enumerate(values):
    np.testing.assert_equal(type(value)(row[f'v{i}']), value)


def test_rows_after_a_round_are_dropped(tmp_path):
  table = tables.RowFile(tmp_path / 'm.csv')
  for r in range(6):
    table.append({'round': r, 'a': r * r})
  again = tables.RowFile(tmp_path / 'm.csv')
  assert again.drop_after(3) == 2
  again.append({'round': 4, 'a': -1.5e-07})
  assert [r[0] for r in rows_of(tmp_path / 'm.csv')[1:]] == list('01234')
  assert rows_of(tmp_path / 'm.csv')[-1] == ['4', '-1.5e-07']


def test_every_cut_of_the_file_can_be_read(tmp_path):
  table = tables.RowFile(tmp_path / 'm.csv')
  for r in range(3):
    table.append({'round': r, 'a': r / 7})
  whole = (tmp_path / 'm.csv').read_bytes()
  for cut in range(len(whole) + 1):
    (tmp_path / 'cut.csv').write_bytes(whole[:cut])
    rows = tables.RowFile(tmp_path / 'cut.csv').rows
    assert [r['round'] for r in rows] == list('012')[: len(rows)]
    complete = whole[:cut].count(b'\n')
    assert len(rows) == max(complete - 1, 0)


def test_a_line_may_be_cut_off_within_a_letter(tmp_path):
  table = tables.RowFile(tmp_path / 'm.csv')
  for r in range(2):
    table.append({'round': r, 'client': 'Zürich'})
  whole = table.path.read_bytes()
  table.path.write_bytes(whole[: whole.rindex('ü'.encode()) + 1])
  assert len(tables.RowFile(table.path).rows) == 1


def test_values_added_to_the_last_row(tmp_path):
  table = tables.RowFile(tmp_path / 'm.csv')
  table.append({'round': 1, 'a': 1})
  table.append({'round': 2, 'a': 2})
  for values, cell in (({'test/loss': 0.5}, '0.5'), ({}, '')):
    table.set_final(values)
    assert tables.RowFile(tmp_path / 'm.csv').rows == [
      {'round': '1', 'test/loss': '', 'a': '1'},
      {'round': '2', 'test/loss': cell, 'a': '2'},
    ]


@pytest.mark.parametrize(
  'content, complaint',
  [
    (b'a,b\n1,2\n', 'first column is not "round"'),
    (b'round,a\n1,2\n2,3,4\n', 'Expected 2 fields in line 3, saw 3'),
    (b'round,a\n1,2,3\n', 'its rows have more cells than its head'),
    (b'round,a\nx,2\n', "invalid literal for int() with base 10: 'x'"),
    (b'round,a\n2,2\n1,2\n', 'its rounds are not in order'),
    (b'round,client,a\n1,b,0.5\n1,c,half\n', "float: 'half'"),
    (b'round,a\n1,2..5\n', "could not convert string to float: '2..5'"),
    (b'round,a\n1,"2\n', 'EOF inside string'),
    (b'\xff\xfe\n', "can't decode byte 0xff"),
  ],
)
def test_files_that_no_run_wrote(tmp_path, content, complaint):
  (tmp_path / 'm.csv').write_bytes(content)
  with pytest.raises(errors.RunError, match=r'm\.csv cannot be read') as raised:
    tables.RowFile(tmp_path / 'm.csv')
  assert complaint in str(raised.value)


def _client_of(cell):
  return json.loads('"' + cell.removeprefix("'").replace('"', '\\"') + '"')


@pytest.mark.parametrize(
  'client',
  [
    *('a\rb', 'a\nb', 'a\r\nb', 'a,b;"c"', "it's", '\\r', '\\', '\\"', '=1+2'),
    *("'=1", '-x', '-1', '@a', '\t=x', '', ' a '),
    *('caf\N{LATIN SMALL LETTER E WITH ACUTE}', 'caf\udce9', '\x00\x7f\u2028'),
    'NA',
  ],
)
def test_any_id_of_a_client_is_a_cell_that_reads_back(tmp_path, client):
  table = tables.RowFile(tmp_path / 'm.csv')
  table.append({'round': 1, 'client': client, 'a': 0.5})
  (row,) = tables.RowFile(tmp_path / 'm.csv').rows
  assert _client_of(row['client']) == client
  assert (tmp_path / 'm.csv').read_bytes().count(b'\n') == 2
  tables.write(tmp_path / 'clients.csv', [{'client': client, 'loss': 0.5}])
  frame = pd.read_csv(
    tmp_path / 'clients.csv', dtype=str, keep_default_na=False
  )
  assert _client_of(frame['client'][0]) == client
  assert not row['client'].lstrip().startswith(('=', '+', '@'))


def test_what_diverges_is_recorded_as_it_is(tmp_path):
  path = tmp_path / 'm.csv'
  table = tables.RowFile(path)
  values = [np.float32('inf'), -np.inf, np.nan, np.finfo(np.float32).max, 1e99]
  table.append({'round': 1, **{f'train/{i}': v for i, v in enumerate(values)}})
  (found,) = tables.RowFile(path).numbers
  np.testing.assert_allclose(list(found.values())[1:], values)
