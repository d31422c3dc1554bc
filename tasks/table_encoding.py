"""Encoding of a table's rows as inputs of a model.

Numbers are shifted and scaled, words are one-hot encoded, and an empty cell
becomes the column's mean, or zeros in a column of words.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tasks import text_encoding
from tasks.formats import columns as columns_lib
from tasks.formats import schemas


@dataclasses.dataclass(frozen=True)
class Encoding:
  """Encoder of a table's rows.

  Attributes:
    columns: The feature columns.
    fill: Values of empty cells, before shift and scale; float64, of the shape
      of a row, as are the next two.
    shift: Offsets to subtract from numbers.
    scale: Divisors to apply afterwards.
  """

  columns: tuple[columns_lib.Column, ...]
  fill: np.ndarray
  shift: np.ndarray
  scale: np.ndarray

  @property
  def has_words(self) -> bool:
    """Whether a column holds words, so that rows are strings."""
    return any(column.words for column in self.columns)

  @property
  def notes(self) -> tuple[str, ...]:
    """Sentences about the treatment of empty cells."""
    notes = []
    for column, fill in zip(self.columns, self.fill.ravel(), strict=False):
      if column.missing:
        cells, count = (
          ('cell', 'counts') if column.missing == 1 else ('cells', 'count')
        )
        what = 'none of its words' if column.words else f'{fill:.6g}, its mean'
        notes.append(
          f'{column.missing:,} empty {cells} of the column {column.name!r} '
          f'{count} as {what}.'
        )
    return tuple(notes)

  def encode(self, features: np.ndarray) -> np.ndarray:
    """Encodes rows as returned by `columns.read`.

    Args:
      features: float32 [rows, ...]: numbers, codes of words, NaN if empty.

    Returns:
      Inputs, float32 [rows, ...].
    """
    if not self.has_words:
      filled = np.where(np.isnan(features), self.fill, features)
      return ((filled - self.shift) / self.scale).astype(np.float32)
    parts = []
    for j, column in enumerate(self.columns):
      cells = features[:, j]
      if column.words:
        # NaN is not a code.
        parts.append(cells[:, np.newaxis] == np.arange(len(column.words)))
      else:
        filled = np.where(np.isnan(cells), self.fill[j], cells)
        parts.append(((filled - self.shift[j]) / self.scale[j])[:, np.newaxis])
    return np.concatenate(parts, axis=1).astype(np.float32)

  @property
  def input_spec(self) -> tf.TensorSpec:
    """Spec of the argument of `encode_rows`."""
    if self.has_words:
      return tf.TensorSpec([None, len(self.columns)], tf.string, 'rows')
    return tf.TensorSpec([None, *self.fill.shape], tf.float32, 'rows')

  def encode_rows(self, rows: tf.Tensor) -> tf.Tensor:
    """Encodes rows with the content of the file; can be traced.

    Args:
      rows: Numbers, NaN for empty cells; if `has_words`, the cells as strings,
        '' for empty ones.

    Returns:
      Inputs, float32 [rows, ...].
    """
    if not self.has_words:
      return self._numbers(rows, self.fill, self.shift, self.scale)
    cells = tf.strings.strip(rows)
    parts = []
    for j, column in enumerate(self.columns):
      text = cells[:, j]
      if column.words:
        parts.append(tf.equal(text[:, tf.newaxis], tf.constant(column.words)))
      else:
        text = tf.where(tf.equal(text, ''), 'nan', text)
        numbers = self._numbers(
          tf.strings.to_number(text),
          *(values[j] for values in (self.fill, self.shift, self.scale)),
        )
        parts.append(numbers[:, tf.newaxis])
    return tf.concat([tf.cast(part, tf.float32) for part in parts], axis=1)

  @staticmethod
  def _numbers(
    values: tf.Tensor, fill: np.ndarray, shift: np.ndarray, scale: np.ndarray
  ) -> tf.Tensor:
    values = tf.cast(values, tf.float64)
    values = tf.where(tf.math.is_nan(values), fill, values)
    return tf.cast((values - shift) / scale, tf.float32)

  def fitted(self, schema: schemas.Schema, *, standardize: bool) -> list[str]:
    """Describes what `fit` computed from examples, and how to avoid it."""
    missing = [c for c in self.columns if c.name not in schema]
    words = [c.name for c in missing if c.words]
    numbers = [
      c.name for c in missing if not c.words and (standardize or c.missing)
    ]
    told = []
    if numbers:
      told.append(
        f'means and deviations of {_listed(numbers)} (ranges by --table_schema)'
      )
    if words:
      told.append(f'the words of {_listed(words)} (--table_schema)')
    return told

  def describe(self) -> list[dict[str, Any]]:
    """Returns a JSON description of each column, in the order of a row."""
    described: list[dict[str, Any]] = []
    places = np.cumsum([0, *(column.width for column in self.columns)])
    for j, column in enumerate(self.columns):
      if column.words:
        described.append(
          dict(name=column.name, kind='words', words=list(column.words))
        )
        continue
      part = slice(places[j], places[j + 1])
      values = {
        name: getattr(self, name).ravel()[part].tolist()
        for name in ('fill', 'shift', 'scale')
      }
      if column.width == 1:
        values = {name: value for name, [value] in values.items()}
      described.append(dict(name=column.name, kind='number', **values))
    return described


def _listed(names: Sequence[str], most: int = 5) -> str:
  more = f' and {len(names) - most} more' if len(names) > most else ''
  return ', '.join(map(repr, names[:most])) + more


def fit(
  columns: Sequence[columns_lib.Column],
  features: np.ndarray,
  *,
  standardize: bool,
  schema: schemas.Schema,
) -> Encoding:
  """Fits the encoding of a table on its training examples.

  Args:
    columns: The feature columns.
    features: Features of the training examples, as returned by `columns.read`.
    standardize: Whether numbers get mean 0 and standard deviation 1; constant
      columns become 0.
    schema: Ranges of columns, used instead of mean and deviation.
  """
  known = features.astype(np.float64)
  if np.isnan(known).any():
    with warnings.catch_warnings():
      # A column may have numbers in test examples only.
      warnings.simplefilter('ignore', RuntimeWarning)
      mean, deviation = np.nanmean(known, axis=0), np.nanstd(known, axis=0)
    mean, deviation = np.nan_to_num(mean), np.nan_to_num(deviation)
  else:
    # For images, one mean per channel.
    images = len(columns) == 1 and columns[0].image
    axes = tuple(range(known.ndim - 1)) if images else 0
    mean, deviation = (
      np.broadcast_to(found, known.shape[1:])
      for found in (known.mean(axis=axes), known.std(axis=axes))
    )
  shift, scale = np.zeros_like(mean), np.ones_like(mean)
  if standardize:
    shift, scale = mean, np.where(deviation > 0, deviation, 1.0)
  fill = mean.copy()
  begin = 0
  for column in columns:
    place = np.s_[...] if column.image else np.s_[begin : begin + column.width]
    begin += column.width
    if column.name in schema and not column.words:
      low, high = schemas.range_of(schema, column.name)
      shift, scale = np.array(shift), np.array(scale)
      fill[place] = shift[place] = (low + high) / 2
      scale[place] = (high - low) / 2
  return Encoding(tuple(columns), fill, shift, scale)


def note(
  keras_model: Any, encoding: Encoding | text_encoding.TextEncoding
) -> Any:
  """Attaches the encoding of its inputs to a Keras model.

  Args:
    keras_model: The model, of which an attribute is set.
    encoding: The encoding of its inputs.

  Returns:
    The model.
  """
  keras_model.table_encoding = encoding
  return keras_model


def of(keras_model: Any) -> Any:
  """Returns the encoding attached by `note`, or None."""
  return getattr(keras_model, 'table_encoding', None)
