"""Classification of texts: ag_news and dbpedia.

Kim et al., arXiv 2306.11201, Section 4: 60 clients of 500 texts by Dirichlet
label skew, batches of 16, DistilBERT.
"""

from __future__ import annotations

import collections
import functools
import pathlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

import numpy as np
from absl import logging

from tasks import registry
from tasks import shared
from tasks import synthetic
from tasks.formats import data_files
from tasks.lazy import builders
from tasks.lazy import distilbert
from tasks.partitioners import splits
from tff_adaptive import parameters
from tff_adaptive.lazy import pandas
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_EXAMPLES_PER_CLIENT = 500


class Options(shared.Divided):
  """Options of text classification tasks."""

  num_clients: parameters.Count = 60

  examples_per_client: Optional[parameters.Count] = None
  """Number of texts per client; by default the paper's 500, or fewer if the
  file has fewer.
  """

  alpha: parameters.Positive = 1.0

  max_length: parameters.Count = 128
  """Number of tokens used of each text."""

  vocab_size: parameters.Count = 30_522
  """Vocabulary size, if the model is trained from scratch."""

  blocks: parameters.Count = 6
  """Number of encoder blocks."""

  width: parameters.Count = 768
  """Width of the encoder, a multiple of 64."""

  weights_dir: Optional[str] = None
  """Folder with vocab.txt and one .safetensors file of DistilBERT. Without it
  the model is trained from scratch."""


def create(
  folder: str, num_classes: int, *, options: Mapping[str, Any]
) -> tff.simulation.baselines.BaselineTask:
  """Creates a task from train.csv and test.csv in a folder.

  Args:
    folder: Name of the folder in `cache_dir`.
    num_classes: Number of classes; labels are from 1.
    options: The task's options.

  Raises:
    DataError: If a file is missing or invalid.
    PartitionError: If the examples cannot satisfy the options.
    ParameterError: If `width` is not a multiple of 64, the width of an
      attention head, or `vocab_size` leaves no room for words.
  """
  width, seed = options['width'], options['seed']
  if width % 64:
    raise parameters.ParameterError(
      'width',
      '{} must be a multiple of 64, the width of an attention head, got '
      '{given}.',
      given=width,
    )
  if options['vocab_size'] <= NUM_SPECIAL:
    raise parameters.ParameterError(
      'vocab_size',
      '{} must be above {least}, the number of special tokens, got {given}.',
      least=NUM_SPECIAL,
      given=options['vocab_size'],
    )
  if options['data'] == 'synthetic':
    texts, labels, test_texts, test_labels = _synthetic(num_classes, seed)
  else:
    place = data_files.cache_folder(options['cache_dir']) / folder
    get = f'Put train.csv and test.csv of the data set into {place}.'
    (texts, labels), (test_texts, test_labels) = (
      read_csv(
        place / name, num_classes, get, titles=options.get('titles', True)
      )
      for name in ('train.csv', 'test.csv')
    )
  vocabulary = _vocabulary(texts, options)
  tokenize = functools.partial(
    Tokenizer(vocabulary), max_length=options['max_length']
  )
  order = np.random.default_rng([seed, 0x7E87]).permutation(len(test_labels))
  size = options['examples_per_client']
  if size is None and options['partition'] != 'classes':
    size = min(
      _EXAMPLES_PER_CLIENT, max(len(labels) // options['num_clients'], 1)
    )
  return builders.partitioned_task(
    train=dict(label=labels, tokens=tokenize(texts)),
    test=dict(label=test_labels[order], tokens=tokenize(test_texts)[order]),
    split=splits.build(labels, dict(options, examples_per_client=size)),
    options=options,
    batch_size=16,
    eval_batch_size=64,
    to_model=lambda batch: (batch['tokens'], batch['label']),
    build_model=lambda: distilbert.build(
      num_classes=num_classes,
      vocab_size=(
        options['vocab_size']
        if options['weights_dir'] is None
        else len(vocabulary)
      ),
      max_length=options['max_length'],
      size=distilbert.Size(options['blocks'], width, width // 64, 4 * width),
      weights_dir=options['weights_dir'],
    ),
    may_fail=options['weights_dir'] is not None,
    fitted=()
    if options['weights_dir'] is not None or options['data'] == 'synthetic'
    else (
      f'the vocabulary of the texts (--{folder}_weights_dir gives a fixed one)',
    ),
    loss=builders.cross_entropy,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )


def _vocabulary(texts: list[str], options: Mapping[str, Any]) -> list[str]:
  """Returns the tokens of the pretrained weights, or else of the texts."""
  if options['weights_dir'] is not None:
    return read_vocabulary(pathlib.Path(options['weights_dir']) / 'vocab.txt')
  logging.info('Without weights_dir the model is trained from scratch.')
  return count_vocabulary(texts, options['vocab_size'])


def read_csv(
  path: pathlib.Path, num_classes: int, get: str, titles: bool = True
) -> tuple[list[str], np.ndarray]:
  """Reads texts, and labels int32 from 0.

  A row is a label from 1 and one or more texts (such as title and body), which
  are joined; without `titles` only the last is used. A header is skipped.

  Raises:
    DataError: If the file is missing or empty, or a row has another form or a
      label out of range; names the line.
  """
  with data_files.reading(path, 'CSV file of labels and texts', get):
    rows = pandas.read_csv(path, header=None, dtype=str, na_filter=False)
  labels = pandas.to_numeric(rows[0], errors='coerce')
  if len(rows) > 1 and np.isnan(labels[0]):  # A header.
    rows, labels = rows[1:], labels[1:]
  parts = rows.iloc[:, 1 if titles else -1 :].fillna('')
  wrong = ~labels.isin(range(1, num_classes + 1)) | (parts == '').all(axis=1)
  if wrong.any() or rows.shape[1] < 2:
    row = int(np.argmax(wrong))
    raise data_files.DataError(
      f'{path}, row {rows.index[row] + 1}: a label from 1 to {num_classes} and '
      f'a text were expected, got {",".join(rows.iloc[row].map(str))[:60]!r}. '
      f'{get}'
    )
  texts = [
    ' '.join(part.replace('\\', ' ') for part in row)
    for row in parts.itertuples(index=False)
  ]
  return texts, labels.to_numpy(np.int32) - 1


def _synthetic(num_classes: int, seed: int) -> Any:
  """Generates texts of common words and words of their class."""
  rng = np.random.default_rng([seed, 0x7E87])
  vocabulary = synthetic.words(50 + 10 * num_classes, seed=seed)
  labels = rng.permutation(np.arange(500) % num_classes).astype(np.int32)
  texts = []
  for label in labels:
    own = vocabulary[50 + 10 * label : 60 + 10 * label]
    common = vocabulary[:50]
    texts.append(
      ' '.join([*rng.choice(own, 6), *rng.choice(common, rng.integers(4, 20))])
    )
  return texts[:400], labels[:400], texts[400:], labels[400:]


_AG_NEWS_CLASSES = 4


@registry.task(
  'ag_news',
  summary='Tell the topic of news in AG News, split by label skew.',
  model='DistilBERT-shaped encoder, 66,661,636 weights',
  clients='60 of 500 texts (--ag_news_num_clients)',
  files=('ag_news/train.csv', 'ag_news/test.csv'),
  published=registry.Published('Kim et al., arXiv 2306.11201', 100, 6, 16),
  small_options=dict(blocks=1, width=64, vocab_size=500, max_length=16),
)
class AgNews(Options):
  """Tokens int32 [batch, 128], labels 0 to 3."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create('ag_news', _AG_NEWS_CLASSES, options=self.values)


_DBPEDIA_CLASSES = 14


@registry.task(
  'dbpedia',
  summary='Tell what kind of thing a text of DBpedia is about.',
  model='DistilBERT-shaped encoder, 66,669,326 weights',
  clients='60 of 500 texts (--dbpedia_num_clients)',
  files=('dbpedia/train.csv', 'dbpedia/test.csv'),
  published=registry.Published('Kim et al., arXiv 2306.11201', 100, 6, 16),
  small_options=dict(blocks=1, width=64, vocab_size=500, max_length=16),
)
class Dbpedia(Options):
  """Tokens int32 [batch, 128], labels 0 to 13."""

  titles: bool = True
  """Whether an article's title is read with its text; the code of Kim et al.
  reads the text alone."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return create('dbpedia', _DBPEDIA_CLASSES, options=self.values)


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
    self._pieces = functools.cache(self._split)

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
