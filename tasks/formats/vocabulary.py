"""Vocabularies: lookup of words in tf.data, and files of counts.

Stack Overflow's word and tag lists are files of counts. Missing ones are
counted from the training data, client by client, and saved next to it.
"""

import csv
import json
import os
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Optional

import numpy as np
import pandas
import tensorflow as tf
from absl import logging

from tasks.formats import data_files
from tasks.formats import sqlite_files

# Maximum number of words counted at once; beyond it the rarest are dropped.
_MOST_WORDS = 4_000_000


class WordIds:
  """Maps words to their index in a list, and others to the list's size.

  Words are compared by 62-bit fingerprints in a sorted array. Unlike a lookup
  table this is a constant: the graph of a data set needs no initialization and
  no resource, wherever it is copied.
  """

  def __init__(self, words: Sequence[str]):
    """Raises `ValueError` if words occur twice (or share a fingerprint)."""
    fingerprints = _fingerprint(tf.constant(list(words), tf.string)).numpy()
    order = np.argsort(fingerprints)
    self._sorted = fingerprints[order]
    self._order = order.astype(np.int64)
    self._size = len(words)
    if (np.diff(self._sorted) == 0).any():
      raise ValueError('The words of a vocabulary must be distinct.')

  def __call__(self, words: tf.Tensor) -> tf.Tensor:
    """Maps a vector of words to ids int64 from 0; unknown words are `size`."""
    fingerprints = _fingerprint(words)
    # As `tf.searchsorted`, without its dozen operations for any rank: each
    # operation costs time in every iterator.
    place = tf.raw_ops.LowerBound(
      sorted_inputs=self._sorted[np.newaxis],
      values=fingerprints[tf.newaxis],
      out_type=tf.int64,
    )[0]
    place = tf.minimum(place, self._size - 1)
    found = tf.equal(tf.gather(self._sorted, place), fingerprints)
    return tf.where(
      found,
      tf.gather(self._order, place),
      tf.constant(self._size, tf.int64),
    )


def load(
  *,
  path: Optional[str],
  cache_dir: Optional[str],
  name: str,
  size: int,
  option: str,
  database: pathlib.Path,
  split: str,
  words_of: Callable[[bytes], Iterable[str]],
) -> list[str]:
  """Loads the `size` most frequent words or tags.

  Args:
    path: The user's file of counts, or None.
    cache_dir: Folder to search otherwise, and then its folder `datasets`, where
      TFF saves the file. None for ~/.tff.
    name: Name of the file.
    size: Number of words.
    option: Name of the user's option for `size`.
    database: Data set to count if there is no file; the counts are saved in its
      folder.
    split: Split of the database.
    words_of: Returns the words of one serialized example.

  Returns:
    The words, most frequent first.

  Raises:
    DataError: If the file is missing, invalid, or has fewer words.
  """
  folder = sqlite_files.cache_folder(cache_dir)
  if path is not None:
    found = pathlib.Path(path)
    if not found.is_file():
      raise data_files.DataError(
        f'There is no file {path}, which was named as the list of counts.'
      )
  else:
    places = [folder / name, folder / 'datasets' / name]
    found = next((p for p in places if p.is_file()), places[0])
  if not found.is_file():
    logging.info('Counting %s for %s (only once).', database, found)
    _write(found, count_by_client(database, split, words_of))
  words = read_counts(found)
  if len(words) < size:
    raise data_files.DataError(
      f'{found} has {len(words)} entries, but `{option}` is {size}; ask for '
      f'at most {len(words)} or name a longer list.'
    )
  return words[:size]


def read_counts(path: pathlib.Path) -> list[str]:
  """Reads the words of a counts file, most frequent first.

  The file has lines of a word and a number, or one JSON object from words to
  numbers: TFF's formats of words and of tags.

  Raises:
    DataError: If it has neither format.
  """
  what = 'list of lines of a word and its count, or of one JSON object'
  with data_files.reading(path, what), open(path, encoding='utf-8') as file:
    if file.read(1) == '{':
      counts = pandas.Series(json.loads('{' + file.read())).astype('int64')
    else:
      frame = pandas.read_csv(
        path,
        sep=r'\s+',
        names=['word', 'count', 'more'],
        dtype={'word': str, 'count': 'int64', 'more': str},
        quoting=csv.QUOTE_NONE,
        na_filter=False,
      )
      if not frame['more'].isin(['', np.nan]).all() or not len(frame):
        raise ValueError('there are no lines of two columns')
      counts = frame.set_index('word', verify_integrity=True)['count']
  # Stable: equal counts keep the order of the file.
  ordered: list[str] = counts.sort_values(
    ascending=False, kind='stable'
  ).index.tolist()
  return ordered


def count_by_client(
  database: pathlib.Path,
  split: str,
  words_of: Callable[[bytes], Iterable[str]],
  most_words: int = _MOST_WORDS,
) -> dict[str, int]:
  """Counts the clients that use each word, most frequent first.

  Memory is bounded by one client and `most_words` counters: beyond that, words
  with the smallest counts are dropped, so that a word's count can be too small
  by its count when it was dropped. This does not affect words that are frequent
  enough for a vocabulary.

  Args:
    database: A TFF data set in SQLite.
    split: Split to count.
    words_of: Returns the words of one serialized example.
    most_words: Maximum number of words counted at once.

  Raises:
    DataError: If an example is damaged.
  """
  counts: dict[str, int] = {}
  dropped = 0
  for examples in sqlite_files.examples_by_client(database, split):
    try:
      seen = {word for example in examples for word in words_of(example)}
    # The exception's class depends on the installed protobuf.
    except Exception as e:  # pylint: disable=broad-exception-caught
      raise data_files.DataError(
        f'{database}: a client of split {split!r} has an example that is no '
        f'tf.train.Example with UTF-8 text ({e}).'
      ) from e
    for word in seen:
      counts[word] = counts.get(word, 0) + 1
    while len(counts) > most_words:
      dropped += 1
      counts = {word: n for word, n in counts.items() if n > dropped}
  return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _fingerprint(words: tf.Tensor) -> tf.Tensor:
  return tf.strings.to_hash_bucket_fast(words, 2**62)


def _write(path: pathlib.Path, counts: dict[str, int]) -> None:
  partial = path.with_name(f'{path.name}.{os.getpid()}.partial')
  try:
    if path.name.endswith('tag_count'):
      partial.write_text(json.dumps(counts), encoding='utf-8')
    else:
      # Words with separators of the file format could not be read back.
      lines = (
        f'{word} {n}\n'
        for word, n in counts.items()
        if not re.search(r'[ \t\r\n]', word)
      )
      with open(partial, 'w', encoding='utf-8') as file:
        file.writelines(lines)
    os.replace(partial, path)
  except OSError as e:
    raise data_files.DataError(
      f'The counts cannot be saved to {path} ({e.strerror}); make its folder '
      'writable, or give a file of counts.'
    ) from e
