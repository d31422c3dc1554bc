"""The files that describe a sweep's runs as a whole.

A sweep writes them and a report reads them, so that neither imports the other
and a report needs no access to the sweep's storage.
"""

import csv
import dataclasses
import io
import json
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting

# The status of a finished run.
FINISHED = 'finished'


@dataclasses.dataclass(frozen=True)
class SweepRecord:
  """The content of sweep.json.

  Attributes:
    select: Name of the rule that selects configurations.
    shared: Whether the sweep uses a --storage that other machines may share.
    tuned_on: The seed that configurations are selected on, excluded from
      results; `None` if all seeds are equal.
  """

  select: str
  shared: bool
  tuned_on: Optional[int] = None


def table_path(folder: pathlib.Path) -> pathlib.Path:
  """Returns the path of a sweep's results.csv."""
  return pathlib.Path(folder) / 'results.csv'


def write(folder: pathlib.Path, sweep: SweepRecord) -> None:
  """Writes sweep.json."""
  text = json.dumps(dataclasses.asdict(sweep), indent=2) + '\n'
  files.write_atomically(files.RunFolder(folder).sweep, text.encode('utf-8'))


def write_table(
  folder: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
  """Writes results.csv; cells that are `None` stay empty.

  Text that a spreadsheet would take for a formula is prefixed with a quote,
  which `read_unfinished` removes.
  """
  buffer = io.StringIO()
  writer = csv.writer(buffer, lineterminator='\n')
  writer.writerow(head)
  writer.writerows([cell(value) for value in row] for row in rows)
  files.write_atomically(table_path(folder), buffer.getvalue().encode('utf-8'))


def cell(value: Any) -> Any:
  """Escapes text that a spreadsheet could evaluate as a formula."""
  if isinstance(value, str):
    return formatting.spreadsheet_cell(value)
  return '' if value is None else value


def read(folder: pathlib.Path) -> Optional[SweepRecord]:
  """Reads sweep.json; `None` if the folder is not a sweep's.

  Raises:
    SettingsError: If the file is damaged.
  """
  path = files.RunFolder(folder).sweep
  try:
    found = json.loads(path.read_text(encoding='utf-8'))
    tuned_on = found.get('tuned_on')
    return SweepRecord(
      str(found['select']),
      bool(found['shared']),
      None if tuned_on is None else int(tuned_on),
    )
  except FileNotFoundError:
    return None
  except (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    OverflowError,
    RecursionError,
  ) as e:
    raise errors.SettingsError(
      f"{path} cannot be read as a sweep's description ({errors.reason(e)}); "
      "delete it, and the sweep's command writes it anew."
    ) from e


def read_unfinished(folder: pathlib.Path) -> list[tuple[str, str, str]]:
  """Reads name, status and reason of the runs without a result.

  Raises:
    SettingsError: If the table is damaged.
  """
  path = table_path(folder)
  try:
    text = path.read_text(encoding='utf-8')
    rows = list(csv.DictReader(io.StringIO(text), strict=True))
    if any(row['name'] is None or row['status'] is None for row in rows):
      raise ValueError('a row is cut short')
    return [
      (
        formatting.spreadsheet_text(row['name']),
        row['status'],
        formatting.spreadsheet_text(row['reason'] or ''),
      )
      for row in rows
      if row['status'] != FINISHED
    ]
  except FileNotFoundError:
    return []
  except (OSError, ValueError, KeyError, csv.Error) as e:
    raise errors.SettingsError(
      f"{path} cannot be read as a sweep's table ({errors.reason(e)}); the "
      "sweep's command writes it anew."
    ) from e
