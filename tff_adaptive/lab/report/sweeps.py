"""The files that describe a sweep's runs as a whole.

A sweep writes them and a report reads them, so that neither imports the other
and a report needs no access to the sweep's storage.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
from collections.abc import Collection, Sequence
from typing import Optional

from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lazy import pandas as pd

# The final status of a run.
FINISHED = 'finished'
DIVERGED = 'diverged'
FAILED = 'failed'
PRUNED = 'pruned'
# Those of runs that have ended without a result.
LOST = (DIVERGED, FAILED, PRUNED)


@dataclasses.dataclass(frozen=True)
class SweepRecord:
  """The content of sweep.json.

  Attributes:
    select: Name of the rule that selects configurations.
    shared: Whether the sweep uses a --storage that other machines may share.
    tuned_on: The seed that configurations are selected on, excluded from
      results; `None` if all seeds are equal.
    axes: The flags that are axes of the sweep.
  """

  select: str
  shared: bool
  tuned_on: Optional[int] = None
  axes: Sequence[str] = ()


def table_path(folder: pathlib.Path) -> pathlib.Path:
  """Returns the path of a sweep's results.csv."""
  return pathlib.Path(folder) / 'results.csv'


def write(folder: pathlib.Path, sweep: SweepRecord) -> None:
  """Writes sweep.json."""
  text = json.dumps(dataclasses.asdict(sweep), indent=2) + '\n'
  files.write_atomically(files.RunFolder(folder).sweep, text.encode('utf-8'))


def write_table(folder: pathlib.Path, table: pd.DataFrame) -> None:
  """Writes results.csv; missing values stay empty.

  Text that a spreadsheet would take for a formula is prefixed with a quote,
  which `read_unfinished` removes.
  """
  text = formatting.csv_table(table)
  files.write_atomically(table_path(folder), text.encode('utf-8'))


def read(folder: pathlib.Path) -> Optional[SweepRecord]:
  """Reads sweep.json; `None` if the folder is not a sweep's.

  Raises:
    SettingsError: If the file is damaged.
  """
  path = files.RunFolder(folder).sweep
  advice = "delete it, and the sweep's command writes it anew"
  with files.reading(path, "a sweep's description", advice):
    if (content := files.read_if_there(path)) is None:
      return None
    found = json.loads(content)
    tuned_on = found.get('tuned_on')
    return SweepRecord(
      str(found['select']),
      bool(found['shared']),
      None if tuned_on is None else int(tuned_on),
      tuple(map(str, found.get('axes', ()))),
    )


def read_rows(folder: pathlib.Path) -> list[tuple[str, str, str]]:
  """Reads name, status and reason of a sweep's runs.

  Raises:
    SettingsError: If the table is damaged.
  """
  path = table_path(folder)
  advice = "the sweep's command writes it anew"
  with files.reading(path, "a sweep's table", advice):
    if (content := files.read_if_there(path)) is None:
      return []
    table = pd.read_csv(io.BytesIO(content), dtype=str, keep_default_na=False)
    found = table[['name', 'status', 'reason']].map(formatting.spreadsheet_text)
    return list(found.itertuples(index=False, name=None))


def read_unfinished(folder: pathlib.Path) -> list[tuple[str, str, str]]:
  """Reads name, status and reason of the runs without a result.

  Raises:
    SettingsError: If the table is damaged.
  """
  return [row for row in read_rows(folder) if row[1] != FINISHED]


def describe_away(
  folder: pathlib.Path, finished: Collection[str], here: Collection[str]
) -> str:
  """Says how many finished runs a sweep has elsewhere; empty if none.

  Args:
    folder: The sweep's folder.
    finished: The names of its finished runs.
    here: Those of the finished runs whose folders are here.
  """
  if not (away := set(finished).difference(here)):
    return ''
  return (
    f'{len(away)} of {len(finished)} finished runs of {folder} are not here, '
    'as on other machines: results.csv has all, tables of means those here.'
  )
