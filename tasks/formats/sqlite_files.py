"""Access to TFF's SQLite data sets in a local folder.

TFF's loaders download missing files and fail during a run on damaged ones. Here
files are checked first, in milliseconds for any size, and nothing is ever
downloaded.
"""

import contextlib
import pathlib
import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Optional

import tensorflow as tf

from tasks.formats import data_files

# Maximum size of an example in bytes; TFF's largest have some ten thousand.
_MAX_EXAMPLE_BYTES = 64 << 20
_MAGIC = b'SQLite format 3\x00'
_TABLES = {
  'client_metadata': {'client_id', 'split_name'},
  'examples': {'client_id', 'split_name', 'serialized_example_proto'},
}


def find(
  cache_dir: Optional[str],
  name: str,
  *,
  splits: Sequence[str],
  features: Sequence[str],
  loader: str,
) -> pathlib.Path:
  """Checks that a data set's file exists and is the expected one.

  Args:
    cache_dir: Folder of the file; None for TFF's own, ~/.tff.
    name: Name of the file, such as 'emnist_all.sqlite'.
    splits: Names of the required splits.
    features: Names of the required features of examples.
    loader: Name of the loader in `tff.simulation.datasets` that downloads it.

  Returns:
    The file's path.

  Raises:
    DataError: If the file is missing, empty, truncated, not an SQLite file, or
      one of another data set.
  """
  path = data_files.cache_folder(cache_dir) / name
  get = (
    f'Put {name} into {path.parent} or pass --cache_dir; on a machine with a '
    f'network, tff.simulation.datasets.{loader}.load_data(cache_dir=...) '
    'downloads it.'
  )
  if not path.is_file():
    raise data_files.DataError(f'There is no file {path}. {get}')
  _check_whole(path, get)
  with _opened(path, get) as connection:
    _check_tables(connection, path, get)
    _check_splits(connection, path, splits, features, get)
  return path


def client_ids(path: pathlib.Path, split: str) -> Iterator[str]:
  """Yields the client ids of a split, in the order of the file."""
  query = 'SELECT DISTINCT client_id FROM client_metadata WHERE split_name = ?'
  with _opened(path) as connection:
    for (client_id,) in connection.execute(query, (split,)):
      if not isinstance(client_id, str):
        raise data_files.DataError(
          f'{path} is damaged: a client id is {client_id!r}, not text.'
        )
      yield client_id


def example_counts(path: pathlib.Path, split: str) -> dict[str, int]:
  """Returns clients' numbers of examples from the file's metadata.

  The result is empty for data sets whose files lack them.
  """
  with _opened(path) as connection:
    columns = connection.execute('PRAGMA table_info(client_metadata)')
    if 'num_examples' not in {column[1] for column in columns}:
      return {}
    query = (
      'SELECT client_id, num_examples FROM client_metadata WHERE split_name = ?'
    )
    return dict(connection.execute(query, (split,)))


def examples(path: pathlib.Path, split: str, client_id: str) -> list[bytes]:
  """Returns a client's serialized examples, in TFF's order.

  Raises:
    DataError: If the file is damaged.
  """
  with _opened(path) as connection:
    return _examples(connection, path, split, client_id)


def examples_by_client(path: pathlib.Path, split: str) -> Iterator[list[bytes]]:
  """Yields the serialized examples of each client in turn."""
  with _opened(path) as connection:
    for client_id in client_ids(path, split):
      yield _examples(connection, path, split, client_id)


def _examples(
  connection: sqlite3.Connection,
  path: pathlib.Path,
  split: str,
  client_id: str,
) -> list[bytes]:
  query = (
    'SELECT serialized_example_proto FROM examples '
    'WHERE client_id = ? AND split_name = ?'
  )
  found = [row[0] for row in connection.execute(query, (client_id, split))]
  if not all(isinstance(example, bytes) for example in found):
    raise data_files.DataError(
      f'{path} is damaged: an example of client {client_id!r} is not bytes.'
    )
  return found


@contextlib.contextmanager
def _opened(path: pathlib.Path, get: str = '') -> Iterator[sqlite3.Connection]:
  """Opens a read-only connection, converting SQLite's errors to `DataError`."""
  try:
    # Read-only: sqlite3 would otherwise create missing files.
    uri = f'{path.resolve().as_uri()}?mode=ro'
    with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
      # Limits the size of a value before memory is allocated.
      connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_EXAMPLE_BYTES)
      yield connection
  # Some messages quote bytes of the damaged file.
  except (sqlite3.Error, UnicodeDecodeError) as e:
    raise data_files.DataError(
      f'{path} is damaged: SQLite says "{e}". {get}'.rstrip()
    ) from e


def _check_whole(path: pathlib.Path, get: str) -> None:
  """Compares the size in the header with the file's size."""
  size = path.stat().st_size
  if size == 0:
    raise data_files.DataError(f'{path} is empty. {get}')
  with open(path, 'rb') as file:
    header = file.read(100)
  if not header.startswith(_MAGIC):
    raise data_files.DataError(
      f'{path} is no SQLite file: it begins with {header[:8]!r}. {get}'
    )
  page = int.from_bytes(header[16:18], 'big')
  page = 65536 if page == 1 else page
  expected = page * int.from_bytes(header[28:32], 'big')
  if size < max(expected, 100):
    raise data_files.DataError(
      f'{path} is cut short: it has {size} of {expected} bytes. {get}'
    )


def _check_tables(
  connection: sqlite3.Connection, path: pathlib.Path, get: str
) -> None:
  for table, expected in _TABLES.items():
    # Views and virtual tables are programs that may not terminate.
    for kind, made in connection.execute(
      'SELECT type, sql FROM sqlite_schema WHERE name = ?', (table,)
    ):
      if kind != 'table' or not re.match(r'CREATE\s+TABLE\b', str(made), re.I):
        raise data_files.DataError(
          f'{path} is no TFF data set: {table} must be a plain table, but was '
          f'made with {str(made)[:40]!r}. {get}'
        )
    columns = {r[1] for r in connection.execute(f'PRAGMA table_info({table})')}
    if not expected <= columns:
      found = ', '.join(sorted(columns)) or 'none'
      raise data_files.DataError(
        f'{path} is no TFF data set: its table {table} must have the columns '
        f'{", ".join(sorted(expected))}; found: {found}. {get}'
      )


def _check_splits(
  connection: sqlite3.Connection,
  path: pathlib.Path,
  splits: Sequence[str],
  features: Sequence[str],
  get: str,
) -> None:
  for split in splits:
    row = connection.execute(
      'SELECT client_id FROM client_metadata WHERE split_name = ? LIMIT 1',
      (split,),
    ).fetchone()
    if row is None:
      raise data_files.DataError(
        f'{path} is another data set: it has no split {split!r}. {get}'
      )
    # Also filters by client, for which the file has an index.
    blob = connection.execute(
      'SELECT serialized_example_proto FROM examples '
      'WHERE client_id = ? AND split_name = ? LIMIT 1',
      (row[0], split),
    ).fetchone()
    if blob is None:
      raise data_files.DataError(
        f'{path} has no example of client {row[0]!r} in split {split!r}. {get}'
      )
    _check_example(blob[0], path, features, get)


def _check_example(
  blob: Any, path: pathlib.Path, features: Sequence[str], get: str
) -> None:
  try:
    found = set(tf.train.Example.FromString(blob).features.feature)
  # The exception's class depends on the installed protobuf.
  except Exception as e:  # pylint: disable=broad-exception-caught
    raise data_files.DataError(
      f'{path} has an example that is no tf.train.Example. {get}'
    ) from e
  if not set(features) <= found:
    raise data_files.DataError(
      f'{path} is another data set: its examples must have the features '
      f'{", ".join(sorted(features))}; found: {", ".join(sorted(found))}. '
      f'{get}'
    )
