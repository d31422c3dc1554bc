"""Tokens of texts, of a fitted and of a hashed vocabulary."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import encodings
from tasks.formats import tables

_TEXTS = ('The cat, the DOG.', 'the cat; Ärger 42', '', 'cat\tcat?')


def _examples(folder, texts=_TEXTS):
  path = folder / 'reviews.csv'
  rows = [f'"{text}",{i % 2}' for i, text in enumerate(texts)]
  path.write_text('\n'.join(['review,y', *rows]), encoding='utf-8')
  return tables.read(path, tables.Names('y', text='review'))


def _fit(folder, vocabulary='fitted', size=6, max_length=4):
  return encodings.fit_text(
    _examples(folder),
    np.arange(4),
    vocabulary=vocabulary,
    size=size,
    max_length=max_length,
  )


def test_the_most_frequent_words_are_known(tmp_path):
  encoding = _fit(tmp_path)
  words = encoding.describe()[0]['words']
  # cat 4, the 3, and two of the others.
  assert words[:2] == ['cat', 'the'] and encoding.size == 6
  tokens = encoding.encode(_examples(tmp_path))
  assert tokens[0, :3].tolist() == [3, 2, 3]
  assert tokens[2:].tolist() == [[1, 0, 0, 0], [2, 2, 0, 0]]
  unknown = encoding.encode(_examples(tmp_path, ['no such words here at all']))
  assert unknown.tolist() == [[1, 1, 1, 1]]
  assert encoding.notes == ("1 texts of 'review' are empty.",)
  every = _fit(tmp_path, size=100)
  assert every.size == 2 + 5 and 'ärger' in every.describe()[0]['words']


def test_hashed_words_need_no_vocabulary(tmp_path):
  encoding = _fit(tmp_path, 'hashed', size=50, max_length=3)
  tokens = encoding.encode(_examples(tmp_path))
  assert tokens.shape == (4, 3) and tokens.dtype == np.int32
  # 'the cat the' and 'the cat ärger' begin alike; no word is one that is none.
  assert tokens[0, 0] == tokens[0, 2] == tokens[1, 0]
  assert tokens[3].tolist() == [tokens[0, 1], tokens[0, 1], 0]
  assert tokens[[0, 1, 3], 0].min() >= 1 and tokens.max() < 50
  assert encoding.describe()[0]['words'] == [] and encoding.size == 50


@pytest.mark.parametrize('vocabulary', ['fitted', 'hashed'])
def test_a_graph_encodes_as_python_does(tmp_path, vocabulary):
  encoding = _fit(tmp_path, vocabulary)
  traced = tf.function(
    encoding.encode_rows, input_signature=[encoding.input_spec]
  )
  np.testing.assert_array_equal(
    traced(tf.constant(_TEXTS)), encoding.encode(_examples(tmp_path))
  )
