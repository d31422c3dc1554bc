"""Numbering words, and lists of counts."""

import json

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


def _load(tmp_path, **changes):
  arguments = dict(
    kind='word', size=3, file=None, option='vocab_size', cache_dir=str(tmp_path)
  )
  return stackoverflow.most_frequent(**dict(arguments, **changes))


def test_lists_are_beside_the_data_or_named(tmp_path):
  with pytest.raises(
    data_files.DataError, match=r'no file.*overflow.word_count.*load_word_count'
  ):
    _load(tmp_path)
  (tmp_path / 'datasets').mkdir()
  place = tmp_path / 'datasets' / 'stackoverflow.word_count'
  place.write_text('a 3\nb 2\nc 1\nd 1\n')
  assert _load(tmp_path) == ['a', 'b', 'c']
  with pytest.raises(
    data_files.DataError, match=r'has 4 entries.*vocab_size.*is 8'
  ):
    _load(tmp_path, size=8)
  path = tmp_path / 'mine'
  path.write_text('x 3\ny 2\nz 1\n')
  assert _load(tmp_path, file=str(path)) == ['x', 'y', 'z']
  with pytest.raises(data_files.DataError, match=r'no file.*nowhere'):
    _load(tmp_path, file=str(tmp_path / 'nowhere'))
