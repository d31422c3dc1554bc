"""CSV files about a task's clients."""

import csv
import io
import pathlib
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence

from tff_adaptive import errors
from tff_adaptive.lab.recording import files


def read(
  name: str,
  path: pathlib.Path,
  client_ids: Collection[str],
  check: Callable[[Sequence[str]], None],
) -> Iterator[tuple[str, Mapping[str, str]]]:
  """Yields the rows of a CSV file with a column `client`.

  Args:
    name: The flag that names the file, for error messages.
    path: The file.
    client_ids: The task's clients.
    check: Called with the file's columns; raises `SettingsError` if invalid.

  Yields:
    For each row its location, for error messages, and its cells by column.

  Raises:
    SettingsError: If it cannot be read, or a row names no client of the task.
  """
  known = set(client_ids)
  try:
    text = files.read(path).decode('utf-8-sig')
    reader = csv.DictReader(io.StringIO(text, newline=''), strict=True)
    columns = tuple(reader.fieldnames or ())
    check(columns)
    for row in reader:
      line = f'{name}, line {reader.line_num}'
      if None in row or None in row.values():
        raise errors.SettingsError(f'{line}: expected {len(columns)} cells.')
      if row['client'] not in known:
        raise errors.SettingsError(
          f'{line}: the task has no training client {row["client"]!r}; its '
          f'clients are called {_some(client_ids)}.'
        )
      yield line, row
  except (OSError, UnicodeDecodeError, csv.Error) as e:
    raise errors.SettingsError(
      f'{name} cannot be read as a CSV file: {errors.reason(e)}.'
    ) from e


def _some(names: Collection[str]) -> str:
  shown = [repr(name) for name, _ in zip(names, range(3))]
  return ', '.join(shown) + (' and so on' if len(names) > 3 else '')
