"""Parquet, Feather and Arrow files, and datasets saved by Hugging Face."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas

from tasks.formats import data_files

_STATE, _INFO = 'state.json', 'dataset_info.json'


def is_saved(folder: pathlib.Path) -> bool:
  """Returns whether Hugging Face's `save_to_disk` wrote a folder."""
  return (folder / _STATE).exists()


def read_saved(folder: pathlib.Path) -> pandas.DataFrame:
  """Reads a saved dataset; numbers of classes become their names.

  Raises:
    DataError: If it is damaged, or refers to files in other places.
  """
  state = data_files.read_json(folder / _STATE)
  if state.get('_indices_files') or state.get('_indices_data_files'):
    raise data_files.DataError(
      f'{folder}: it selects rows by a file of indices; call flatten_indices() '
      'before save_to_disk().'
    )
  try:
    files = [entry['filename'] for entry in state['_data_files']]
    # Confined to this folder, whatever path is given.
    named = [isinstance(f, str) and pathlib.Path(f).name == f for f in files]
  except (KeyError, TypeError) as e:
    raise data_files.DataError(
      f'{folder / _STATE}: a list _data_files of objects with a filename was '
      'expected.'
    ) from e
  if not files or not all(named):
    raise data_files.DataError(
      f'{folder / _STATE}: names of files beside it were expected: {files}.'
    )
  frame = pandas.concat([read(folder / f) for f in files], ignore_index=True)
  info = folder / _INFO
  described = data_files.read_json(info) if info.exists() else {}
  features = described.get('features', {})
  if not isinstance(features, dict):
    raise data_files.DataError(f'{info}: an object of features was expected.')
  for name in frame.columns:
    kind = features.get(name)
    classes = kind.get('names') if isinstance(kind, dict) else None
    if isinstance(classes, list):
      words = frame[name].map(dict(enumerate(map(str, classes))))
      if (words.isna() & frame[name].notna()).any():
        raise data_files.DataError(
          f'{folder}, column {name!r}: {frame[name].min()} to '
          f'{frame[name].max()} are no numbers of the {len(classes)} classes '
          f'that {_INFO} names.'
        )
      frame[name] = words
  return frame


def read(path: pathlib.Path) -> pandas.DataFrame:
  """Reads a file; cells with lists or images are objects.

  Raises:
    DataError: If pyarrow is not installed, or the file is missing or invalid.
  """
  if missing := data_files.missing_arrow():
    raise data_files.DataError(f'{path}: {missing}.')
  import pyarrow
  from pyarrow import feather
  from pyarrow import parquet

  with data_files.reading(path, f'{path.suffix[1:].capitalize()} file'):
    if path.suffix.lower() == '.parquet':
      with parquet.ParquetFile(path) as file:
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(g).total_byte_size for g in groups)
        data_files.check_size(path, size)
        table = file.read()
    elif path.suffix.lower() == '.feather':
      table = feather.read_table(path, memory_map=False)
    else:
      with pyarrow.OSFile(str(path)) as source:
        try:
          table = pyarrow.ipc.open_file(source).read_all()
        except pyarrow.ArrowInvalid:
          # The stream format, which datasets writes.
          source.seek(0)
          table = pyarrow.ipc.open_stream(source).read_all()
    # Untrusted content: offsets of strings may be out of bounds.
    table.validate(full=True)
    data_files.check_size(path, table.nbytes)
    # An index of pandas stays a column.
    flat = [
      name
      for name, kind in zip(table.column_names, table.schema.types, strict=True)
      if not pyarrow.types.is_nested(kind)
    ]
    frame = table.select(flat).to_pandas(
      ignore_metadata=True,
      integer_object_nulls=True,  # As floats, large ones would be rounded.
    )
    for name in table.column_names:
      if name not in flat:
        nested = table.column(name).to_pylist()
        frame[name] = pandas.Series(nested, dtype=object)
    return frame[table.column_names].replace({None: np.nan})
