"""Entries of the board, as files.

An entry is a compressed NumPy file: the evaluations and costs of every run, and
a text of JSON with method, space, protocol, versions and hashes of workloads.

Runs are named WORKLOAD-SETTING-seedN, SETTING being 'default' or a trial's
number, and such a name determines all of a run's flags. Imports no TensorFlow.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files

SUFFIX = '.npz'
# By version of the board.
FOLDERS = {1: 'entries', 2: 'entries_2'}
DEFAULT = 'default'
_NAME = rf'(\w+)-({DEFAULT}|[1-4]?[0-9])-seed([0-9]{{1,9}})'


def name_of(workload: str, setting: object, seed: int) -> str:
  """Returns the name of a run."""
  return f'{workload}-{setting}-seed{seed}'


def split(name: str) -> tuple[str, str, int]:
  """Returns workload, setting and seed of a run's name.

  Raises:
    ValueError: If it is no such name.
  """
  found = re.fullmatch(_NAME, name)
  if found is None:
    raise ValueError(f'got run {name!r}')
  return found[1], found[2], int(found[3])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protocol:
  """How much an entry is tuned and repeated.

  Attributes:
    trials: Per workload, on every tuning seed.
    tuning_seeds: Not among those that are reported.
    seeds: Fresh ones, for every setting that tuning selects.
    budgets: Numbers of trials for which results are published.
    in_blocks: Whether a budget of k looks at each k successive trials, rather
      than at any k.
  """

  trials: int
  tuning_seeds: list[int]
  seeds: list[int]
  budgets: list[int]
  in_blocks: bool = False

  def shares(self, criteria: Sequence[float], budget: int) -> np.ndarray:
    """Returns how often a budget selects each trial, [trials]."""
    select = scoring.block_selection if self.in_blocks else scoring.selection
    return select(criteria, budget)

  def selected(self, criteria: Sequence[float]) -> list[int]:
    """Returns the trials that some published budget selects."""
    ever = sum(self.shares(criteria, budget) for budget in self.budgets)
    return [int(trial) for trial in np.flatnonzero(ever)]

  def criteria(
    self, records: Mapping[str, records_lib.Record], workload: str
  ) -> list[float]:
    """Returns each trial's selection criterion, its mean over tuning seeds."""
    each = [
      [records[name_of(workload, t, s)].criterion for s in self.tuning_seeds]
      for t in range(self.trials)
    ]
    return [float(mean) for mean in np.mean(each, axis=1)]


# By version of the board.
PROTOCOLS = {
  1: Protocol(
    trials=16,
    tuning_seeds=[1000],
    seeds=[1, 2, 3, 4, 5],
    budgets=[1, 2, 4, 8, 16],
  ),
  2: Protocol(
    trials=32,
    tuning_seeds=[1000, 1001],
    seeds=[*range(1, 11)],
    budgets=[4, 8, 16, 32],
    in_blocks=True,
  ),
}
QUICK = Protocol(
  trials=8, tuning_seeds=[1000], seeds=[1, 2], budgets=[1, 2, 4, 8]
)


@dataclasses.dataclass(frozen=True)
class Submission:
  """A method with its search space.

  Attributes:
    method: The method's name.
    space: Its space.
  """

  method: str
  space: spaces.Space

  @property
  def label(self) -> str:
    """The name of its folder; another space is another submission."""
    text = json.dumps([workloads_lib.VERSION, dataclasses.asdict(self.space)])
    digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
    return f'{self.method}-{digest}'


@dataclasses.dataclass(frozen=True, eq=False)
class Entry:
  """The runs of a submission.

  Attributes:
    submission: Method and space.
    protocol: How much it was tuned and repeated.
    records: Runs by workload and name.
    made: By workload its hash, what it was made with, and under 'failed' the
      first reason why runs failed.
  """

  submission: Submission
  protocol: Protocol
  records: Mapping[str, Mapping[str, records_lib.Record]]
  made: Mapping[str, Mapping[str, Any]]

  @property
  def name(self) -> str:
    """The method's name; an entry of --quick says so."""
    quick = ' (quick)' if self.protocol == QUICK else ''
    return self.submission.method + quick

  @property
  def reasons(self) -> dict[str, str]:
    """Why runs failed, by workload."""
    return {w: of['failed'] for w, of in self.made.items() if 'failed' in of}

  @property
  def makers(self) -> list[str]:
    """Descriptions of what made the runs, each once."""
    described = (
      ', '.join(
        f'{what} {version}' for what, version in of['made_with'].items()
      )
      for of in self.made.values()
    )
    return list(dict.fromkeys(described))

  def shares(self, workload: str, budget: int) -> dict[Any, float]:
    """Returns how often tuning with a budget selects which settings.

    With a budget of 0 these are the defaults, otherwise trials.
    """
    if not budget:
      return {DEFAULT: 1.0}
    criteria = self.protocol.criteria(self.records[workload], workload)
    shares = enumerate(self.protocol.shares(criteria, budget))
    return {trial: float(share) for trial, share in shares if share}

  def tuned(
    self, workload: str, budget: int, measure: str
  ) -> list[scoring.Setting]:
    """Returns the settings that tuning with a budget selects; see `shares`."""
    return [
      scoring.Setting(share, self._runs(workload, setting, measure))
      for setting, share in self.shares(workload, budget).items()
    ]

  def repeats(self, workload: str, setting: object) -> list[records_lib.Record]:
    """Returns the runs of a setting on the fresh seeds."""
    return [
      self.records[workload][name_of(workload, setting, seed)]
      for seed in self.protocol.seeds
    ]

  # Several tables need them, as long as the program runs.
  @functools.cache  # noqa: B019
  def _runs(self, workload: str, setting: object, measure: str) -> scoring.Runs:
    return records_lib.joined(self.repeats(workload, setting), measure)

  def merged(self, older: 'Entry') -> 'Entry':
    """Returns this entry with an older one's other workloads."""
    return dataclasses.replace(
      self,
      records={**older.records, **self.records},
      made={**older.made, **self.made},
    )


def write(path: pathlib.Path, entry: Entry) -> None:
  """Writes an entry."""
  about = {
    'board': workloads_lib.VERSION,
    **dataclasses.asdict(entry.submission),
    'protocol': dataclasses.asdict(entry.protocol),
    'workloads': entry.made,
  }
  known = {n: r for of in entry.records.values() for n, r in of.items()}
  records_lib.write(path, about, known)


def read(path: pathlib.Path) -> Entry:
  """Reads an entry.

  Raises:
    SettingsError: If it is none, is damaged, or is of another version.
  """
  with files.reading(path, 'an entry of the board'):
    about, found = records_lib.read(path)
    check_version(path, about)
    method = about['method']
    space = spaces.parse(about['space'], f'The space of {path}', method)
    made = about['workloads']
    records: dict[str, dict[str, records_lib.Record]] = {w: {} for w in made}
    for name, record in found.items():
      workload, *_ = split(name)
      if workload not in made:
        raise ValueError(f'got run {name!r}')
      records[workload][name] = record
    entry = Entry(
      Submission(method, space),
      Protocol(**about['protocol']),
      records,
      made,
    )
    for workload, of in made.items():
      check_hash(path, workload, of['hash'])
      of['made_with'] = dict(of['made_with'])
      for budget in (0, *entry.protocol.budgets):
        entry.tuned(workload, budget, workloads_lib.HEADLINE)
    return entry


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
  known = workloads_lib.TABLE.get(workload)
  if known is None or found != known.hash:
    raise errors.SettingsError(
      f'{path} has runs on another version of the workload {workload}: run '
      'main.py board again.'
    )


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
