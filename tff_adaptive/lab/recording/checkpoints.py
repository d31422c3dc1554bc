"""Checkpoints of a run: one file per round, of which the last few are kept.

A file holds the arrays of a state in safetensors, by their paths, such as
`state/global_model_weights/trainable/0`. The metadata of its header are the
`format` and its version, the identity of the `run`, the `round`, and the
`sha256` of these and of the arrays.

`tff.program.FileProgramStateManager` is not used, for three reasons. It saves a
SavedModel, which is a program that runs when loaded, and a run's folder may
come from others. It traces that program for every state, which takes longer
than a round of a small task. And it detects neither damage nor the state of
another model.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Callable, Mapping
from typing import Any, Optional

import numpy as np
import safetensors
import safetensors.numpy
import tree

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

KEEP = 3
FORMAT = 'tff-adaptive checkpoint 4'
_Arrays = Mapping[str, np.ndarray]
_UNREADABLE = (
  safetensors.SafetensorError,
  OSError,
  MemoryError,
  OverflowError,
  ValueError,
  TypeError,
  KeyError,
)


class OtherStateError(errors.DamagedError):
  """Raised for an intact checkpoint of another method or model."""


def _digest(manifest: Mapping[str, str], arrays: _Arrays) -> str:
  """Returns the SHA-256 of a manifest and of arrays."""
  entries = sorted((k, v) for k, v in manifest.items() if k != 'sha256')
  digest = hashlib.sha256(json.dumps(entries).encode('utf-8'))
  for name, array in sorted(arrays.items()):
    kind = json.dumps([name, array.dtype.str, array.shape])
    digest.update(kind.encode('utf-8'))
    digest.update(array.reshape(-1).view(np.uint8).data)
  return digest.hexdigest()


def write(
  path: pathlib.Path, arrays: _Arrays, *, run: str, round_number: int
) -> None:
  """Writes arrays to a file atomically.

  Args:
    path: The file.
    arrays: Arrays of numbers or booleans, by name.
    run: The identity of the run.
    round_number: The round.

  Raises:
    RunError: If the file cannot be written; an existing file is kept.
  """
  stored = {
    name: np.asarray(array, array.dtype.newbyteorder('<'), order='C')
    for name, array in arrays.items()
  }
  manifest = {'format': FORMAT, 'run': run, 'round': str(round_number)}
  manifest['sha256'] = _digest(manifest, stored)
  try:
    content = safetensors.numpy.save(stored, manifest)
  except (safetensors.SafetensorError, KeyError, ValueError) as e:
    raise errors.RunError(f'{path} cannot be written: {e}.') from e
  files.write_atomically(path, content)


def read(
  path: pathlib.Path,
  *,
  run: Optional[str] = None,
  round_number: Optional[int] = None,
  like: Optional[_Arrays] = None,
) -> dict[str, np.ndarray]:
  """Reads the arrays of a file written by `write`.

  Args:
    path: The file.
    run: The expected identity of the run; by default any.
    round_number: The expected round; by default any.
    like: Arrays with the expected names, shapes and dtypes; by default any.

  Raises:
    DamagedError: If the file is damaged or not the expected checkpoint.
    FileNotFoundError: If the file does not exist.
  """
  try:
    files.check_regular(path)
    # In a memory-mapped file, a disk fault would kill the process.
    with safetensors.safe_open(path, 'np', backend='pread') as file:
      manifest = file.metadata() or {}
      arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
  except FileNotFoundError:
    raise
  except _UNREADABLE as e:
    raise errors.DamagedError(
      f'{path} cannot be read as a checkpoint: {errors.reason(e)}.'
    ) from e
  found = str(manifest.get('format'))
  wrong = None
  if found != FORMAT:
    wrong = (
      'is not a checkpoint of this version of tff-adaptive: its format is '
      f'{found!r:.60}, expected {FORMAT!r}'
    )
  elif _digest(manifest, arrays) != manifest.get('sha256'):
    wrong = 'is damaged: its contents do not match their checksum'
  elif run not in (None, manifest['run']):
    wrong = 'is a checkpoint of another run'
  elif str(round_number) not in ('None', manifest['round']):
    wrong = (
      f'is the checkpoint of round {manifest["round"]:.20}, contrary to its '
      'name'
    )
  if wrong is not None:
    raise errors.DamagedError(f'{path} {wrong}.')
  for name in () if like is None else {**like, **arrays}:
    there, wanted = (_kind(found.get(name)) for found in (arrays, like or {}))
    if there != wanted:
      raise OtherStateError(
        f'{path} holds the state of another method or model: {name:.200} is '
        f'{there or "missing"}, expected {wanted or "nothing"}.'
      )
  return arrays


def _kind(array: Optional[np.ndarray]) -> Optional[str]:
  if array is None:
    return None
  dtype = array.dtype.newbyteorder('=').name
  return f'{dtype} of shape {list(array.shape)}'


def named(state: Any, prefix: str) -> dict[str, np.ndarray]:
  """Returns the arrays of a state by their paths, after a prefix.

  Strings, such as those of tff.aggregators' privacy queries, are their bytes.
  """
  leaves = tree.flatten_with_path(state)
  arrays = {
    '/'.join([prefix, *map(str, path)]): np.frombuffer(leaf, np.uint8)
    if isinstance(leaf, bytes)
    else np.asarray(leaf)
    for path, leaf in leaves
  }
  if len(arrays) != len(leaves):
    raise ValueError('Two leaves of the state have the same path.')
  return arrays


def packed(structure: Any, prefix: str, arrays: _Arrays) -> Any:
  """Reverses `named`, with Python numbers where a structure has them."""
  leaves = zip(tree.flatten(structure), named(structure, prefix), strict=True)
  restored = [
    type(leaf)(arrays[name])
    if isinstance(leaf, (bool, int, float, bytes))
    else arrays[name][()]
    for leaf, name in leaves
  ]
  return tree.unflatten_as(structure, restored)


def paths(folder: pathlib.Path, prefix: str) -> dict[int, pathlib.Path]:
  """Returns the files of a kind by round, in ascending order."""
  pattern = re.compile(rf'{prefix}_(0|[1-9][0-9]{{0,15}})\.safetensors')
  there = folder.iterdir() if folder.is_dir() else ()
  found = {pattern.fullmatch(path.name): path for path in there}
  return dict(sorted((int(m[1]), path) for m, path in found.items() if m))


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The state of a run after a round.

  Attributes:
    round_number: The round.
    state: The state from which the run resumes.
    row_sums: Number and checksum of the rows up to that round, by table.
  """

  round_number: int
  state: Any
  row_sums: _Arrays


class Checkpoints:
  """The last few checkpoints of a run, by round."""

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    run: str = '',
    warn: Callable[[str], None] = print,
  ):
    """Creates the object; the folder need not exist.

    Args:
      folder: The folder of checkpoints, created with the first one.
      run: The identity of the run; checkpoints of other runs are rejected.
      warn: Called with a message about each damaged checkpoint.
    """
    self._folder = folder
    self._run = run
    self._warn = warn

  @property
  def rounds(self) -> list[int]:
    """Rounds that have a checkpoint, in ascending order."""
    return list(paths(self._folder, 'round'))

  def path(self, round_number: int) -> pathlib.Path:
    """Returns the file of a round's checkpoint."""
    return self._folder / f'round_{round_number}.safetensors'

  def save(
    self, state: Any, round_number: int, row_sums: Optional[_Arrays] = None
  ) -> None:
    """Saves the state after a round, then removes all but the last few.

    Args:
      state: A structure of arrays and numbers.
      round_number: The round.
      row_sums: Number and checksum of the rows up to that round, by table.

    Raises:
      RunError: If the checkpoint cannot be written; earlier ones are kept.
    """
    arrays = {**named(state, 'state'), **named(row_sums or {}, 'row_sums')}
    try:
      files.make_folder(self._folder)
      write(
        self.path(round_number),
        arrays,
        run=self._run,
        round_number=round_number,
      )
    except errors.RunError as e:
      kept = (
        f'the checkpoint of round {self.rounds[-1]} is kept'
        if self.rounds
        else 'there is no earlier checkpoint'
      )
      raise errors.RunError(
        f'The checkpoint of round {round_number} cannot be written; {kept}. {e}'
      ) from e
    for old in self.rounds[:-KEEP]:
      if not self.path(old).is_dir():  # A folder was not created by a run.
        self.path(old).unlink(missing_ok=True)

  def load_latest(
    self,
    structure: Any,
    restore: Callable[[Any], None] = lambda state: None,
    row_sums: Optional[_Arrays] = None,
  ) -> Optional[Checkpoint]:
    """Loads the latest intact checkpoint of this run.

    Later, damaged ones are set aside. If none is intact, all stay in place,
    because missing files may yet be restored.

    Args:
      structure: A state with the structure, shapes and dtypes of the saved
        ones.
      restore: Called with the loaded state. If it raises `DamagedError`,
        because something that the state refers to is damaged, the previous
        checkpoint is tried.
      row_sums: Arrays like those that `save` was given.

    Returns:
      The checkpoint, or `None` if none was ever saved.

    Raises:
      RunError: If no saved checkpoint is usable; its cause is the error of the
        latest.
    """
    sums = row_sums or {}
    like = {**named(structure, 'state'), **named(sums, 'row_sums')}
    damaged: dict[int, Exception] = {}
    for round_number in reversed(self.rounds):
      try:
        arrays = read(
          self.path(round_number),
          run=self._run,
          round_number=round_number,
          like=like,
        )
        state = packed(structure, 'state', arrays)
        restore(state)
      except FileNotFoundError:
        continue  # The running process has removed it meanwhile.
      except (errors.DamagedError, OSError) as e:
        damaged[round_number] = e
        continue
      for number, error in damaged.items():
        self._set_aside(number, errors.reason(error))
      return Checkpoint(round_number, state, packed(sums, 'row_sums', arrays))
    if damaged:
      latest = damaged[max(damaged)]
      raise errors.RunError(
        f'No checkpoint in {self._folder} can be used '
        f'({errors.reason(latest)}); restore the damaged files, or delete the '
        "run's folder to start over."
      ) from latest
    return None

  def _set_aside(self, round_number: int, reason: str) -> None:
    path = self.path(round_number)
    aside = path.with_name(f'damaged_{path.name}')
    try:
      path.replace(aside)
      where = f'was set aside as {aside.name}'
    except OSError:
      where = 'was left in place'  # Export may have read access only.
    self._warn(
      f'The checkpoint of round {round_number} cannot be used and {where}: '
      f'{reason}.'
    )
