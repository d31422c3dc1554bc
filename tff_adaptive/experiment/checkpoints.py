"""Checkpoints of a run: TFF's program states, with digests beside them.

`tff.program.FileProgramStateManager` writes a state aside and renames it. What
is added here is what a run that may be killed at any moment needs on top:
digests, so that a damaged state is recognised and the one before it used;
unfinished leftovers are removed; and a way to call the manager from code that
is not asynchronous, also where an event loop is already running.
"""

import asyncio
import concurrent.futures
import hashlib
import json
import pathlib
import re
import shutil
from collections.abc import Callable
from collections.abc import Coroutine
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.experiment import errors
from tff_adaptive.experiment import files

_PREFIX = 'round_'
_DIGESTS = 'digests.json'


def _wait_for(coroutine: Coroutine) -> Any:
  """Runs a coroutine in an event loop of its own, in a thread of its own.

  `asyncio.run` here would fail in a notebook, whose loop is already running.
  """
  with concurrent.futures.ThreadPoolExecutor(1) as pool:
    return pool.submit(asyncio.run, coroutine).result()


def _digests(folder: pathlib.Path) -> dict[str, str]:
  digests = {}
  for path in sorted(folder.rglob('*')):
    if path.is_file() and path.name != _DIGESTS:
      digest = hashlib.sha256(path.read_bytes()).hexdigest()
      digests[path.relative_to(folder).as_posix()] = digest
  return digests


class Checkpoints:
  """The last few states of a run, by round."""

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    keep: int = 3,
    warn: Callable[[str], None] = print,
  ):
    """Opens the folder; what an interrupted writer left there is removed.

    Args:
      folder: Where to keep states; created when the first is saved.
      keep: How many to keep, the latest ones.
      warn: Is told, in a sentence, when a state turns out to be damaged.
    """
    self._folder = folder
    self._keep = keep
    self._warn = warn
    if folder.is_dir():
      for path in folder.glob(f'{_PREFIX}*'):
        # The digests are written last: without them the writer was killed.
        if not (path / _DIGESTS).exists():
          shutil.rmtree(path, ignore_errors=True)

  @property
  def rounds(self) -> list[int]:
    """Rounds of which there is a state, in ascending order."""
    if not self._folder.is_dir():
      return []
    names = [p.name for p in self._folder.iterdir()]
    found = [re.fullmatch(rf'{_PREFIX}(\d+)', name) for name in names]
    return sorted(int(match.group(1)) for match in found if match)

  def _path(self, round_number: int) -> pathlib.Path:
    return self._folder / f'{_PREFIX}{round_number}'

  def _manager(self) -> tff.program.FileProgramStateManager:
    return tff.program.FileProgramStateManager(
      str(self._folder), prefix=_PREFIX, keep_total=0
    )

  def _is_whole(self, round_number: int) -> bool:
    path = self._path(round_number)
    try:
      expected = json.loads((path / _DIGESTS).read_text(encoding='utf-8'))
    except (OSError, ValueError):
      return False
    return expected == _digests(path)

  def save(self, state: Any, round_number: int) -> None:
    """Saves the state after a round, then drops the oldest beyond `keep`.

    Raises:
      RunError: If it cannot be written; earlier states are kept.
    """
    path = self._path(round_number)
    if path.exists():  # Of a run that was killed before its digests.
      shutil.rmtree(path)
    try:
      _wait_for(self._manager().save(state, round_number))
      text = json.dumps(_digests(path))
      files.write_atomically(path / _DIGESTS, text.encode('utf-8'))
    except (OSError, tf.errors.OpError) as e:
      raise errors.RunError(
        f'The checkpoint of round {round_number} cannot be written to '
        f'{self._folder}: {str(e).splitlines()[0]}.'
      ) from e
    for old in self.rounds[: -self._keep]:
      # The digests go first: a folder half removed is never taken for whole.
      (self._path(old) / _DIGESTS).unlink(missing_ok=True)
      shutil.rmtree(self._path(old), ignore_errors=True)

  def load_latest(self, structure: Any) -> Optional[tuple[int, Any]]:
    """The latest state that is whole, with its round.

    Args:
      structure: A state of the same structure, as `initialize` gives.

    Returns:
      The round and the state, or `None` if none was ever saved.

    Raises:
      RunError: If all that were saved are damaged.
    """
    rounds = self.rounds
    for round_number in reversed(rounds):
      if self._is_whole(round_number):
        state = _wait_for(self._manager().load(round_number, structure))
        return round_number, state
      path = self._path(round_number)
      aside = path.with_name(f'damaged_{path.name}')
      shutil.rmtree(aside, ignore_errors=True)
      path.rename(aside)
      self._warn(
        f'The checkpoint of round {round_number} is damaged; it was set '
        f'aside as {aside.name} and is not used.'
      )
    if rounds:
      raise errors.RunError(
        f"No checkpoint in {self._folder} can be read; delete the run's "
        'folder to start afresh.'
      )
    return None
