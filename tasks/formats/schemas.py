"""Descriptions of a table's columns, given instead of fitted on examples."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Optional

import numpy as np

from tasks.formats import data_errors
from tasks.formats import data_files

# By column: the range [low, high] of its numbers, or its words.
Schema = Mapping[str, list[Any]]


def _text(path: str) -> str:
  """Reads a small text file."""
  try:
    data_files.check(pathlib.Path(path))
    return pathlib.Path(path).read_text(encoding='utf-8')
  except (OSError, UnicodeDecodeError) as e:
    raise data_errors.DataError(f'{path} cannot be read: {e}') from e


def read(path: Optional[str]) -> Schema:
  """Reads a schema from a JSON file; returns an empty one without a path.

  Raises:
    DataError: If the file is missing or has another form.
  """
  if path is None:
    return {}
  try:
    schema = json.loads(_text(path))
  except (ValueError, RecursionError) as e:
    raise data_errors.DataError(f'{path} is not valid JSON: {e}.') from e
  if not isinstance(schema, dict):
    raise data_errors.DataError(f'{path}: an object by column was expected.')
  for name, values in schema.items():
    if not isinstance(values, list) or len(set(map(str, values))) < 2:
      raise data_errors.DataError(
        f'{path}, column {name!r}: a range [low, high] or a list of at least '
        f'two words was expected, got {values!r:.60}.'
      )
  return schema


def range_of(schema: Schema, name: str) -> tuple[float, float]:
  """Returns the range of a column of numbers.

  Raises:
    DataError: If the schema lists something else for it.
  """
  values = schema[name]
  numbers = [v for v in values if type(v) in (int, float) and np.isfinite(v)]
  if len(values) != 2 or len(numbers) != 2 or numbers[0] >= numbers[1]:
    raise data_errors.DataError(
      f'--table_schema: the column {name!r} has numbers, and a range '
      f'[low, high] was expected for it, got {values!r:.60}.'
    )
  return float(numbers[0]), float(numbers[1])


def read_words(path: str, most: int) -> tuple[str, ...]:
  """Reads a vocabulary, one word per line, of which the first are used.

  Raises:
    DataError: If the file is missing or has no words.
  """
  words = tuple(dict.fromkeys(_text(path).lower().split()))[:most]
  if not words:
    raise data_errors.DataError(f'{path} has no words; one per line is needed.')
  return words
