"""Numbering words, and lists of counts: read, refused, counted, kept."""

import json
import sqlite3

import pytest
import tensorflow as tf

from tasks.formats import data_files
from tasks.text import stackoverflow


def test_words_are_numbered_by_their_place():
  words = [f'w{i}' for i in range(5000)] + ['the', ',', "it's", 'é']
  ids = stackoverflow.WordIds(words)
  assert ids(tf.constant(words)).numpy().tolist() == list(range(5004))
  assert (
    ids(tf.constant(['nobody', '', 'w5000'])).numpy().tolist() == [5004] * 3
  )
  assert ids(tf.zeros([0], tf.string)).shape == [0]


def test_words_must_be_distinct():
  with pytest.raises(ValueError, match='distinct'):
    stackoverflow.WordIds(['a', 'b', 'a'])


def test_both_forms_of_counts_are_read(tmp_path):
  path = tmp_path / 'counts'
  path.write_text('rare 1\nthe 30\n, 30\n\nof 20\n')
  assert stackoverflow.read_counts(path) == ['the', ',', 'of', 'rare']
  path.write_text(json.dumps({'rare': 1, 'the': 30, 'of': 20}))
  assert stackoverflow.read_counts(path) == ['the', 'of', 'rare']


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'lines of a word and its count'),
    (b'a 2\nb 1\na 1\n', "'a' occurs twice"),
    (b'the 30\nof twenty\n', 'lines of a word and its count.*twenty'),
    (b'the\n', 'lines of a word and its count'),
    (b'the 30 1\n', 'lines of a word and its count'),
    (b'{"the": 30', 'or of one JSON object'),
    (b'{"the": "many"}', 'or of one JSON object.*many'),
    (b'\xff\xfe\x00', "can't decode byte"),
  ],
)
def test_other_files_are_refused(tmp_path, content, message):
  path = tmp_path / 'counts'
  path.write_bytes(content)
  with pytest.raises(data_files.DataError, match=message):
    stackoverflow.read_counts(path)


def _database(path):
  """Users 0 to 5; user i writes 'all' and the words w0 ... wi, twice each."""
  with sqlite3.connect(path) as connection:
    connection.execute(
      'CREATE TABLE examples (split_name TEXT, client_id TEXT, '
      'serialized_example_proto BLOB)'
    )
    connection.execute(
      'CREATE TABLE client_metadata (client_id TEXT, split_name TEXT, '
      'num_examples INTEGER)'
    )
    for user in range(6):
      connection.execute(
        'INSERT INTO client_metadata VALUES (?, ?, 2)', (str(user), 'train')
      )
      for _ in range(2):
        text = 'all ' + ' '.join(f'w{j}' for j in range(user + 1))
        connection.execute(
          'INSERT INTO examples VALUES (?, ?, ?)',
          ('train', str(user), text.encode()),
        )
  connection.close()


def _words_of(blob):
  return blob.decode().split()


def test_counts_are_of_users_not_of_occurrences(tmp_path):
  _database(tmp_path / 'd.sqlite')
  counts = stackoverflow.count_by_client(
    tmp_path / 'd.sqlite', 'train', _words_of
  )
  assert list(counts.items()) == [
    ('all', 6),
    ('w0', 6),
    ('w1', 5),
    ('w2', 4),
    ('w3', 3),
    ('w4', 2),
    ('w5', 1),
  ]


def test_an_example_that_is_no_text_is_an_error(tmp_path):
  _database(tmp_path / 'd.sqlite')
  with sqlite3.connect(tmp_path / 'd.sqlite') as connection:
    connection.execute(
      "INSERT INTO examples VALUES ('train', '3', ?)", (b'\xff\xfe',)
    )
  with pytest.raises(
    data_files.DataError,
    match=r"d.sqlite: a client of split 'train' has an example",
  ):
    stackoverflow.count_by_client(tmp_path / 'd.sqlite', 'train', _words_of)


def test_a_bounded_counter_keeps_the_frequent_words(tmp_path):
  _database(tmp_path / 'd.sqlite')
  counts = stackoverflow.count_by_client(
    tmp_path / 'd.sqlite', 'train', _words_of, most_words=4
  )
  assert len(counts) <= 4
  assert list(counts)[:2] == ['all', 'w0']


def _load(tmp_path, **changes):
  arguments = dict(
    path=None,
    cache_dir=str(tmp_path),
    name='d.word_count',
    size=3,
    option='vocab_size',
    database=tmp_path / 'd.sqlite',
    split='train',
    words_of=_words_of,
  )
  return stackoverflow.load_vocabulary(**dict(arguments, **changes))


def test_counted_words_are_kept_beside_the_data(tmp_path):
  _database(tmp_path / 'd.sqlite')
  assert _load(tmp_path) == ['all', 'w0', 'w1']
  assert sorted(p.name for p in tmp_path.iterdir()) == [
    'd.sqlite',
    'd.word_count',
  ]
  assert (tmp_path / 'd.word_count').read_text().startswith('all 6\nw0 6\n')
  # Kept means not counted again.
  assert _load(tmp_path, database=tmp_path / 'gone') == ['all', 'w0', 'w1']


def test_words_with_white_space_in_them_come_back(tmp_path):
  _database(tmp_path / 'd.sqlite')
  odd = ['all', 'a\xa0b', 'c\u2028d', 'e\tf', 'g\nh', 'i\rj']
  for _ in range(2):  # Counted, then read.
    words = _load(tmp_path, words_of=lambda _: odd)
    assert words == ['all', 'a\xa0b', 'c\u2028d']


def test_tags_are_kept_in_their_own_form(tmp_path):
  _database(tmp_path / 'd.sqlite')
  _load(tmp_path, name='d.tag_count')
  assert json.loads((tmp_path / 'd.tag_count').read_text())['w1'] == 5


def test_tffs_own_place_is_looked_at_too(tmp_path):
  (tmp_path / 'datasets').mkdir()
  (tmp_path / 'datasets' / 'd.word_count').write_text('a 3\nb 2\nc 1\n')
  assert _load(tmp_path) == ['a', 'b', 'c']


def test_a_file_that_was_named_is_used_or_missed(tmp_path):
  path = tmp_path / 'mine'
  path.write_text('x 3\ny 2\nz 1\n')
  assert _load(tmp_path, path=str(path)) == ['x', 'y', 'z']
  with pytest.raises(data_files.DataError, match=r'no file.*nowhere'):
    _load(tmp_path, path=str(tmp_path / 'nowhere'))


def test_a_vocabulary_larger_than_the_list_is_refused(tmp_path):
  _database(tmp_path / 'd.sqlite')
  with pytest.raises(
    data_files.DataError, match=r'has 7 entries.*vocab_size.*is 8'
  ):
    _load(tmp_path, size=8)


def test_counts_that_cannot_be_kept_are_an_error(tmp_path):
  _database(tmp_path / 'd.sqlite')
  (tmp_path / 'd.word_count').mkdir()
  with pytest.raises(data_files.DataError, match='cannot be saved to'):
    _load(tmp_path)
