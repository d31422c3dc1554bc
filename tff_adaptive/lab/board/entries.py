"""Entries of the board, as files.

An entry holds space, protocol, versions, hashes of workloads, and the
evaluations and costs of every run. A digest of its content detects changes by
hand. Imports no TensorFlow.
"""

import dataclasses
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform
import re
from collections.abc import Mapping
from typing import Any

from tff_adaptive import errors
from tff_adaptive.lab.board import curves
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.runtime import machine

_PACKAGES = ('tensorflow', 'tensorflow-federated', 'numpy')


@dataclasses.dataclass(frozen=True)
class Entry:
  """The runs of a contestant.

  Attributes:
    contestant: Method and space.
    protocol: How much it was tuned and repeated.
    records: Runs by workload and name.
    reasons: Why runs failed, by workload; the first reason of each.
    made_with: Versions and kind of machine, by workload.
  """

  contestant: runner.Contestant
  protocol: runner.Protocol
  records: Mapping[str, Mapping[str, curves.Record]]
  reasons: Mapping[str, str]
  made_with: Mapping[str, Mapping[str, str]]

  @property
  def name(self) -> str:
    """The method's name; an entry of --quick says so."""
    quick = ' (quick)' if self.protocol == runner.QUICK else ''
    return self.contestant.method + quick

  def tuned(
    self, workload: str, budget: int, measure: str
  ) -> list[scoring.Setting]:
    """Returns the settings that tuning with a budget selects."""
    records, protocol = self.records[workload], self.protocol
    losses = [
      records[runner.name_of(workload, trial, protocol.tuning_seed)].final
      for trial in range(protocol.trials)
    ]
    return [
      self._setting(workload, trial, share, measure)
      for trial, share in enumerate(protocol.shares(losses, budget))
      if share
    ]

  def untuned(self, workload: str, measure: str) -> list[scoring.Setting]:
    """Returns the defaults as the one setting."""
    return [self._setting(workload, runner.DEFAULT, 1.0, measure)]

  def repeats(self, workload: str, setting: object) -> list[curves.Record]:
    """Returns the runs of a setting on the fresh seeds."""
    return [
      self.records[workload][runner.name_of(workload, setting, seed)]
      for seed in self.protocol.seeds
    ]

  def _setting(
    self, workload: str, setting: object, share: float, measure: str
  ) -> scoring.Setting:
    key = workload, setting, measure
    if key not in self._curves:
      repeats = self.repeats(workload, setting)
      self._curves[key] = [record.curve(measure) for record in repeats]
    return scoring.Setting(share, self._curves[key])

  @functools.cached_property
  def _curves(self) -> dict[Any, list[scoring.Curve]]:
    """Curves that were made before, as several tables need them."""
    return {}

  def merged(self, older: 'Entry') -> 'Entry':
    """Returns this entry with an older one's other workloads."""
    return dataclasses.replace(
      self,
      records={**older.records, **self.records},
      reasons={**older.reasons, **self.reasons},
      made_with={**older.made_with, **self.made_with},
    )


def made_with() -> dict[str, str]:
  """Describes versions, and the kind of machine that bits depend on."""
  return {
    'python': platform.python_version(),
    **{name: importlib.metadata.version(name) for name in _PACKAGES},
    'machine': machine.processor(),
  }


def digest(content: Mapping[str, Any]) -> str:
  """Returns the digest of a file's content."""
  text = json.dumps(
    {k: v for k, v in content.items() if k != 'digest'}, sort_keys=True
  )
  return hashlib.blake2b(text.encode('utf-8'), digest_size=16).hexdigest()


def write_json(path: pathlib.Path, content: Mapping[str, Any]) -> None:
  """Writes content with its digest, lists of numbers on a line each."""
  text = json.dumps({**content, 'digest': digest(content)}, indent=1)
  short = re.sub(
    r'\[\s+([^][{}]*?)\s+\]',
    lambda m: '[' + re.sub(r'\s*\n\s*', ' ', m.group(1)) + ']',
    text,
  )
  files.make_folder(path.parent)
  files.write_atomically(path, f'{short}\n'.encode())


def read_json(path: pathlib.Path) -> dict[str, Any]:
  """Reads a file of `write_json`.

  Raises:
    SettingsError: If it cannot be read, was changed, or is of other rules.
  """
  try:
    found = json.loads(files.read(path))
  except (OSError, ValueError, RecursionError) as e:
    raise errors.SettingsError(
      f'{path} cannot be read as a file of the board: {errors.reason(e)}.'
    ) from e
  if not isinstance(found, dict) or 'board' not in found:
    raise errors.SettingsError(f'{path} is no file of the board.')
  if found['board'] != workloads_lib.VERSION:
    raise errors.SettingsError(
      f'{path} is of version {found["board"]!r:.20} of the board, and this is '
      f'version {workloads_lib.VERSION}: run main.py board again to enter it.'
    )
  if found.get('digest') != digest(found):
    raise errors.SettingsError(
      f'{path} was changed after it was written: its digest is another one. '
      'Run main.py board again.'
    )
  return found


def check_hash(path: pathlib.Path, workload: str, found: Any) -> None:
  """Raises `SettingsError` if a workload was another one, or is unknown."""
  known = workloads_lib.choose(workload)
  if len(known) != 1 or found != known[0].hash:
    raise errors.SettingsError(
      f'{path} has runs on another version of the workload {workload}: run '
      'main.py board again.'
    )


def write(path: pathlib.Path, entry: Entry) -> None:
  """Writes an entry."""
  contestant = entry.contestant
  write_json(
    path,
    {
      'board': workloads_lib.VERSION,
      'method': contestant.method,
      'space': contestant.space.plain(),
      'protocol': dataclasses.asdict(entry.protocol),
      'workloads': {
        name: {
          'hash': workloads_lib.choose(name)[0].hash,
          'made_with': dict(entry.made_with[name]),
          **({'failed': entry.reasons[name]} if name in entry.reasons else {}),
          **curves.plain(records),
        }
        for name, records in entry.records.items()
      },
    },
  )


def read(path: pathlib.Path) -> Entry:
  """Reads an entry.

  Raises:
    SettingsError: If it is none, was changed, or is of another version.
  """
  found = read_json(path)
  try:
    space = spaces.parse(found['space'], f'{path}: its space')
    entry = Entry(
      runner.Contestant(found['method'], space),
      _protocol(found['protocol']),
      {name: curves.read(of) for name, of in found['workloads'].items()},
      {
        name: of['failed']
        for name, of in found['workloads'].items()
        if 'failed' in of
      },
      {name: of['made_with'] for name, of in found['workloads'].items()},
    )
  except errors.SettingsError as e:
    raise errors.SettingsError(f'{path} is refused. {e}') from e
  except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
    raise errors.SettingsError(f'{path} is no entry: {e!r}.') from e
  for name, of in found['workloads'].items():
    check_hash(path, name, of.get('hash'))
    form = rf'{name}-({runner.DEFAULT}|[1-4]?[0-9])-seed[0-9]{{1,9}}'
    if wrong := [r for r in entry.records[name] if not re.fullmatch(form, r)]:
      raise errors.SettingsError(f'{path} is no entry: got run {wrong[0]!r}.')
  return entry


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
  for path in sorted(folder.glob('*.json')):
    try:
      found.append(read(path))
    except errors.SettingsError as e:
      complaints.append(str(e))
  return found, complaints
