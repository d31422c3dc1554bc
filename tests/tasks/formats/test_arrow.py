"""Parquet, Arrow and saved datasets, in files that are written here."""

import decimal
import io
import json

import numpy as np
import pytest
from PIL import Image

import tasks
from tasks.formats import data_files
from tasks.formats import tables
from tff_adaptive import parameters

pyarrow = pytest.importorskip('pyarrow')

_NAMES = tables.Names('label')


def _table(**changed):
  return pyarrow.table(
    {
      'age': pyarrow.array([40, None, 60, 20], pyarrow.int64()),
      'kind': ['red', 'blue', None, 'red'],
      'label': ['yes', 'no', 'no', 'yes'],
      'client': [1, 1, 2, 2],
      **changed,
    }
  )


def _write(table, path):
  from pyarrow import feather
  from pyarrow import parquet

  if path.suffix == '.parquet':
    parquet.write_table(table, path)
  elif path.suffix == '.feather':
    feather.write_feather(table, path)
  else:
    kind = 'new_stream' if 'stream' in path.name else 'new_file'
    with getattr(pyarrow.ipc, kind)(str(path), table.schema) as writer:
      writer.write_table(table)
  return path


@pytest.mark.parametrize(
  'name', ['a.parquet', 'a.feather', 'a.arrow', 'stream.arrow']
)
def test_a_file_of_each_kind(tmp_path, name):
  found = tables.read(_write(_table(), tmp_path / name), _NAMES)
  np.testing.assert_array_equal(found.numbers, [[40], [np.nan], [60], [20]])
  assert found.words['kind'].tolist() == ['red', 'blue', '', 'red']
  assert found.labels.tolist() == ['yes', 'no', 'no', 'yes']
  assert found.clients.tolist() == [1, 1, 2, 2]
  assert [(c.name, c.words, c.missing) for c in found.columns] == [
    ('age', (), 1),
    ('kind', ('blue', 'red'), 1),
  ]


def test_columns_of_other_types(tmp_path):
  table = pyarrow.table(
    {
      'flag': [True, False],
      'price': [decimal.Decimal('1.00')] * 2,
      'grid': [[[1, 2], [3, 4]], [[5, 6], [7, 8]]],
      'fixed': pyarrow.array(
        [[1.5, 2.5], [3.5, 4.5]], pyarrow.list_(pyarrow.float64(), 2)
      ),
      'label': pyarrow.array(['a', 'b']).dictionary_encode(),
    }
  )
  path = _write(table, tmp_path / 'a.parquet')
  found = tables.read(path, _NAMES)
  assert found.numbers.tolist() == [
    [1, 1, 1, 2, 3, 4, 1.5, 2.5],
    [0, 1, 5, 6, 7, 8, 3.5, 4.5],
  ]
  assert [c.width for c in found.columns] == [1, 1, 4, 2]
  assert found.clients is None
  alone = tables.read(path, tables.Names('label', features=['grid']))
  assert alone.numbers.shape == (2, 2, 2)
  codes = tables.read(
    _write(_table(age=[7, 5, 7, 7]), path), tables.Names('label', words=['age'])
  )
  assert codes.columns[0].words == ('5', '7')


def test_binary_words_are_text(tmp_path):
  table = _table(
    kind=pyarrow.array([b'q', b'r', b'q', None], pyarrow.binary()),
    client=pyarrow.array([b'u', b'v', b'u', b'v'], pyarrow.binary()),
  )
  path = _write(table, tmp_path / 'a.parquet')
  found = tables.read(path, tables.Names('label', words=['kind']))
  assert next(c for c in found.columns if c.name == 'kind').words == ('q', 'r')


def test_large_integers_beside_empty_cells(tmp_path):
  labels = [2**53, 2**53 + 1, 2**53 + 2, None]
  path = _write(
    _table(label=labels, client=[1, 2, 1, 2]), tmp_path / 'a.parquet'
  )
  found = tables.read(path, tables.Names('label', drop_unlabelled=True))
  assert found.labels.tolist() == labels[:3]
  np.testing.assert_array_equal(found.numbers, [[40], [np.nan], [60]])
  with pytest.raises(data_files.DataError, match="row 4, column 'label'"):
    tables.read(path, _NAMES)


def test_a_folder_of_files_is_a_folder_of_clients(tmp_path):
  table = _table().drop_columns(['client'])
  for name in ('north.parquet', 'south.arrow'):
    _write(table, tmp_path / name)
  found = tables.read(tmp_path, _NAMES)
  assert found.clients.tolist() == ['north'] * 4 + ['south'] * 4
  # Pieces of one table are not.
  pieces = tmp_path / 'pieces'
  pieces.mkdir()
  for i in range(2):
    _write(table, pieces / f'train-0000{i}-of-00002.parquet')
  found = tables.read(pieces, _NAMES)
  assert found.clients is None and len(found.labels) == 8
  _write(
    table.rename_columns(['age', 'sort', 'label']), pieces / 'train-2.parquet'
  )
  with pytest.raises(
    data_files.DataError, match=r"column 'kind', which train-2\.parquet has not"
  ):
    tables.read(pieces, _NAMES)


def _png(level, size=(6, 4), mode='RGB'):
  file = io.BytesIO()
  Image.new(mode, size, level).save(file, 'PNG')
  return file.getvalue()


def save_to_disk(folder, table, features, **state):
  """Writes what `Dataset.save_to_disk` of Hugging Face's datasets writes."""
  folder.mkdir()
  half = len(table) // 2
  files = []
  for i, part in enumerate((table[:half], table[half:])):
    name = f'data-{i:05}-of-00002.arrow'
    with pyarrow.ipc.new_stream(str(folder / name), table.schema) as writer:
      writer.write_table(part)
    files.append({'filename': name})
  state = {
    '_data_files': files,
    '_fingerprint': '5c2bb0c1',
    '_format_columns': None,
    '_format_type': None,
    '_split': None,
    **state,
  }
  (folder / 'state.json').write_text(json.dumps(state))
  info = {'builder_name': 'made_up', 'features': features}
  (folder / 'dataset_info.json').write_text(json.dumps(info))
  return folder


_FEATURES = {
  'image': {'_type': 'Image'},
  'label': {'names': ['cat', 'dog'], '_type': 'ClassLabel'},
}


def _pictures(**changed):
  image = [{'bytes': _png((i, 0, 9)), 'path': None} for i in range(4)]
  return pyarrow.table({'image': image, 'label': [0, 1, 1, 0], **changed})


def test_a_saved_dataset(tmp_path):
  folder = save_to_disk(tmp_path / 'pets', _pictures(), _FEATURES)
  found = tables.read(folder, _NAMES)
  assert found.labels.tolist() == ['cat', 'dog', 'dog', 'cat']
  assert found.clients is None
  assert found.numbers.shape == (4, 4, 6, 3)
  assert found.numbers[2, 0, 0].tolist() == [2, 0, 9]
  assert found.columns[0].kind == 'image'
  small = tables.read(folder, tables.Names('label', image_size=2))
  assert small.numbers.shape == (4, 2, 2, 3)
  text = pyarrow.table({'text': ['a b', None, 'c', 'd'], 'label': [0, 1, 1, 0]})
  texts = save_to_disk(tmp_path / 'texts', text, {'label': _FEATURES['label']})
  found = tables.read(texts, tables.Names('label', text='text'))
  assert found.words['text'].tolist() == ['a b', '', 'c', 'd']
  assert (found.columns[0].kind, found.columns[0].missing) == ('text', 1)


def test_no_file_elsewhere_is_opened(tmp_path):
  """Neither one that the state names, nor one that an image names."""
  secret = _write(_pictures(), tmp_path / 'secret.arrow')
  for name in (f'../{secret.name}', str(secret), 5):
    folder = tmp_path / 'outside'
    save_to_disk(folder, _pictures(), {}, _data_files=[{'filename': name}])
    with pytest.raises(data_files.DataError, match='beside it'):
      tables.read(folder, _NAMES)
    for path in folder.iterdir():
      path.unlink()
    folder.rmdir()
  (tmp_path / 'x.png').write_bytes(_png((1, 1, 1)))
  image = [{'bytes': None, 'path': str(tmp_path / 'x.png')}] * 4
  named = save_to_disk(tmp_path / 'named', _pictures(image=image), _FEATURES)
  with pytest.raises(
    data_files.DataError, match=r"row 1, .*x\.png, column 'image': the b"
  ):
    tables.read(named, _NAMES)


@pytest.mark.parametrize(
  'changed, options, told',
  [
    (
      {'age': [1, 2, 3, np.inf]},
      {},
      r"row 4, column 'age': a finite number.*inf",
    ),
    ({'age': pyarrow.nulls(4)}, {}, "row 1: the column 'age' is empty"),
    (
      {'age': [[1], [1, 2], [1], [1]]},
      {},
      r'lists of numbers of one length.*got \[1\]',
    ),
    ({'age': [{'x': 1}] * 4}, {}, 'numbers, words, images or lists of numbers'),
    (
      {'age': pyarrow.array([0] * 4, pyarrow.timestamp('s'))},
      {},
      'datetime.* is a time.*exclude it',
    ),
    (
      {'age': pyarrow.array([3600] * 4, pyarrow.duration('s'))},
      {},
      'timedelta.* is a time.*exclude it',
    ),
    ({'age': [[1, 2]] * 4}, {}, "'age' has several numbers a row and 'kind'"),
    (
      {'label': ['a', None, 'b', 'b']},
      {},
      r"row 2, column 'label': it is empty",
    ),
    (
      {'client': [1.0, np.nan, 2, 2]},
      {},
      r"row 2, column 'client': it is empty",
    ),
    ({}, {'label': 'target'}, r"no column 'target' for the label.*'age', 'k"),
    ({}, {'text': 'age'}, "'age': text was expected, got int"),
    ({}, {'words': ['client']}, "no column 'client' of features to treat"),
    (
      {'kind': ['not an image', 'x', 'y', 'z']},
      {'features': ['kind'], 'image_column': 'kind'},
      'row 1 is no whole image',
    ),
  ],
)
def test_what_cannot_be_learnt_from(tmp_path, changed, options, told):
  options = dict(options)
  table = _table(**changed)
  if options.pop('image_column', None):
    kind = table.column('kind').cast(pyarrow.binary())
    table = table.set_column(1, 'kind', kind)
  path = _write(table, tmp_path / 'a.parquet')
  names = tables.Names(**{'label': 'label', **options})
  with pytest.raises(data_files.DataError, match=told) as e:
    tables.read(path, names)
  assert str(path) in str(e.value)


def test_damaged_files_are_named(tmp_path):
  for name in ('a.parquet', 'a.feather', 'a.arrow', 'stream.arrow'):
    path = _write(_table(), tmp_path / name)
    whole = path.read_bytes()
    for content in (b'', b'nothing of the kind', whole[: len(whole) // 2]):
      path.write_bytes(content)
      with pytest.raises(data_files.DataError) as e:
        tables.read(path, _NAMES)
      assert str(path) in str(e.value) and '\n' not in str(e.value)
  with pytest.raises(data_files.DataError, match='There is no file'):
    tables.read(tmp_path / 'none.parquet', _NAMES)
  folder = save_to_disk(tmp_path / 'pets', _pictures(), _FEATURES)
  for name, text, told in (
    ('state.json', '{', 'no whole JSON file'),
    ('state.json', '[]', 'an object of JSON'),
    ('state.json', '{}', 'a list _data_files'),
    ('dataset_info.json', '{"features": 3}', 'an object of features'),
    (
      'dataset_info.json',
      '{"features": {"label": {"names": ["cat"]}}}',
      'no numbers of the 1 classes',
    ),
  ):
    before = (folder / name).read_text()
    (folder / name).write_text(text)
    with pytest.raises(data_files.DataError, match=told):
      tables.read(folder, _NAMES)
    (folder / name).write_text(before)
  indices = save_to_disk(
    tmp_path / 'i', _pictures(), {}, _indices_files=[{'filename': 'x'}]
  )
  with pytest.raises(data_files.DataError, match='flatten_indices'):
    tables.read(indices, _NAMES)
  splits = tmp_path / 'splits'
  splits.mkdir()
  (splits / 'dataset_dict.json').write_text('{"splits": ["train", "test"]}')
  for name, count in (('train', 4), ('test', 2)):
    save_to_disk(splits / name, _pictures()[:count], _FEATURES)
  found = tables.read(splits, _NAMES)
  assert sorted(found.split.tolist()) == ['test'] * 2 + ['train'] * 4


def test_without_pyarrow_a_sentence_says_what_to_install(tmp_path, monkeypatch):
  path = _write(_table(), tmp_path / 'a.parquet')
  monkeypatch.setattr(data_files.importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(
    data_files.DataError, match=r'pyarrow.*requirements-data\.txt'
  ):
    tables.read(path, _NAMES)
  # Of a file that flags name it is said before TensorFlow is imported.
  with pytest.raises(
    parameters.ParameterError, match=r'path`=b\.feather: pyarrow reads'
  ):
    tasks.info('table').options(path='b.feather', label='y')
