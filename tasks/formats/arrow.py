"""Parquet, Feather and Arrow files."""

from __future__ import annotations

import pathlib

import numpy as np
import pandas

from tasks.formats import data_files


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
    if path.suffix == '.parquet':
      with parquet.ParquetFile(path) as file:
        groups = range(file.metadata.num_row_groups)
        size = sum(file.metadata.row_group(g).total_byte_size for g in groups)
        data_files.check_size(path, size)
        table = file.read()
    elif path.suffix == '.feather':
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
    frame = table.to_pandas(ignore_metadata=True)
    for name, kind in zip(table.column_names, table.schema.types, strict=True):
      if pyarrow.types.is_nested(kind):  # Lists, instead of arrays of arrays.
        frame[name] = pandas.Series(
          table.column(name).to_pylist(), dtype=object
        )
    return frame.replace({None: np.nan})
