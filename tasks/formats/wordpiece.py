"""Tokenization of texts to whole words or to word pieces.

Text is lower-cased, accents are removed, and each punctuation mark is a token.
With a list of pieces (a vocab.txt as published with BERT) a word is split into
the longest piece that begins it, then the longest that continues it (marked
##), and so on; a word that cannot be split is unknown.
"""

import collections
import pathlib
import re
import unicodedata
from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from tasks.formats import data_files

PADDING, UNKNOWN, BEGIN, END = '[PAD]', '[UNK]', '[CLS]', '[SEP]'
_SPECIAL = (PADDING, UNKNOWN, BEGIN, END)
NUM_SPECIAL = len(_SPECIAL)
_WORD = re.compile(r'[^\W_]+|[^\w\s]|_')
_LONGEST_WORD = 100


def words(text: str) -> list[str]:
  """Splits a text into normalized words and punctuation marks."""
  text = unicodedata.normalize('NFD', text.lower())
  text = ''.join(c for c in text if unicodedata.category(c) != 'Mn')
  return _WORD.findall(text)


def count_vocabulary(texts: Iterable[str], size: int) -> list[str]:
  """Returns the special tokens and the most frequent words, `size` in total."""
  counts = collections.Counter(word for text in texts for word in words(text))
  # Alphabetical for ties, so that the list does not depend on a hash seed.
  ranked = sorted(counts, key=lambda word: (-counts[word], word))
  return [*_SPECIAL, *ranked[: size - len(_SPECIAL)]]


def read_vocabulary(path: pathlib.Path) -> list[str]:
  """Reads a list of tokens, one per line.

  Raises:
    DataError: If the file is not text or lacks special tokens, [PAD] first.
  """
  with data_files.reading(path, 'list of tokens, one a line'):
    # Not `splitlines`, which also splits at characters that are tokens.
    tokens = path.read_text(encoding='utf-8').rstrip('\n').split('\n')
  if tokens[:1] != [PADDING] or not set(_SPECIAL) <= set(tokens):
    raise data_files.DataError(
      f'{path} must list one token a line, {PADDING} first, with '
      f'{", ".join(_SPECIAL[1:])} among them; it begins with {tokens[:2]}.'
    )
  return tokens


class Tokenizer:
  """Maps texts to token ids, indices into a vocabulary."""

  def __init__(self, vocabulary: Sequence[str]):
    self._ids = {token: i for i, token in enumerate(vocabulary)}
    self._known: dict[str, list[int]] = {}

  def __call__(self, texts: Sequence[str], max_length: int) -> np.ndarray:
    """Returns ids int32 [texts, max_length] of [CLS], text, [SEP], padding."""
    begin, end = self._ids[BEGIN], self._ids[END]
    result = np.full([len(texts), max_length], self._ids[PADDING], np.int32)
    for row, text in zip(result, texts, strict=True):
      tokens = [begin]
      for word in words(text):
        if len(tokens) >= max_length:
          break
        tokens.extend(self._pieces(word))
      tokens = [*tokens[: max_length - 1], end]
      row[: len(tokens)] = tokens
    return result

  def _pieces(self, word: str) -> list[int]:
    if word not in self._known:
      self._known[word] = self._split(word)
    return self._known[word]

  def _split(self, word: str) -> list[int]:
    if word in self._ids:
      return [self._ids[word]]
    pieces, begin = [], 0
    while begin < len(word) <= _LONGEST_WORD:
      mark = '##' if begin else ''
      for end in range(len(word), begin, -1):
        piece = self._ids.get(mark + word[begin:end])
        if piece is not None:
          break
      else:
        return [self._ids[UNKNOWN]]
      pieces.append(piece)
      begin = end
    return pieces or [self._ids[UNKNOWN]]
