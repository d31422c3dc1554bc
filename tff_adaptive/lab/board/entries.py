"""Entries of the board, as files.

An entry is one compressed NumPy file: arrays of the evaluations and costs of
every run, and a text of JSON with method, space, protocol, versions and hashes
of workloads. Imports no TensorFlow.
"""

import dataclasses
import functools
import pathlib
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

from tff_adaptive import errors
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib

SUFFIX = '.npz'
# By version of the board.
FOLDERS = {1: 'entries', 2: 'entries_2'}


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """The runs of a submission.

  Attributes:
    submission: Method and space.
    protocol: How much it was tuned and repeated.
    records: Runs by workload and name.
    reasons: Why runs failed, by workload; the first reason of each.
    made_with: Versions and kind of machine, by workload.
  """

  submission: runner.Submission
  protocol: runner.Protocol
  records: Mapping[str, Mapping[str, records_lib.Record]]
  reasons: Mapping[str, str]
  made_with: Mapping[str, Mapping[str, str]]

  @property
  def name(self) -> str:
    """The method's name; an entry of --quick says so."""
    quick = ' (quick)' if self.protocol == runner.QUICK else ''
    return self.submission.method + quick

  @property
  def makers(self) -> list[str]:
    """Descriptions of what made the runs, each once."""
    described = (
      ', '.join(f'{what} {version}' for what, version in made.items())
      for made in self.made_with.values()
    )
    return list(dict.fromkeys(described))

  def shares(self, workload: str, budget: int) -> dict[int, float]:
    """Returns how often tuning with a budget selects which trials."""
    records = self.records[workload]
    found = runner.criteria(records, workload, self.protocol)
    return {
      trial: float(share)
      for trial, share in enumerate(self.protocol.shares(found, budget))
      if share
    }

  def tuned(
    self, workload: str, budget: int, measure: str
  ) -> list[scoring.Setting]:
    """Returns the settings that tuning with a budget selects."""
    return [
      scoring.Setting(share, self._curves(workload, trial, measure))
      for trial, share in self.shares(workload, budget).items()
    ]

  def untuned(self, workload: str, measure: str) -> list[scoring.Setting]:
    """Returns the defaults as the one setting."""
    curves = self._curves(workload, runner.DEFAULT, measure)
    return [scoring.Setting(1.0, curves)]

  def repeats(self, workload: str, setting: object) -> list[records_lib.Record]:
    """Returns the runs of a setting on the fresh seeds."""
    return [
      self.records[workload][runner.name_of(workload, setting, seed)]
      for seed in self.protocol.seeds
    ]

  @functools.cache  # Several tables need them.
  def _curves(
    self, workload: str, setting: object, measure: str
  ) -> list[scoring.Curve]:
    return [r.curve(measure) for r in self.repeats(workload, setting)]

  def merged(self, older: 'Entry') -> 'Entry':
    """Returns this entry with an older one's other workloads."""
    reasons = {w: r for w, r in older.reasons.items() if w not in self.records}
    return dataclasses.replace(
      self,
      records={**older.records, **self.records},
      reasons={**reasons, **self.reasons},
      made_with={**older.made_with, **self.made_with},
    )


def write(path: pathlib.Path, entry: Entry) -> None:
  """Writes an entry."""
  about = {
    'board': workloads_lib.VERSION,
    'method': entry.submission.method,
    'space': dataclasses.asdict(entry.submission.space),
    'protocol': dataclasses.asdict(entry.protocol),
    'workloads': {
      name: {
        'hash': workloads_lib.choose(name)[0].hash,
        'made_with': dict(entry.made_with[name]),
        **({'failed': entry.reasons[name]} if name in entry.reasons else {}),
      }
      for name in entry.records
    },
  }
  known = {n: r for of in entry.records.values() for n, r in of.items()}
  records_lib.write(path, about, known)


def read(path: pathlib.Path) -> Entry:
  """Reads an entry.

  Raises:
    SettingsError: If it is none, is damaged, or is of another version.
  """
  try:
    about, records = records_lib.read(path)
    check_version(path, about)
    space = spaces.parse(about['space'], f'{path}: its space')
    entry = Entry(
      runner.Submission(about['method'], space),
      _protocol(about['protocol']),
      _by_workload(records, about['workloads']),
      {
        name: of['failed']
        for name, of in about['workloads'].items()
        if 'failed' in of
      },
      {name: of['made_with'] for name, of in about['workloads'].items()},
    )
  except errors.SettingsError as e:
    raise errors.SettingsError(f'{path} is refused. {e}') from e
  except (
    OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError,
    AttributeError, zipfile.BadZipFile, zlib.error,
  ) as e:  # fmt: skip
    raise errors.SettingsError(
      f'{path} cannot be read as an entry of the board: {errors.reason(e)}.'
    ) from e
  for name, of in about['workloads'].items():
    check_hash(path, name, of.get('hash'))
  return entry


def _by_workload(
  records: Mapping[str, records_lib.Record], names: Iterable[str]
) -> dict[str, dict[str, records_lib.Record]]:
  """Divides records by workload.

  Raises:
    ValueError: If there are others.
  """
  found: dict[str, dict[str, records_lib.Record]] = {n: {} for n in names}
  form = rf'(\w+)-({runner.DEFAULT}|[1-4]?[0-9])-seed[0-9]{{1,9}}'
  for name, record in records.items():
    known = re.fullmatch(form, name)
    if known is None or known[1] not in found:
      raise ValueError(f'got run {name!r}')
    found[known[1]][name] = record
  return found


def check_version(path: pathlib.Path, found: Mapping[str, Any]) -> None:
  """Raises `SettingsError` if a file is of another version of the board."""
  if found.get('board') != workloads_lib.VERSION:
    raise errors.SettingsError(
      f'{path} is of version {found.get("board")!r:.20} of the board, and this '
      f'is version {workloads_lib.VERSION}: run main.py board again to enter '
      'it.'
    )


def check_hash(path: pathlib.Path, workload: str, found: Any) -> None:
  """Raises `SettingsError` if a workload was another one, or is unknown."""
  known = workloads_lib.choose(workload)
  if len(known) != 1 or found != known[0].hash:
    raise errors.SettingsError(
      f'{path} has runs on another version of the workload {workload}: run '
      'main.py board again.'
    )


def _protocol(found: Mapping[str, Any]) -> runner.Protocol:
  """Reads a protocol; JSON has lists where it has tuples."""
  known: dict[str, Any] = {
    k: tuple(v) if isinstance(v, list) else v for k, v in found.items()
  }
  return runner.Protocol(**known)


def find(folder: pathlib.Path) -> tuple[list[Entry], list[str]]:
  """Reads the entries of a folder.

  Returns:
    The entries, and a sentence for each file that could not be used.
  """
  found, complaints = [], []
  for path in sorted(folder.glob(f'*{SUFFIX}')):
    try:
      found.append(read(path))
    except errors.SettingsError as e:
      complaints.append(str(e))
  return found, complaints
