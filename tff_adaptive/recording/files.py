"""A run's folder: whole files or none, and one writer at a time."""

import csv
import errno
import fcntl
import io
import json
import os
import pathlib
import re
import sys
import tempfile
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import IO
from typing import Optional
from typing import Union

import numpy as np

from tff_adaptive import errors


def write_atomically(
  path: pathlib.Path, content: Union[bytes, Iterable[bytes]]
) -> None:
  """Writes a file so that whoever looks sees the old one or the new one.

  Args:
    path: The file.
    content: What it is to hold, whole or in pieces.

  Raises:
    RunError: If the file cannot be written; the old one is kept.
  """
  aside = path.with_name(f'.{path.name}.{os.getpid()}')
  try:
    try:
      with open(aside, 'wb') as file:
        file.writelines([content] if isinstance(content, bytes) else content)
        file.flush()
        os.fsync(file.fileno())
      os.replace(aside, path)
      _sync_folder(path.parent)
    finally:
      aside.unlink(missing_ok=True)
  except OSError as e:
    raise errors.RunError(
      f'{path} cannot be written: {e.strerror or e}.'
    ) from e


def _sync_folder(folder: pathlib.Path) -> None:
  """Makes a file's new name last: it is the folder that knows it."""
  descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def remove_leftovers(folder: pathlib.Path) -> None:
  """Removes what writers that were killed have left aside.

  Only for whoever keeps other writers out of the folder.
  """
  for path in folder.glob('.*.*'):
    if re.fullmatch(r'\..+\.\d+', path.name):
      path.unlink(missing_ok=True)


def check_writable(
  folder: pathlib.Path, flag: str = '--root_output_dir'
) -> None:
  """Finds out whether files can be written below `folder`; leaves no trace.

  Args:
    folder: Which need not exist.
    flag: What names it on the command line.

  Raises:
    SettingsError: If they cannot.
  """
  folder = folder.absolute()
  made: list[pathlib.Path] = []
  try:
    made += [p for p in (folder, *folder.parents) if not p.exists()]
    try:
      folder.mkdir(parents=True, exist_ok=True)
      with tempfile.TemporaryFile(dir=folder):
        pass
    finally:
      for path in made:
        if path.is_dir():
          path.rmdir()
  except OSError as e:
    raise errors.SettingsError(
      f'The output folder {folder} cannot be written ({e.strerror or e}); '
      f'choose another with {flag}.'
    ) from e


def make_folder(folder: pathlib.Path) -> None:
  """Makes a folder and those above it, unless they are there.

  Raises:
    RunError: If it cannot be made.
  """
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as e:
    raise errors.RunError(
      f'{folder} cannot be written: {e.strerror or e}.'
    ) from e


class RunFolder:
  """`{root_output_dir}/{experiment_name}` and the names of what is in it."""

  def __init__(self, path: pathlib.Path):
    self.path = pathlib.Path(path)
    self.metrics = self.path / 'metrics.csv'
    self.sweep = self.path / 'sweep.sqlite'  # If it is a sweep's folder.
    self.step_sizes = self.path / 'step_sizes.csv'
    self.hparams = self.path / 'hparams.json'
    self.checkpoints = self.path / 'checkpoints'
    self.row_sums = self.checkpoints / 'rows.sums'
    self.step_sums = self.checkpoints / 'steps.sums'
    self.tensorboard = self.path / 'tensorboard'
    self.curves = self.path / 'curves.png'
    self.step_figure = self.path / 'step_sizes.png'
    self._lock: Optional[IO[str]] = None

  def __enter__(self) -> 'RunFolder':
    """Creates the folder and keeps other processes out of it.

    Raises:
      SettingsError: If it cannot be created, or another process is at work
        in it.
    """
    try:
      self.path.mkdir(parents=True, exist_ok=True)
      lock = open(self.path / '.lock', 'w', encoding='utf-8')
    except OSError as e:
      raise errors.SettingsError(
        f'The output folder {self.path} cannot be written '
        f'({e.strerror or e}); choose another with --root_output_dir.'
      ) from e
    try:
      fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as e:
      lock.close()
      raise errors.SettingsError(
        f'Another process is running in {self.path}; wait for it, or choose '
        'another --experiment_name.'
      ) from e
    self._lock = lock
    for place in (self.path, self.checkpoints):
      remove_leftovers(place)
    return self

  def __exit__(self, *exc_info: object) -> None:
    if self._lock is not None:
      self._lock.close()

  def is_busy(self) -> bool:
    """Whether another process is at work in the folder."""
    try:
      with open(self.path / '.lock', encoding='utf-8') as lock:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
      return True
    except OSError:
      return False  # Whoever enters it is told what is wrong.
    return False

  def write_hparams(self, hparams: Mapping[str, Any]) -> None:
    """Writes hparams.json."""
    text = json.dumps(hparams, indent=2) + '\n'
    write_atomically(self.hparams, text.encode('utf-8'))

  def read_hparams(self) -> Optional[dict[str, Any]]:
    """What hparams.json says; `None` if there is none.

    Raises:
      SettingsError: If the file is not one that a run wrote.
    """
    try:
      hparams = json.loads(self.hparams.read_text(encoding='utf-8'))
    except FileNotFoundError:
      return None
    except (OSError, ValueError, RecursionError) as e:
      raise errors.SettingsError(
        f"{self.hparams} cannot be read as a run's settings ({e}); delete "
        f'{self.path} or choose another --experiment_name.'
      ) from e
    if not isinstance(hparams, dict) or not isinstance(
      hparams.get('settings'), dict
    ):
      raise errors.SettingsError(
        f"{self.hparams} does not hold a run's settings; delete "
        f'{self.path} or choose another --experiment_name.'
      )
    return hparams


# To whoever finds a run's file damaged.
ADVICE = "restore it or delete the run's folder"
_NUMBER = r'[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[-+]?[0-9]+)?|[-+]?inf|nan'


def _text(value: Any) -> str:
  """A value as the CSV shows it: the shortest digits that give it back."""
  if value is None:
    return ''
  if isinstance(value, np.generic) and not isinstance(value, np.floating):
    value = value.item()
  return str(int(value) if isinstance(value, bool) else value)


class RowFile:
  """A CSV file with one row a round, whose first column is the round.

  TFF's `CSVFileReleaseManager` was considered and does not fit: it appends a
  row in place, so that a run killed in between leaves half a line that its next
  start cannot read, numbers are not written in columns of a stable order once
  rows differ in what they report, and every new column is a read of the whole
  file through the event loop. Here a row is one write of one line; whatever
  else changes the file (new columns, rows dropped at a resume) writes it aside
  and renames it.
  """

  # Columns that hold no number, and how many rounds a row may be after the one
  # before.
  _WORDS: frozenset[str] = frozenset()
  _MAY_BE_LATER: tuple[int, ...] = (1,)

  def __init__(self, path: pathlib.Path):
    """Reads the rows that are there; a last, unfinished line is left out.

    Raises:
      RunError: If the file is not one that a run wrote.
    """
    self.path = path
    self.columns: list[str] = []
    self.rows: list[dict[str, str]] = []
    try:
      text = path.read_bytes().decode('utf-8')
    except FileNotFoundError:
      return
    except (OSError, UnicodeDecodeError) as e:
      raise errors.RunError(f'{path} cannot be read: {e}; {ADVICE}.') from e
    complete = text[: text.rfind('\n') + 1]
    try:
      lines = list(csv.reader(io.StringIO(complete), strict=True))
    except csv.Error as e:
      raise errors.RunError(
        f'{path} is no whole CSV file: {e}; {ADVICE}.'
      ) from e
    if not lines:
      return
    self.columns = lines[0]
    if self.columns[:1] != ['round']:
      raise errors.RunError(
        f'{path} was not written by a run: its first column is not "round"; '
        f'{ADVICE}.'
      )
    for number, line in enumerate(lines[1:], start=2):
      row = dict(zip(self.columns, line, strict=False))
      if len(row) != len(line) or not self._may_follow(row):
        raise errors.RunError(f'{path} is damaged in line {number}; {ADVICE}.')
      self.rows.append(row)

  @property
  def numbers(self) -> list[dict[str, float]]:
    """The rows as numbers, empty cells left out."""
    return [{k: float(v) for k, v in row.items() if v} for row in self.rows]

  def _may_follow(self, row: Mapping[str, str]) -> bool:
    """Whether a row has a number in every cell, and the next round's."""
    if len(row) != len(self.columns) or not re.fullmatch(
      '[0-9]{1,9}', row['round']
    ):
      return False
    if self.rows:
      later = int(row['round']) - int(self.rows[-1]['round'])
      if later not in self._MAY_BE_LATER:
        return False
    return all(
      re.fullmatch(_NUMBER, cell)
      for name, cell in row.items()
      if cell and name not in self._WORDS
    )

  def drop_after(self, last_round: int) -> int:
    """Drops the rows of later rounds; returns how many there were."""
    kept = [row for row in self.rows if int(row['round']) <= last_round]
    dropped = len(self.rows) - len(kept)
    # Also when nothing is dropped: an unfinished line has to go.
    self.rows = kept
    if self.columns:
      self._rewrite()
    return dropped

  def append(self, row: Mapping[str, Any]) -> None:
    """Adds a row; columns that it lacks stay empty.

    Columns not seen before are added in the order of the contract: the round,
    training, validation and test metrics, then what the round cost.
    """
    # Rows are many and names few: without `intern` every row holds its own.
    texts = {sys.intern(name): _text(value) for name, value in row.items()}
    self.rows.append(texts)
    if self._add_columns(texts):
      self._rewrite()
      return
    line = self._line(texts.get(name, '') for name in self.columns)
    data = line.encode('utf-8')
    try:
      with open(self.path, 'ab', buffering=0) as file:
        # A disk that is nearly full takes a part and says so here only.
        written = file.write(data)
        if written != len(data):
          raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as e:
      raise self._error(e) from e

  def _error(self, error: OSError) -> errors.RunError:
    return errors.RunError(
      f'{self.path} cannot be written: {error.strerror or error}.'
    )

  def sync(self) -> None:
    """Makes the rows last, whatever happens to the machine.

    Raises:
      RunError: If they cannot be written.
    """
    try:
      with open(self.path, 'rb') as file:
        os.fsync(file.fileno())
    except OSError as e:
      raise self._error(e) from e

  def extend_last(self, values: Mapping[str, Any]) -> None:
    """Adds values to the last row."""
    texts = {name: _text(value) for name, value in values.items()}
    self.rows[-1] = self.rows[-1] | texts
    self._add_columns(texts)
    self._rewrite()

  def _add_columns(self, names: Iterable[str]) -> bool:
    new = [name for name in names if name not in self.columns]
    self.columns = sorted(self.columns + new, key=_place)
    return bool(new)

  def _line(self, cells: Iterable[str]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator='\n').writerow(cells)
    return buffer.getvalue()

  def _rewrite(self) -> None:
    lines = [self._line(self.columns)]
    for row in self.rows:
      lines.append(self._line(row.get(name, '') for name in self.columns))
    write_atomically(self.path, ''.join(lines).encode('utf-8'))


_GROUPS = (
  'round',
  'train',
  'validation',
  'test',
  'clients',
  'update',
  'step_size',
  'seconds',
  'bytes_down',
  'bytes_up',
)


def _place(column: str) -> tuple[int, int]:
  """Sorts columns by group and keeps the order within a group, loss first."""
  group, _, name = column.partition('/')
  place = _GROUPS.index(group) if group in _GROUPS else len(_GROUPS)
  return place, 0 if name == 'loss' else 1
