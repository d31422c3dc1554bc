"""A damaged, foreign or missing SQLite file is told apart before any use."""

import sqlite3

import pytest
import tensorflow as tf

from tasks.formats import data_files
from tasks.formats import sqlite_files

_SPLITS = ('one_train', 'one_test')


def _example(**features):
  feature = {
    name: tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
    for name, value in features.items()
  }
  return tf.train.Example(
    features=tf.train.Features(feature=feature)
  ).SerializeToString()


def _write(path, splits=_SPLITS, blob=None, clients=3):
  blob = _example(label=1, pixels=2) if blob is None else blob
  with sqlite3.connect(path) as connection:
    connection.execute(
      'CREATE TABLE examples (split_name TEXT, client_id TEXT, '
      'serialized_example_proto BLOB)'
    )
    connection.execute(
      'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, '
      'num_examples INTEGER)'
    )
    for split in splits:
      for client in range(clients):
        connection.execute(
          'INSERT INTO client_metadata VALUES (?, ?, 1)', (f'c{client}', split)
        )
        connection.execute(
          'INSERT INTO examples VALUES (?, ?, ?)', (split, f'c{client}', blob)
        )
  connection.close()


def _find(folder):
  return sqlite_files.find(
    str(folder),
    'one.sqlite',
    splits=_SPLITS,
    features=['label', 'pixels'],
    loader='emnist',
  )


def test_a_whole_file_is_found_and_read(tmp_path):
  path = tmp_path / 'one.sqlite'
  _write(path)
  before = path.read_bytes()
  assert _find(tmp_path) == path
  assert list(sqlite_files.client_ids(path, 'one_test')) == ['c0', 'c1', 'c2']
  by_client = list(sqlite_files.examples_by_client(path, 'one_train'))
  assert by_client == [[_example(label=1, pixels=2)]] * 3
  assert path.read_bytes() == before
  assert [p.name for p in tmp_path.iterdir()] == ['one.sqlite']


def test_a_missing_file_says_what_goes_where(tmp_path):
  folder = tmp_path / 'absent'
  with pytest.raises(data_files.DataError) as caught:
    _find(folder)
  message = str(caught.value)
  assert str(folder / 'one.sqlite') in message
  assert 'datasets.emnist.load_data' in message and '--cache_dir' in message
  assert '\n' not in message
  assert not folder.exists()


def test_a_file_name_with_odd_characters_is_opened(tmp_path):
  folder = tmp_path / 'a ?b#%c'
  folder.mkdir()
  _write(folder / 'one.sqlite')
  assert _find(folder).parent == folder


@pytest.mark.parametrize(
  'content, message',
  [(b'', 'is empty'), (b'<html>not found</html>', 'no SQLite file')],
)
def test_what_is_no_database_is_named(tmp_path, content, message):
  (tmp_path / 'one.sqlite').write_bytes(content)
  with pytest.raises(data_files.DataError, match=message):
    _find(tmp_path)


@pytest.mark.parametrize('keep', [50, 5000, 12287])
def test_a_truncated_file_is_named(tmp_path, keep):
  path = tmp_path / 'one.sqlite'
  _write(path)
  assert path.stat().st_size == 12288
  path.write_bytes(path.read_bytes()[:keep])
  with pytest.raises(
    data_files.DataError, match=f'cut short: it has {keep} of'
  ):
    _find(tmp_path)


def test_a_corrupt_file_is_named(tmp_path):
  path = tmp_path / 'one.sqlite'
  _write(path)
  content = bytearray(path.read_bytes())
  content[100:4096] = b'\xff' * 3996
  path.write_bytes(content)
  with pytest.raises(data_files.DataError, match='is damaged: SQLite says'):
    _find(tmp_path)


def test_another_database_is_named(tmp_path):
  with sqlite3.connect(tmp_path / 'one.sqlite') as connection:
    connection.execute('CREATE TABLE bookmarks (url TEXT)')
  connection.close()
  with pytest.raises(
    data_files.DataError, match=r'no TFF data set.*found: none'
  ):
    _find(tmp_path)


def test_another_data_set_is_named(tmp_path):
  _write(tmp_path / 'one.sqlite', splits=['train', 'one_train'])
  with pytest.raises(data_files.DataError, match="no split 'one_test'"):
    _find(tmp_path)


def test_examples_of_another_kind_are_named(tmp_path):
  path = tmp_path / 'one.sqlite'
  _write(path, blob=_example(snippets=3))
  with pytest.raises(
    data_files.DataError, match='label, pixels; found: snippets'
  ):
    _find(tmp_path)
  path.unlink()
  _write(path, blob=b'\xff\xff\xff')
  with pytest.raises(data_files.DataError, match=r'no tf.train.Example'):
    _find(tmp_path)


def test_clients_without_examples_are_named(tmp_path):
  path = tmp_path / 'one.sqlite'
  _write(path)
  with sqlite3.connect(path) as connection:
    connection.execute("DELETE FROM examples WHERE split_name = 'one_test'")
  connection.close()
  with pytest.raises(data_files.DataError, match="no example of client 'c0'"):
    _find(tmp_path)


def test_without_a_folder_tffs_own_is_used(monkeypatch, tmp_path):
  monkeypatch.setenv('HOME', str(tmp_path))
  with pytest.raises(data_files.DataError) as caught:
    _find_default()
  assert str(tmp_path / '.tff' / 'one.sqlite') in str(caught.value)


def _find_default():
  return sqlite_files.find(
    None, 'one.sqlite', splits=_SPLITS, features=['label'], loader='emnist'
  )
