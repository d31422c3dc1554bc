"""Tables as people have them: what is read, and what is refused where."""

import os

import numpy as np
import pytest

from tasks.formats import data_files
from tasks.formats import tables

_NAMES = tables.Names('y')


def write(folder, text, name='t.csv'):
  path = folder / name
  path.parent.mkdir(exist_ok=True)
  path.write_text(text, encoding='utf-8')
  return path


def numbers(folder, text, **names):
  return tables.read(write(folder, text), tables.Names('y', **names)).numbers


@pytest.mark.parametrize('mark, divider', [('', ','), ('\ufeff', ';')])
def test_a_csv_file(tmp_path, mark, divider):
  text = 'a, y ,client,b\n1,yes,x,-2.5\n\n"3e1",no,x,0\n 4 , yes,z,1\n'
  path = write(tmp_path, mark + text.replace(',', divider))
  found = tables.read(path, _NAMES)
  np.testing.assert_array_equal(found.numbers, [[1, -2.5], [30, 0], [4, 1]])
  assert found.labels.str.strip().tolist() == ['yes', 'no', 'yes']
  assert found.clients.tolist() == ['x', 'x', 'z']
  assert [c.name for c in found.columns] == ['a', 'b']
  chosen = tables.read(path, tables.Names('a', 'y', ['b']))
  assert chosen.clients.str.strip().tolist() == ['yes', 'no', 'yes']
  assert chosen.numbers.tolist() == [[-2.5], [0], [1]]


def test_flags_say_how_numbers_are_written(tmp_path):
  text = 'a;b;y\n1.234;"5";0\n2.345;"6,5";1\n'
  point = numbers(tmp_path, text, decimal=',', thousands='.')
  assert point.tolist() == [[1234, 5], [2345, 6.5]]
  text = "a,y\n1'234.5,0\n7,1\n"
  assert numbers(tmp_path, text, thousands="'")[:, 0].tolist() == [1234.5, 7]
  with pytest.raises(data_files.DataError, match='look like numbers'):
    numbers(tmp_path, text)
  # A point that is no mark of thousands is not dropped.
  with pytest.raises(data_files.DataError, match=r"'28\.2' cannot be read"):
    numbers(tmp_path, 'a;y\n1.234;0\n28.2;1\n', thousands='.')
  assert numbers(tmp_path, 'a;y\n1,00,234;0\n', thousands=',') == 100_234
  text = 'a;y\n1,5;0\n2,5;1\n'
  assert numbers(tmp_path, text, decimal=',')[:, 0].tolist() == [1.5, 2.5]
  with pytest.raises(data_files.DataError, match='look like numbers'):
    numbers(tmp_path, text)


@pytest.mark.parametrize(
  'cells, told',
  [
    (('1', '2', 'x'), "2 of its 3 different words look like.*'x' cannot be"),
    (('1_0', '2', '3'), "'1_0' cannot be read"),
    (('\u22121.5', '2', '3'), 'look like numbers'),
    (('(1.50)', '2', '3'), 'look like numbers'),
    (('5 kg', '6 kg', '7 kg'), 'look like numbers'),
    (('<5', '6', '7'), "'<5' cannot be read"),
    (('\u0661', '\u0662', '\u0663'), 'look like numbers'),
    ([f'{i + 90}/{i % 7}' for i in range(60)], '60 different words in 60 rows'),
    (('12%', '3', '4'), 'look like numbers'),
    (('$5.00', '$6.00', '$7'), '3 of its 3 different words look like'),
    (('?', '3.5', '4.5'), r"row 1, column 'a': .*'\?' cannot be read"),
    (('2024-01-31', '2024-02-01', ''), "'2024-01-31' is a date or a time"),
    (('31.1.24 8:05', '1.2.24', ''), 'is a date or a time'),
    (('3 Jan 2024', '4 May 2024', ''), 'is a date or a time'),
    (('08:30', '09:15', ''), 'is a date or a time'),
    (('1e99', '1', '2'), "row 1, column 'a': a finite number.*got 1e.99"),
    (('inf', '1', '2'), "column 'a': a finite number was expected"),
    (('', 'NA', 'null'), "the column 'a' is empty; exclude it"),
    (('x' * 2000, 'a', 'b'), 'a word has 1,000 characters at most'),
  ],
)
def test_columns_that_are_neither_numbers_nor_words(tmp_path, cells, told):
  rows = ''.join(f'"{cell}",{i % 2}\n' for i, cell in enumerate(cells))
  path = write(tmp_path, f'a,y\n{rows}')
  with pytest.raises(data_files.DataError, match=told) as error:
    tables.read(path, _NAMES)
  assert str(error.value).startswith(str(path))
  assert '\n' not in str(error.value)
  if 'look like' in told or 'date' in told:
    found = tables.read(path, tables.Names('y', words=['a']))
    assert found.columns[0].kind == 'words'


@pytest.mark.parametrize(
  'cells',
  [('A1', 'B2', '7'), ('mon', 'tue', 'may'), ('10-19', '20-29', '30-39')],
)
def test_words_with_some_numbers_are_words(tmp_path, cells):
  rows = ''.join(f'{cell},{i % 2}\n' for i, cell in enumerate(cells))
  found = tables.read(write(tmp_path, f'a,y\n{rows}'), _NAMES)
  assert found.columns[0].words == tuple(sorted(cells))


def test_words_and_empty_cells(tmp_path):
  text = 'a,kind,zip,y\n1,red,010,0\nNA,blue,9,1\n3,,010,0\n4, red ,010,1\n'
  path = write(tmp_path, text)
  found = tables.read(path, tables.Names('y', words=['zip']))
  np.testing.assert_array_equal(found.numbers, [[1], [np.nan], [3], [4]])
  assert found.words['kind'].tolist() == ['red', 'blue', '', 'red']
  assert [(c.name, c.words, c.missing) for c in found.columns] == [
    ('a', (), 1),
    ('kind', ('blue', 'red'), 1),
    ('zip', ('010', '9'), 0),
  ]
  assert numbers(tmp_path, text)[:, 1].tolist() == [10, 9, 10, 10]
  with pytest.raises(data_files.DataError, match="no column 'who' of feat"):
    tables.read(path, tables.Names('y', words=['who']))
  many = '\n'.join(f'w{i}x,{i % 2}' for i in range(1001))
  for names in (_NAMES, tables.Names('y', words=['a'])):
    with pytest.raises(data_files.DataError, match='1,001 different words'):
      tables.read(write(tmp_path, f'a,y\n{many}'), names)


def test_letters_are_composed(tmp_path):
  found = tables.read(
    write(tmp_path, 'a,y\ncaf\u00e9,0\ncafe\u0301,1\n'), _NAMES
  )
  assert found.columns[0].words == ('caf\u00e9',)


@pytest.mark.parametrize('name', ['', 'Unnamed: 0', '__index_level_0__'])
def test_a_column_of_row_numbers_is_left_out(tmp_path, name):
  found = tables.read(write(tmp_path, f'{name},a,y\n0,5,0\n1,6,1\n'), _NAMES)
  assert [c.name for c in found.columns] == ['a']
  assert 'nameless column 1' in found.notes[0]
  name = name or 'Unnamed: 0'
  kept = tables.Names('y', features=['a', name])
  assert tables.read(tmp_path / 't.csv', kept).numbers.shape == (2, 2)


def test_labels_that_are_missing(tmp_path):
  path = write(tmp_path, 'a,y\n1,0\n2,\n3,NA\n4,1\n')
  with pytest.raises(data_files.DataError) as error:
    tables.read(path, _NAMES)
  for part in ('row 2', "column 'y'", '2 of 4 rows', '--table_drop_unlabelled'):
    assert part in str(error.value)
  found = tables.read(path, tables.Names('y', drop_unlabelled=True))
  assert found.numbers[:, 0].tolist() == [1, 4]
  assert found.notes == ('2 rows without a label are left out.',)
  # Places are those of the file, also behind rows that are left out.
  write(tmp_path, 'a,y\nx,0\n,\n5,1\n6,1\n7,1\n8,1\n1e99,1\n')
  with pytest.raises(data_files.DataError, match='row 1,'):
    tables.read(path, tables.Names('y', drop_unlabelled=True))


def test_a_folder_is_one_table(tmp_path):
  folder = tmp_path / 'sites'
  write(folder, 'a,b,y\n1,2,0\n', 'one.csv')
  write(folder, 'y,b,a\n1,20,10\n1,30,11\n', 'two.csv')
  (folder / 'notes.txt').write_text('Not read.')
  found = tables.read(folder, _NAMES)
  assert found.numbers.tolist() == [[1, 2], [10, 20], [11, 30]]
  assert found.clients.tolist() == ['one', 'two', 'two']
  write(folder, 'a,b,c,y\n1,2,3,0\n', 'three.csv')
  chosen = tables.read(folder, tables.Names('y', None, ['a']))
  assert [c.name for c in chosen.columns] == ['a']
  for text, part in (
    ('a,b,c,y\n1,2,3,0\n', "three.csv: it has a column 'c', which .*one.csv"),
    ('a,y\n1,0\n', "one.csv: it has a column 'b', which three.csv has not"),
    ('a,b\n1,0\n', "three.csv: it has no column 'y' for the label"),
    ('a,b,y\n1,2,3,0\n', 'three.csv is no whole CSV file'),
    ('a,b,y\nx,2,0\n', "three.csv, row 1, column 'a': 3 of its 4 .* 'x'"),
  ):
    write(folder, text, 'three.csv')
    with pytest.raises(data_files.DataError, match=part):
      tables.read(folder, _NAMES)


def test_files_with_and_without_marks_are_one_table(tmp_path):
  folder = tmp_path / 'sites'
  write(folder, 'a;y\n1,101;0\n1,15;1\n', 'a.csv')
  write(folder, 'a;y\n1.500,25;0,5\n0,5;1,5\n', 'b.csv')
  names = tables.Names('y', decimal=',', thousands='.')
  found = tables.read(folder, names)
  assert found.numbers[:, 0].tolist() == [1.101, 1.15, 1500.25, 0.5]
  write(folder, 'a;y\n1.5;0\n0,5;1\n', 'b.csv')
  with pytest.raises(
    data_files.DataError, match=r"b.csv, row 1.*'1\.5' cannot"
  ):
    tables.read(folder, names)


@pytest.mark.parametrize(
  'text, part',
  [
    ('', 'it is empty'),
    ('a,b\n1,2\n', "no column 'y' for the label; its columns are 'a', 'b'."),
    ('y\n1\n', 'it has no column for features'),
    ('b,a, a,y\n0,1,2,3\n', "it has the column 'a' twice."),
    ('a,y\n', 'it has no rows'),
    ('a,y\n1,0\n2\n', "row 2, column 'y': it is empty"),
    ('a,y\n1,0,4\n', 'no whole CSV file: Length of header'),
    ('a,y\n1,0\n1,0,4\n', 'no whole CSV file: .*line 3, saw 3'),
    ('a,y\n1,0\n"2,1\n', 'no whole CSV file: .*inside string'),
    ('a,y,client\n1,0,k\n2,1,\n', "row 2, column 'client': it is empty"),
  ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path, text, part):
  path = write(tmp_path, text)
  with pytest.raises(data_files.DataError, match=part) as error:
    tables.read(path, _NAMES)
  assert str(error.value).startswith(str(path))


def test_files_that_are_no_tables(tmp_path):
  (tmp_path / 'empty').mkdir()
  (tmp_path / 'bytes.csv').write_bytes(b'\xff\xfe\x00')
  (tmp_path / 'bytes.npz').write_bytes(b'PK\x03\x04')
  for name, part in (
    ('none.csv', 'There is no file .*none.csv. The first line names'),
    ('none.npz', 'There is no file .*none.npz; an archive'),
    ('empty', 'empty: a folder of CSV files.*was expected'),
    ('bytes.csv', 'bytes.csv is no whole CSV file.*decode'),
    ('bytes.npz', 'bytes.npz is no whole NumPy archive'),
    ('a\0b', 'null byte'),
  ):
    with pytest.raises(data_files.DataError, match=part):
      tables.read(tmp_path / name, _NAMES)
  with pytest.raises(data_files.DataError, match="no column 'who' for the cl"):
    tables.read(write(tmp_path, 'a,y\n1,0\n'), tables.Names('y', 'who'))


_PARTS = {'train': 'a,y\n1,0\n2,1\n', 'test': 'a,y\n3,0\n'}


@pytest.mark.parametrize(
  'files, expected',
  [
    (('train.csv', 'test.csv'), ['test', 'train', 'train']),
    (('training.csv', 'val.csv'), ['train', 'train', 'validation']),
    (('Train.csv', 'dev.csv'), ['train', 'train', 'validation']),
    (
      ('train-00000-of-00001.csv', 'test-00000-of-00001.csv'),
      ['test', 'train', 'train'],
    ),
    (('train/a.csv', 'test/b.csv'), ['test', 'train', 'train']),
    (('train_set.csv', 'adult_test.csv'), ['test', 'train', 'train']),
    (('train.csv',), ['train', 'train']),
  ],
)
def test_splits_are_no_clients(tmp_path, files, expected):
  for name in files:
    train = name.lower().startswith('train')
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(_PARTS['train' if train else 'test'])
  found = tables.read(tmp_path, _NAMES)
  assert sorted(found.split.tolist()) == expected
  if '/' not in files[0]:
    assert found.clients is None


def test_names_of_clients_that_are_not_utf_8(tmp_path):
  for name in (b'caf\xe9.csv', b'b.csv'):
    write(tmp_path, _PARTS['train'], os.fsdecode(name))
  found = tables.read(tmp_path, _NAMES)
  assert set(found.clients) == {'caf\\xe9', 'b'}


def test_splits_that_are_incomplete(tmp_path):
  write(tmp_path, _PARTS['test'], 'test.csv')
  write(tmp_path, _PARTS['test'], 'validation.csv')
  with pytest.raises(data_files.DataError, match='no split train beside test'):
    tables.read(tmp_path, _NAMES)
  write(tmp_path, _PARTS['train'], 'hospital.csv')
  with pytest.raises(
    data_files.DataError, match=r'test\.csv is named like a sp'
  ):
    tables.read(tmp_path, _NAMES)


def test_an_archive(tmp_path):
  path = tmp_path / 't.npz'
  images = np.arange(24).reshape(4, 3, 2)
  arrays = dict(client=[7, 7, 8, 8], images=images, y=['a', 'b', 'a', 'b'])
  np.savez(path, **arrays)
  found = tables.read(path, _NAMES)
  np.testing.assert_array_equal(found.numbers, images)
  assert found.clients.tolist() == [7, 7, 8, 8]
  assert found.labels.tolist() == ['a', 'b', 'a', 'b']
  np.savez(path, **arrays, more=[1, 2, 3, 4])
  beside = tables.read(path, _NAMES)
  np.testing.assert_array_equal(beside.numbers[:, :6], images.reshape(4, 6))
  assert beside.numbers[:, 6].tolist() == [1, 2, 3, 4]
  one = tables.read(path, tables.Names('y', None, ['more']))
  assert one.numbers.shape == (4, 1)
  bytes_ = np.array([b'k', b'\xff\xfe', b'k', b'l'])
  gaps = np.where(images == 5, np.nan, images)
  for wrong, part in (
    (dict(x=[1.0, 2]), "array 'x': 4 rows were expected, got the shape"),
    (dict(x=[1.0, 2, np.inf, 3]), "row 3, column 'x': a finite number"),
    (dict(x=3.0), "array 'x': 4 rows were expected"),
    (dict(y=images), "column 'y': one word or number a row was expected"),
    (dict(y=[1.0, np.nan, 1, 0]), "row 2, column 'y': it is empty"),
    (dict(y=['a', 'b', ' ', 'b']), "row 3, column 'y': it is empty"),
    (dict(client=['k', '', 'k', 'l']), "row 2, column 'client': it is empty"),
    (dict(images=gaps), "row 1, column 'images': a finite number"),
    (dict(client=bytes_), "'client': its bytes are not valid UTF-8"),
    (dict(x=np.ones(4) * 1j), "'x': words or real numbers .* complex128"),
    (dict(x=np.zeros(4, [('a', 'f4')])), "'x': words or real numbers"),
  ):
    np.savez(path, **{**arrays, **wrong})
    with pytest.raises(data_files.DataError, match=part):
      tables.read(path, _NAMES)


def test_a_word_is_one_in_all_files(tmp_path):
  header = 'code,smoker,n,y\n'
  rows = '007,TRUE,1,0\nAX,unknown,2,1\nBX,TRUE,2,1\n'
  write(tmp_path, header + rows, 'train.csv')
  write(tmp_path, f'{header}007,TRUE,3,0\n12,FALSE,4,1\n', 'test.csv')
  found = tables.read(tmp_path, _NAMES)
  words = {column.name: column.words for column in found.columns}
  assert words['code'] == ('007', '12', 'AX', 'BX')
  assert words['smoker'] == ('FALSE', 'TRUE', 'unknown')
  assert found.numbers[:, 0].tolist() == [3, 4, 1, 2, 2]


@pytest.mark.parametrize(
  'files, told',
  [
    (
      ['a.csv', 'b.parquet'],
      'b.parquet is beside a.csv and is of another kind',
    ),
    (['a.csv', 'b.PARQUET'], 'b.PARQUET is beside a.csv'),
    (['train.csv', 'test/t.csv'], 'test is beside train.csv'),
    (['a.csv', 'a.CSV'], 'would be the same client'),
  ],
)
def test_no_file_of_a_folder_is_left_out(tmp_path, files, told):
  for name in files:
    write(tmp_path, 'a,y\n1,0\n2,1\n', name)
  with pytest.raises(data_files.DataError, match=told):
    tables.read(tmp_path, _NAMES)


def test_what_is_beside_the_tables_is_named(tmp_path):
  for name in ('a.csv', 'b.tsv', 'c.npz', 'more/d.csv', 'notes.txt'):
    write(tmp_path, 'a,y\n1,0\n2,1\n', name)
  found = tables.read(tmp_path, _NAMES)
  assert found.clients.tolist() == ['a'] * 2 + ['b'] * 2
  assert "'c.npz', 'more', 'notes.txt' is left out" in found.notes[0]


@pytest.mark.parametrize(
  'head, names',
  [
    ('\n\na,y', 'a'),
    ('"a\nb",y', 'a\nb'),
    ('"a, b", "y"', 'a, b'),
    ('"a, b, c, d";"y"', 'a, b, c, d'),
    ('a ";y', 'a "'),
  ],
)
def test_heads_are_read_as_csv_files_are(tmp_path, head, names):
  mark = ';' if ';' in head else ','
  path = write(tmp_path, f'{head}\n1{mark}0\n2{mark}1\n')
  [column] = tables.read(path, _NAMES).columns
  assert column.name == names


def test_labels_are_numbers_in_any_form(tmp_path):
  write(tmp_path, 'a,y\n1,.25\n2,1e-05\n', 'a.csv')
  write(tmp_path, 'a,y\n1,1\n2,3\n', 'b.csv')
  assert len(tables.read(tmp_path, _NAMES).labels) == 4


def test_folders_of_splits_may_have_files_of_their_name(tmp_path):
  for name in ('train/train.csv', 'test/test.csv'):
    write(tmp_path, 'a,y\n1,0\n2,1\n', name)
  found = tables.read(tmp_path, _NAMES).split
  assert sorted(found) == ['test'] * 2 + ['train'] * 2


def test_cells_of_blanks_are_empty(tmp_path):
  names = tables.Names('y', words=['a'], literal=['a'])
  with pytest.raises(data_files.DataError, match="column 'a' is empty"):
    tables.read(write(tmp_path, 'a,y\n,0\n ,1\n'), names)


def test_answers_with_gaps_in_one_file_are_numbers(tmp_path):
  write(tmp_path, 'flag,y\nTrue,0\nFalse,1\n', 'a.csv')
  write(tmp_path, 'flag,y\n,0\nTrue,1\n', 'b.csv')
  found = tables.read(tmp_path, _NAMES).numbers[:, 0]
  np.testing.assert_array_equal(found, [1, 0, np.nan, 1])


def test_files_of_capital_letters_are_read_and_hidden_ones_are_not(tmp_path):
  for name in ('a.csv', 'b.CSV', '._a.csv'):
    write(tmp_path, 'a,y\n1,0\n2,1\n', name)
  assert tables.read(tmp_path, _NAMES).clients.tolist() == ['a'] * 2 + ['b'] * 2


def test_a_client_column_is_not_made_up(tmp_path):
  for name in ('a.csv', 'b.csv'):
    write(tmp_path, 'Ward,x,y\n1,3,0\n2,4,1\n', name)
  with pytest.raises(data_files.DataError, match="no column 'ward' for the cl"):
    tables.read(tmp_path, tables.Names('y', 'ward'))


@pytest.mark.parametrize(
  'names, told',
  [
    (dict(features=['a', 'y']), "'y' is the label, and no feature"),
    (dict(text='y'), "'y' is the label, and no feature"),
    (dict(image_size=32), 'image_size=32 would be ignored'),
  ],
)
def test_what_would_be_wrong_or_ignored_is_refused(tmp_path, names, told):
  path = write(tmp_path, 'a,y\n1,0\n2,1\n')
  with pytest.raises(data_files.DataError, match=told):
    tables.read(path, tables.Names('y', **names))


def test_arrays_are_no_words(tmp_path):
  np.savez(tmp_path / 'a.npz', scan=np.zeros([2, 3]), y=np.arange(2))
  with pytest.raises(data_files.DataError, match='one word a row was expected'):
    tables.read(tmp_path / 'a.npz', tables.Names('y', words=['scan']))
