"""Tokens of texts, of a fitted and of a hashed vocabulary."""

import numpy as np
import pytest
import tensorflow as tf

from tasks import text_encoding
from tasks.formats import columns

_COLUMN = columns.Column('review', missing=1, text=True)
_TEXTS = np.array(
  ['The cat, the DOG.', 'the cat; Ärger 42', '', 'cat\tcat?'], object
)


def _fit(vocabulary='fitted', size=6, max_length=4):
  return text_encoding.fit(
    _COLUMN, _TEXTS, vocabulary=vocabulary, size=size, max_length=max_length
  )


def test_the_most_frequent_words_are_known():
  encoding = _fit()
  # cat 4, the 3, then by the alphabet.
  assert encoding.words == ('cat', 'the', '42', 'dog') and encoding.size == 6
  assert encoding.encode(_TEXTS).tolist() == [
    [3, 2, 3, 5],
    [3, 2, 1, 4],
    [1, 0, 0, 0],
    [2, 2, 0, 0],
  ]
  assert encoding.encode(np.array(['no such word here at all'])).tolist() == [
    [1, 1, 1, 1]
  ]
  assert encoding.notes == ("1 texts of 'review' are empty.",)
  every = _fit(size=100)
  assert every.size == 2 + 5 and 'ärger' in every.words
  assert every.describe()[0]['words'] == list(every.words)


def test_hashed_words_need_no_vocabulary():
  encoding = _fit('hashed', size=50, max_length=3)
  tokens = encoding.encode(_TEXTS)
  assert tokens.shape == (4, 3) and tokens.dtype == np.int32
  # 'the cat the' and 'the cat ärger' begin alike; no word is one that is none.
  assert tokens[0, 0] == tokens[0, 2] == tokens[1, 0]
  assert tokens[3].tolist() == [tokens[0, 1], tokens[0, 1], 0]
  assert tokens[[0, 1, 3], 0].min() >= 2 and tokens.max() < 50
  assert encoding.words == () and encoding.size == 50


@pytest.mark.parametrize('vocabulary', ['fitted', 'hashed'])
def test_a_graph_encodes_as_python_does(vocabulary):
  encoding = _fit(vocabulary)
  traced = tf.function(
    encoding.encode_rows, input_signature=[encoding.input_spec]
  )
  np.testing.assert_array_equal(
    traced(tf.constant(_TEXTS.tolist())), encoding.encode(_TEXTS)
  )
