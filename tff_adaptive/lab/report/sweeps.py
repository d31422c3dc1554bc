"""The files of a sweep's folder that tell of its runs as a whole.

A sweep writes them and a report reads them, so that neither needs the other,
and a report needs no access to the sweep's storage.
"""

import csv
import dataclasses
import io
import json
import pathlib
import re
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

# A formula as spreadsheets see it. A number may begin like one.
_FORMULA = re.compile(r"'*[=+\-@\t\r](?![\d.]*(e[+\-]?\d+)?$)")

# The status of a run that came to its end.
FINISHED = 'finished'


@dataclasses.dataclass(frozen=True)
class SweepRecord:
  """The record of a sweep in its folder.

  Attributes:
    select: The name of the rule by which configurations were chosen.
    shared: Whether the sweep's state is elsewhere, for other machines too.
    tuned_on: The seed that configurations were chosen on, of which results
      are not; `None` if all seeds count alike.
  """

  select: str
  shared: bool
  tuned_on: Optional[int] = None


def table_path(folder: pathlib.Path) -> pathlib.Path:
  """Returns the path of the table of a sweep's runs."""
  return pathlib.Path(folder) / 'results.csv'


def write(folder: pathlib.Path, sweep: SweepRecord) -> None:
  """Writes sweep.json."""
  text = json.dumps(dataclasses.asdict(sweep), indent=2) + '\n'
  files.write_atomically(files.RunFolder(folder).sweep, text.encode('utf-8'))


def write_table(
  folder: pathlib.Path, head: Sequence[str], rows: Sequence[Sequence[Any]]
) -> None:
  """Writes results.csv; a cell that is `None` stays empty.

  Text that a spreadsheet would take for a formula gets a quote in front, which
  `read_unfinished` takes off.
  """
  buffer = io.StringIO()
  writer = csv.writer(buffer, lineterminator='\n')
  writer.writerow(head)
  writer.writerows([cell(value) for value in row] for row in rows)
  files.write_atomically(table_path(folder), buffer.getvalue().encode('utf-8'))


def cell(value: Any) -> Any:
  """Makes text that a spreadsheet could run text and nothing else."""
  if isinstance(value, str) and _FORMULA.match(value):
    return f"'{value}"
  return '' if value is None else value


def read(folder: pathlib.Path) -> Optional[SweepRecord]:
  """Reads sweep.json; `None` if a folder is no sweep's.

  Raises:
    SettingsError: If it is damaged.
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
      (_text(row['name']), row['status'], _text(row['reason'] or ''))
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


def _text(found: str) -> str:
  """Reads what `cell` made of text."""
  plain = found[1:]
  return plain if found[:1] == "'" and _FORMULA.match(plain) else found
