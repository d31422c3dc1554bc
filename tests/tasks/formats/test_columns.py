"""Tables of examples: what is read, and what is refused where."""

import time
import tracemalloc

import numpy as np
import pytest

from tasks.formats import columns
from tasks.formats import data_errors

_NAMES = columns.Names('y')


def write(folder, text, name='t.csv'):
  path = folder / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text, encoding='utf-8')
  return path


@pytest.mark.parametrize('mark, divider', [('', ','), ('\ufeff', ';')])
def test_a_csv_file(tmp_path, mark, divider):
  text = 'a, y ,client,b\n1,yes,x,-2.5\n\n"3e1",no,x,0\n 4 , yes,z,1\n'
  path = write(tmp_path, mark + text.replace(',', divider))
  found = columns.read(path, _NAMES)
  assert found.features.dtype == np.float32
  np.testing.assert_array_equal(found.features, [[1, -2.5], [30, 0], [4, 1]])
  assert found.labels.tolist() == ['yes', 'no', 'yes']
  assert found.clients.tolist() == ['x', 'x', 'z']
  assert found.names == ('a', 'b')
  chosen = columns.read(path, columns.Names('a', 'y', ['b']))
  assert chosen.clients.tolist() == found.labels.tolist()
  assert chosen.features.tolist() == [[-2.5], [0], [1]]
  assert chosen.labels.tolist() == ['1', '3e1', '4']


def test_many_rows_are_read_in_pieces(tmp_path, monkeypatch):
  monkeypatch.setattr(columns, '_CHUNK', 3)
  rows = [f'{i},{i % 2}' for i in range(10)]
  path = write(tmp_path, '\n'.join(['x,y', *rows]))
  found = columns.read(path, _NAMES)
  assert found.features[:, 0].tolist() == list(range(10))
  assert found.labels.tolist() == [str(i % 2) for i in range(10)]
  path.write_text('\n'.join(['x,y', *rows[:7], 'seven,0', *rows[8:]]))
  with pytest.raises(data_errors.DataError, match="line 9, column 'x'"):
    columns.read(path, _NAMES)


def test_a_folder_is_one_table(tmp_path):
  folder = tmp_path / 'sites'
  write(folder, 'a,b,y\n1,2,0\n', 'one.csv')
  write(folder, 'y,b,a\n1,20,10\n1,30,11\n', 'two.csv')
  (folder / 'notes.txt').write_text('Not read.')
  found = columns.read(folder, _NAMES)
  assert found.features.tolist() == [[1, 2], [10, 20], [11, 30]]
  assert found.clients.tolist() == ['one', 'two', 'two']
  write(folder, 'a,b,c,y\n1,2,3,0\n', 'three.csv')
  assert columns.read(folder, columns.Names('y', None, ['a'])).names == ('a',)
  for text, part in (
    ('a,b,c,y\n1,2,3,0\n', "three.csv: it has a column 'c', which one.csv"),
    ('a,y\n1,0\n', "three.csv: it has no column 'b' for the feature"),
    ('a,b,y,client\n1,2,0,k\n', "one.csv: it has no column 'client' for the c"),
  ):
    write(folder, text, 'three.csv')
    with pytest.raises(data_errors.DataError, match=part):
      columns.read(folder, _NAMES)


@pytest.mark.parametrize(
  'text, part',
  [
    ('', "it has no column 'y' for the label; its columns are "),
    ('a,b\n1,2\n', "no column 'y' for the label; its columns are 'a', 'b'."),
    ('y\n1\n', 'it has no column for features'),
    ('a,a,y\n', "line 1 has the column 'a' twice"),
    ('a,y\n', 'it has no rows after its header'),
    ('a,y\n1,0\n2\n', 'line 3: 2 cells were expected, as in the header, got 1'),
    ('a,y\n1,0,4\n', 'line 2: 2 cells were expected, as in the header, got 3'),
    ('a,y\n1,0\nx,1\n', "line 3, column 'a': a finite number.*got 'x'"),
    ('a,y\n,0\n ,1\n', "the column 'a' is empty"),
    ('a,y\n1,0\n1_0,1\n', "line 3, column 'a': a finite number.*got '1_0'"),
    ('a,y\n1_0,0\n', "line 2, column 'a': a finite number.*got '1_0'"),
    ('a,y\n1,0\n٣,1\n', "line 3, column 'a': a finite number.*got '٣'"),
    ('a,y\nu,0\n3,1\n', "line 2, column 'a': .*in other rows, got 'u'"),
    ('a,y\n2024-01-31,0\n', "line 2, column 'a': '2024-01-31' is a date"),
    ('a,y\n31.1.24 8:05,0\n', "column 'a': '31.1.24 8:05' is a date"),
    ('a,y\n3 Jan 2024,0\n', "column 'a': '3 Jan 2024' is a date or a time"),
    ('a,y\n08:30,0\n', "column 'a': '08:30' is a date or a time"),
    (f'a,y\n1,0\n2,{"x" * 2000}\n', "column 'y': it has 2,000 characters"),
    (f'a,y\n{"x" * 2000},0\n', "column 'a': a word has 1,000 characters"),
    ('a,y\n1,0\nnan,1\n', "line 3, column 'a': a finite number.*got 'nan'"),
    ('a,y\n1,0\n1e99,1\n', "line 3, column 'a': a finite number.*got '1e99'"),
    ('a,b,y\n1,2,0\n1,"x,5",0\n', "line 3, column 'b': .*got 'x,5'"),
    ('a,y\n1,0\n2, \n', "line 3, column 'y': it is empty"),
    ('a,y,client\n1,0,k\n2,1,\n', "line 3, column 'client': it is empty"),
  ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, part):
  path = write(tmp_path, text)
  with pytest.raises(data_errors.DataError, match=part) as error:
    columns.read(path, _NAMES)
  assert str(error.value).startswith(str(path))
  assert '\n' not in str(error.value)


def test_names_that_are_not_there(tmp_path):
  path = write(tmp_path, 'a,y\n1,0\n')
  for names, part in (
    (columns.Names('y', 'who'), "no column 'who' for the client"),
    (columns.Names('y', None, ['z']), "no column 'z' for the feature"),
  ):
    with pytest.raises(data_errors.DataError, match=part):
      columns.read(path, names)


def test_files_that_are_no_tables(tmp_path):
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'bytes.csv').write_bytes(b'\xff\xfe\x00')
  (tmp_path / 'bytes.npz').write_bytes(b'PK\x03\x04')
  for name, part in (
    ('none.csv', 'There is no file .*none.csv; a CSV file'),
    ('none.npz', 'There is no file .*none.npz; an archive'),
    ('empty', 'empty: a folder of CSV files was expected'),
    ('bytes.csv', 'bytes.csv is not valid UTF-8 text'),
    ('bytes.npz', 'bytes.npz is no whole NumPy archive'),
    ('a\0b', 'is not valid UTF-8 text'),
  ):
    with pytest.raises(data_errors.DataError, match=part):
      columns.read(tmp_path / name, _NAMES)


def test_an_archive(tmp_path):
  path = tmp_path / 't.npz'
  images = np.arange(24).reshape(4, 3, 2)
  arrays = dict(client=[7, 7, 8, 8], images=images, y=['a', 'b', 'a', 'b'])
  np.savez(path, **arrays)
  found = columns.read(path, _NAMES)
  np.testing.assert_array_equal(found.features, images)
  assert found.features.dtype == np.float32
  assert found.clients.tolist() == ['7', '7', '8', '8']
  assert found.labels.tolist() == ['a', 'b', 'a', 'b']
  np.savez(path, **arrays, more=[1, 2, 3, 4])
  beside = columns.read(path, _NAMES)
  np.testing.assert_array_equal(beside.features[:, :6], images.reshape(4, 6))
  assert beside.features[:, 6].tolist() == [1, 2, 3, 4]
  one = columns.read(path, columns.Names('y', None, ['more']))
  assert one.features.shape == (4, 1)
  for wrong, part in (
    (dict(x=[1.0, 2]), "array 'x': 4 rows were expected, as there are labels"),
    (dict(x=[1.0, 2, np.nan, 3]), "array 'x', row 2: a finite number.*got nan"),
    (dict(x=['1', '2', '3', '4']), "array 'x': numbers were expected"),
    (dict(x=3.0), "array 'x': 4 rows were expected"),
    (dict(y=[[1], [2]]), "array 'y': one label an example"),
    (dict(client=images), "array 'client': one client an example"),
  ):
    np.savez(path, **{**arrays, **wrong})
    with pytest.raises(data_errors.DataError, match=part):
      columns.read(path, _NAMES)


def test_words_and_empty_cells(tmp_path, monkeypatch):
  monkeypatch.setattr(columns, '_CHUNK', 2)
  text = 'a,kind,zip,y\n1,red,10,0\n,blue,9,1\n3,,10,0\n4, red ,10,1\n'
  path = write(tmp_path, text)
  found = columns.read(path, columns.Names('y', words=['zip']))
  np.testing.assert_array_equal(
    found.features,
    [[1, 1, 0], [np.nan, 0, 1], [3, np.nan, 0], [4, 1, 0]],
  )
  assert found.columns == (
    columns.Column('a', missing=1),
    columns.Column('kind', ('blue', 'red'), missing=1),
    columns.Column('zip', ('10', '9')),
  )
  numbers = columns.read(path, _NAMES)
  assert numbers.features[:, 2].tolist() == [10, 9, 10, 10]
  with pytest.raises(data_errors.DataError, match="no column 'who' of feat"):
    columns.read(path, columns.Names('y', words=['who']))
  # Files of one folder share their words.
  write(tmp_path / 'all', 'k,y\nb,0\n', 'one.csv')
  write(tmp_path / 'all', 'k,y\na,0\nc,1\n', 'two.csv')
  shared = columns.read(tmp_path / 'all', _NAMES)
  assert shared.features[:, 0].tolist() == [1, 0, 2]
  assert shared.columns[0].words == ('a', 'b', 'c')
  write(tmp_path / 'all', 'k,y\n3,0\n', 'three.csv')
  with pytest.raises(data_errors.DataError, match=r'one\.csv, line 2,'):
    columns.read(tmp_path / 'all', _NAMES)
  many = '\n'.join(f'w{i},{i % 2}' for i in range(1001))
  with pytest.raises(data_errors.DataError, match='the 1,001th different word'):
    columns.read(write(tmp_path, f'a,y\n{many}'), _NAMES)


def test_one_long_cell_takes_no_memory_for_the_others(tmp_path):
  rows = 'x,c,1\n' * 30_000
  path = write(tmp_path, f'y,client,a\n{rows}{"x" * 900},{"c" * 900},1\n')
  tracemalloc.start()
  try:
    columns.read(path, _NAMES)
    _, peak = tracemalloc.get_traced_memory()
  finally:
    tracemalloc.stop()
  assert peak < 40e6  # It was 216 MB for the labels and clients alone.


def test_many_columns(tmp_path):
  names = ','.join(f'c{i}' for i in range(20_000))
  row = ','.join(['1'] * 20_000)
  path = write(tmp_path, f'{names},y\n{row},0\n{row},1\n')
  start = time.process_time()
  found = columns.read(path, _NAMES)
  assert time.process_time() - start < 1.5
  assert found.features.shape == (2, 20_000)


def test_archives_of_odd_kinds(tmp_path):
  path = tmp_path / 't.npz'
  arrays = dict(x=[1.0, 2], y=['a', 'b'], client=['k', 'l'])
  pair = np.zeros(2, [('a', 'f4'), ('b', 'i4')])
  for name, wrong, part in (
    (
      'client',
      np.array([b'k', b'\xff\xfe']),
      "'client': its bytes are not valid UTF",
    ),
    (
      'y',
      np.array([b'k', b'\xff\xfe']),
      "array 'y': its bytes are not valid UTF-8",
    ),
    ('y', np.array([1 + 2j, 0]), "'y': words or real numbers .* complex128"),
    ('y', np.array([1.0, np.nan]), "array 'y', row 1: a word or a number"),
    ('y', pair, "array 'y': words or real numbers"),
    ('x', pair, "array 'x': numbers were expected"),
    ('client', pair, "array 'client': words or real numbers"),
  ):
    np.savez(path, **{**arrays, name: wrong})
    with pytest.raises(data_errors.DataError, match=part):
      columns.read(path, _NAMES)
  np.savez(path, **{**arrays, 'client': np.array(['ü'.encode(), b'l'])})
  assert columns.read(path, _NAMES).clients.tolist() == ['ü', 'l']
