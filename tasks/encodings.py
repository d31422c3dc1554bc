"""Encoding of a table's rows as inputs of a model.

The same operations encode training examples and the rows that an exported model
takes. Numbers are shifted and scaled, words are one-hot encoded, texts become
tokens. An empty cell becomes its column's mean, or the middle of a given range,
or zeros in a column of words.
"""

import dataclasses
import re
import unicodedata
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import pandas
import tensorflow as tf

from tasks.formats import columns as columns_lib
from tasks.formats import data_files
from tasks.formats import tables

# Blanks that str.strip removes.
_BLANKS = r'[\s\v\x1c-\x1f\x85\pZ]+'
# Words that pandas reads as numbers, or as empty cells.
_READ = {
  r'[-+]?nan|#?n/?a|#n/a n/a|<na>|null|none|-?1\.#(ind|qnan)|': 'nan',
  'true': '1',
  'false': '0',
}
# Number of rows that are encoded at a time.
_CHUNK = 10_000
# Tokens of padding and of unknown words.
_RESERVED = 2


class Encoding:
  """An encoder of rows.

  Attributes:
    columns: The feature columns, in the order of a row.
    notes: Sentences about the features and the treatment of empty cells.
    input_spec: Spec of the argument of `encode_rows`.
    layers: Tables of words, or layers that have some, which a saved model has
      to track.
    target: Shift and scale of the numbers that the model predicts, or None.
  """

  columns: tuple[columns_lib.Column, ...]
  notes: tuple[str, ...]
  input_spec: tf.TensorSpec
  layers: list[Any]
  target: Optional[tuple[float, float]] = None

  def encode(self, examples: tables.Examples) -> np.ndarray:
    """Encodes a table as inputs [rows, ...]."""
    parts = [
      self._encode(
        tf.constant(examples.numbers[i : i + _CHUNK], tf.float64),
        [
          tf.constant(examples.words[name].iloc[i : i + _CHUNK].tolist())
          for name in examples.words
        ],
      ).numpy()
      for i in range(0, len(examples.labels), _CHUNK)
    ]
    return np.concatenate(parts)

  def encode_rows(self, rows: tf.Tensor) -> tf.Tensor:
    """Encodes rows with the content of the file; can be traced."""
    raise NotImplementedError

  def describe(self) -> list[dict[str, Any]]:
    """Returns a JSON description of each column, in the order of a row."""
    raise NotImplementedError

  def _encode(self, numbers: tf.Tensor, words: list[tf.Tensor]) -> tf.Tensor:
    raise NotImplementedError

  def predictions(self, outputs: tf.Tensor) -> tf.Tensor:
    """Converts a model's outputs to the target's unit."""
    if self.target is None:
      return outputs
    shift, scale = self.target
    return tf.cast(outputs, tf.float64) * scale + shift


class TableEncoding(Encoding):
  """Encoder of numbers and words.

  Rows are numbers, float64 [rows, ...], NaN for empty cells; with a column of
  words they are the cells' text [rows, columns], '' for empty ones.
  """

  def __init__(
    self,
    columns: Sequence[columns_lib.Column],
    shape: tuple[int, ...],
    fill: np.ndarray,
    shift: np.ndarray,
    scale: np.ndarray,
    marks: columns_lib.Marks,
    schema: columns_lib.Schema,
  ):
    """Takes the columns and their statistics.

    Args:
      columns: The feature columns.
      shape: Shape of a row's numbers.
      fill: Values of empty cells, before shift and scale; one for every number
        of a row, as the next two, or for every channel of an image.
      shift: Offsets to subtract from numbers.
      scale: Divisors to apply afterwards.
      marks: Decimal mark and mark of thousands of numbers in text.
      schema: Ranges of columns that the statistics are from.
    """
    self.columns, self._shape = tuple(columns), shape
    self._decimal, self._thousands = marks
    self._schema = schema
    self._statistics = dict(fill=fill, shift=shift, scale=scale)
    self._words = [c for c in self.columns if c.kind == 'words']
    self.layers = []
    for column in self._words:
      # Also in decomposed letters, which no operation of TensorFlow composes.
      places = {
        unicodedata.normalize(form, word): place
        for form in ('NFC', 'NFD')
        for place, word in enumerate(column.words)
      }
      # Whole numbers that a reader of the same file has as 1.0.
      places |= {
        f'{word}.0': place
        for word, place in places.items()
        if word.removeprefix('-').isdecimal() and f'{word}.0' not in places
      }
      known = tf.lookup.KeyValueTensorInitializer(
        list(places), list(places.values()), tf.string, tf.int64
      )
      self.layers.append(tf.lookup.StaticHashTable(known, -1))
    self.input_spec = tf.TensorSpec([None, *shape], tf.float64, 'rows')
    if self._words:
      self.input_spec = tf.TensorSpec(
        [None, len(self.columns)], tf.string, 'rows'
      )

  @property
  def notes(self) -> tuple[str, ...]:  # type: ignore[override]
    """Sentences about the features and the treatment of empty cells."""
    notes, told = [], self.describe()
    if len(self.columns) > 1 or self._words:
      notes.append(f'The features are {columns_lib.summary(self.columns)}.')
    for column, described in zip(self.columns, told, strict=True):
      notes += [
        f'The words {columns_lib.listed(same)} of the column {column.name!r} '
        'differ in spelling only, and are different inputs.'
        for same in columns_lib.alike(column.words)
      ]
      if column.missing:
        cells, count = (
          ('cell', 'counts') if column.missing == 1 else ('cells', 'count')
        )
        what = 'none of its words'
        if column.kind != 'words':
          given = column.name in self._schema
          what = f'{described["fill"]:.6g}, '
          what += 'the middle of its range' if given else 'its mean'
        notes.append(
          f'{column.missing:,} empty {cells} of the column {column.name!r} '
          f'{count} as {what}.'
        )
    return tuple(notes)

  def _encode(self, numbers: tf.Tensor, words: list[tf.Tensor]) -> tf.Tensor:
    parts = []
    fill, shift, scale = self._statistics.values()
    if len(fill):
      flat = tf.reshape(numbers, [-1, len(fill)])
      flat = tf.where(tf.math.is_nan(flat), fill, flat)
      # Keras' Normalization divides by 1e-7 at least.
      scaled = tf.reshape((flat - shift) / scale, [-1, *self._shape])
      parts.append(tf.cast(scaled, tf.float32))
    for column, table, cells in zip(
      self._words, self.layers, words, strict=True
    ):
      # Of unknown words and empty cells, zeros.
      parts.append(tf.one_hot(table.lookup(cells), len(column.words)))
    return parts[0] if len(parts) == 1 else tf.concat(parts, axis=1)

  def encode_rows(self, rows: tf.Tensor) -> tf.Tensor:
    """Encodes rows with the content of the file; can be traced."""
    if not self._words:
      return self._encode(rows, [])
    cells = tf.strings.regex_replace(rows, f'^{_BLANKS}|{_BLANKS}$', '')
    of_words = [c.kind == 'words' for c in self.columns]
    numbers = tf.boolean_mask(cells, np.logical_not(of_words), axis=1)
    for words, number in _READ.items():
      numbers = tf.strings.regex_replace(numbers, f'(?i)^({words})$', number)
    if self._thousands:
      mark = re.escape(self._thousands)
      marks = self._decimal, self._thousands
      grouped = tf.strings.regex_full_match(numbers, columns_lib.groups(marks))
      whole = tf.strings.regex_replace(numbers, mark, '')
      # Others are refused as numbers, as in training.
      other = tf.strings.regex_replace(numbers, mark, 'no mark')
      numbers = tf.where(grouped, whole, other)
    if self._decimal != '.':
      mark = re.escape(self._decimal)
      numbers = tf.strings.regex_replace(numbers, r'\.', 'no mark')
      numbers = tf.strings.regex_replace(numbers, mark, '.')
    return self._encode(
      tf.strings.to_number(numbers, tf.float64),
      [cells[:, j] for j, is_words in enumerate(of_words) if is_words],
    )

  def fitted(self, schema: columns_lib.Schema) -> list[str]:
    """Describes what `fit` computed from examples, and how to avoid it."""
    missing = [c for c in self.columns if c.name not in schema]
    words = [c.name for c in missing if c.kind == 'words']
    # Even of numbers that are not standardized, for cells that are empty.
    numbers = [c.name for c in missing if c.kind != 'words']
    told = []
    if numbers:
      told.append(
        f'means and deviations of {columns_lib.listed(numbers, 5)} (ranges by '
        '--table_schema)'
      )
    if words:
      told.append(
        f'the words of {columns_lib.listed(words, 5)} (--table_schema)'
      )
    return told

  def describe(self) -> list[dict[str, Any]]:
    """Returns a JSON description of each column, in the order of a row."""
    described: list[dict[str, Any]] = []
    begin = 0
    for column in self.columns:
      if column.kind == 'words':
        described.append(
          dict(name=column.name, kind='words', words=list(column.words))
        )
        continue
      part = (
        np.s_[...]
        if column.kind == 'image'
        else (np.s_[begin : begin + column.width])
      )
      begin += column.width
      found = {k: v[part].tolist() for k, v in self._statistics.items()}
      if column.width == 1:
        found = {name: value for name, [value] in found.items()}
      described.append(dict(name=column.name, kind=column.kind, **found))
    return described


def fit(
  examples: tables.Examples,
  training: np.ndarray,
  *,
  standardize: bool,
  schema: columns_lib.Schema,
) -> TableEncoding:
  """Fits the encoding of a table on its training examples.

  Args:
    examples: The table.
    training: Indices of the training examples.
    standardize: Whether numbers get mean 0 and standard deviation 1; constant
      columns become 0.
    schema: Ranges of columns, used instead of mean and deviation.
  """
  shape = examples.numbers.shape[1:]
  columns = [_with_schema(c, examples, schema) for c in examples.columns]
  image = len(columns) == 1 and columns[0].kind == 'image'
  # Of images one mean per channel.
  size = shape[-1] if image else int(np.prod(shape))
  rows = len(training) * int(np.prod(shape)) // size if size else 0
  known = examples.numbers[training].reshape(rows, size)
  known = np.ma.masked_invalid(known, copy=False)
  mean, deviation = (
    np.ma.filled(found.astype(np.float64), 0.0)
    for found in (
      known.mean(axis=0, dtype=np.float64),
      known.std(axis=0, dtype=np.float64),
    )
  )
  fill, shift, scale = mean.copy(), np.zeros(size), np.ones(size)
  if standardize:
    # Rounding gives equal numbers a deviation.
    low = np.fmin.reduce(known.data, initial=np.inf)
    varies = np.fmax.reduce(known.data, initial=-np.inf) > low
    shift = mean
    scale = np.where(varies & (deviation > 0), deviation, 1.0)
  begin = 0
  for column in columns:
    if column.kind == 'words':
      continue
    part = np.s_[...] if image else np.s_[begin : begin + column.width]
    begin += column.width
    if column.name in schema:
      low, high = columns_lib.range_of(schema, column.name)
      fill[part] = shift[part] = (low + high) / 2
      scale[part] = (high - low) / 2
  return TableEncoding(
    columns, shape, fill, shift, scale, examples.marks, schema
  )


def _with_schema(
  column: columns_lib.Column,
  examples: tables.Examples,
  schema: columns_lib.Schema,
) -> columns_lib.Column:
  """Gives a column of words those of the schema; others count as empty."""
  if column.kind != 'words' or column.name not in schema:
    return column
  given = pandas.Series(map(str, schema[column.name]), dtype=object)
  words = tuple(filter(None, columns_lib.clean(given).unique()))
  known = examples.words[column.name].isin(words)
  if not known.any():
    raise data_files.DataError(
      f'--table_schema: the column {column.name!r} has none of the words '
      f'{columns_lib.listed(words)}, but words such as {column.words[0]!r}.'
    )
  return dataclasses.replace(column, words=words, missing=int((~known).sum()))


class TextEncoding(Encoding):
  """Encoder of a text column to tokens.

  Words are runs of letters, their marks and digits, in lower case. Token 0 is
  padding, 1 an unknown word or a text without words, and words are from 2, or
  from 1 if they are hashed.

  Attributes:
    size: Number of tokens, including those of padding and unknown words.
  """

  def __init__(
    self,
    column: columns_lib.Column,
    size: int,
    max_length: int,
    words: Sequence[str] = (),
  ):
    """Takes the vocabulary.

    Args:
      column: The text column.
      size: Number of tokens.
      max_length: Number of tokens of a text; longer ones are truncated.
      words: The vocabulary by token, from 2; empty if words are hashed.
    """
    self.columns = (column,)
    self.size, self._max_length, self._vocabulary = size, max_length, words
    self._layer = (
      _vectorization(max_length, vocabulary=list(words))
      if words
      else tf.keras.layers.Hashing(size)
    )
    self.layers = [self._layer]
    self.input_spec = tf.TensorSpec([None], tf.string, 'rows')
    self.notes = ()
    if column.missing:
      self.notes = (f'{column.missing:,} texts of {column.name!r} are empty.',)

  def _encode(self, numbers: tf.Tensor, words: list[tf.Tensor]) -> tf.Tensor:
    return self.encode_rows(words[0])

  def encode_rows(self, rows: tf.Tensor) -> tf.Tensor:
    """Encodes texts [rows] as tokens, int32 [rows, max_length]."""
    if self._vocabulary:
      tokens = self._layer(rows)
    else:
      hashed = tf.maximum(self._layer(tf.strings.split(_plain(rows))), 1)
      tokens = hashed.to_tensor(0, shape=[None, self._max_length])
    tokens = tf.cast(tokens, tf.int32)
    # A mean over words needs at least one.
    return tf.concat([tf.maximum(tokens[:, :1], 1), tokens[:, 1:]], axis=1)

  def describe(self) -> list[dict[str, Any]]:
    """Returns a JSON description of the column."""
    return [
      dict(
        name=self.columns[0].name,
        kind='text',
        vocabulary='fitted' if self._vocabulary else 'hashed',
        size=self.size,
        max_length=self._max_length,
        words=list(self._vocabulary),
      )
    ]


def _plain(rows: tf.Tensor) -> tf.Tensor:
  lower = tf.strings.lower(rows, encoding='utf-8')
  return tf.strings.regex_replace(lower, r'[^\pL\pN\pM]+', ' ')


def _vectorization(
  max_length: int, **options: Any
) -> tf.keras.layers.TextVectorization:
  return tf.keras.layers.TextVectorization(
    standardize=_plain, output_sequence_length=max_length, **options
  )


def fit_text(
  examples: tables.Examples,
  training: np.ndarray,
  *,
  vocabulary: str,
  size: int,
  max_length: int,
) -> TextEncoding:
  """Fits the encoding of a text column on training examples.

  Args:
    examples: The table.
    training: Indices of the training examples.
    vocabulary: 'fitted', 'hashed', or a file with one word per line.
    size: Maximum number of tokens.
    max_length: Number of tokens of a text.
  """
  [column] = examples.columns
  if vocabulary == 'hashed':
    return TextEncoding(column, size, max_length)
  if vocabulary == 'fitted':
    layer = _vectorization(max_length, max_tokens=size)
    texts = examples.words[column.name].to_numpy()[training]
    layer.adapt(tf.constant(texts.tolist()))
    words = tuple(layer.get_vocabulary()[_RESERVED:])
    if not words:
      raise data_files.DataError(
        f'The column {column.name!r} has no words (runs of letters or digits) '
        'in training examples.'
      )
  else:
    words = columns_lib.read_words(vocabulary, size - _RESERVED)
  return TextEncoding(column, len(words) + _RESERVED, max_length, words)


def of(keras_model: Any) -> Optional[Encoding]:
  """Returns the encoding of a table's model, or None."""
  return getattr(keras_model, 'table_encoding', None)
