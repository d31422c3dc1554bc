"""Texts to tokens."""

import pytest

from tasks.formats import data_files
from tasks.text import text_classification

_VOCABULARY = [
  *('[PAD]', '[UNK]', '[CLS]', '[SEP]', 'un', '##aff', '##able', 'the', ','),
  *('a', '##b', '##ble', 'ab'),
]


def _tokens(text, max_length=12):
  tokenizer = text_classification.Tokenizer(_VOCABULARY)
  row = tokenizer([text], max_length)[0]
  return ' '.join(_VOCABULARY[i] for i in row if i)


def test_words_are_lower_case_without_accents():
  assert text_classification.words("Café's 3.5% #1_x\n\tEND") == [
    *('cafe', "'", 's', '3', '.', '5', '%', '#', '1', '_', 'x', 'end'),
  ]


def test_words_become_their_longest_pieces():
  assert _tokens('The unaffable,') == '[CLS] the un ##aff ##able , [SEP]'
  # 'ab' and not 'a', then no piece continues with 'l' alone.
  assert _tokens('able') == '[CLS] [UNK] [SEP]'
  assert _tokens('abb abble') == '[CLS] ab ##b ab ##ble [SEP]'
  assert _tokens('x' * 101) == '[CLS] [UNK] [SEP]'


def test_texts_are_cut_and_padded():
  tokenizer = text_classification.Tokenizer(_VOCABULARY)
  tokens = tokenizer(['a a a a a a', 'a', ''], 5)
  assert tokens.tolist() == [[2, 9, 9, 9, 3], [2, 9, 3, 0, 0], [2, 3, 0, 0, 0]]
  # A word of several pieces at the end is cut as well.
  assert tokenizer(['a a unaffable'], 5).tolist() == [[2, 9, 9, 4, 3]]


def test_a_vocabulary_can_be_counted():
  found = text_classification.count_vocabulary(['b a a', 'c b a'], 6)
  assert found == ['[PAD]', '[UNK]', '[CLS]', '[SEP]', 'a', 'b']


def test_vocabularies_are_read_or_refused(tmp_path):
  path = tmp_path / 'vocab.txt'
  # Published lists have tokens at which Python's `splitlines` breaks.
  tokens = [*_VOCABULARY, '\u2028', 'last']
  path.write_text('\n'.join([*tokens, '']))
  assert text_classification.read_vocabulary(path) == tokens
  for content in (b'', b'the\na\n', b'[PAD]\nthe\n', b'\xff\xfe'):
    path.write_bytes(content)
    with pytest.raises(
      data_files.DataError, match=r'must list one|no whole list'
    ):
      text_classification.read_vocabulary(path)
  path.unlink()
  with pytest.raises(data_files.DataError, match=r'no file .*vocab.txt'):
    text_classification.read_vocabulary(path)
  with pytest.raises(data_files.DataError, match='no whole list'):
    text_classification.read_vocabulary(tmp_path)
