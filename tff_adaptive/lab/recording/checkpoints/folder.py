"""Checkpoints of a run: one file per round, of which the last few are kept."""

import dataclasses
import pathlib
import re
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Optional

import numpy as np
import tree

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording.checkpoints import files as checkpoint_files

KEEP = 3


# Checksums of a table's rows, one per row.
_ROW_SUMS = checkpoint_files.Spec('uint32', None)


@dataclasses.dataclass(frozen=True)
class Checkpoint:
  """The state of a run after a round.

  Attributes:
    round_number: The round.
    state: The state from which the run resumes.
    row_sums: Checksums of the rows up to that round, by table.
  """

  round_number: int
  state: Any
  row_sums: Mapping[str, np.ndarray]


class Checkpoints:
  """The last few checkpoints of a run, by round."""

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    run: str = '',
    keep: int = KEEP,
    warn: Callable[[str], None] = print,
  ):
    """Creates the object; the folder need not exist.

    Args:
      folder: The folder of checkpoints, created with the first one.
      run: The identity of the run; checkpoints of other runs are rejected.
      keep: Number of latest checkpoints to keep.
      warn: Called with a message about each damaged checkpoint.
    """
    self._folder = folder
    self._run = run
    self._keep = keep
    self._warn = warn

  @property
  def rounds(self) -> list[int]:
    """Rounds that have a checkpoint, in ascending order."""
    if not self._folder.is_dir():
      return []
    names = [p.name for p in self._folder.iterdir()]
    pattern = r'round_(0|[1-9][0-9]{0,15})\.safetensors'
    found = [re.fullmatch(pattern, name) for name in names]
    return sorted(int(match.group(1)) for match in found if match)

  def path(self, round_number: int) -> pathlib.Path:
    """Returns the file of a round's checkpoint."""
    return self._folder / f'round_{round_number}.safetensors'

  def save(
    self,
    state: Any,
    round_number: int,
    row_sums: Optional[Mapping[str, np.ndarray]] = None,
  ) -> None:
    """Saves the state after a round, then removes the oldest beyond `keep`.

    Args:
      state: A structure of arrays, numbers and strings.
      round_number: The round.
      row_sums: Checksums of the rows up to that round, by table.

    Raises:
      RunError: If the checkpoint cannot be written; earlier ones are kept.
    """
    arrays = _named(state)
    for table, sums in (row_sums or {}).items():
      arrays[f'row_sums/{table}'] = np.asarray(sums, np.uint32)
    try:
      files.make_folder(self._folder)
      checkpoint_files.write(
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
    for old in self.rounds[: -self._keep]:
      if not self.path(old).is_dir():  # A folder was not created by a run.
        self.path(old).unlink(missing_ok=True)

  def load_latest(
    self,
    structure: Any,
    restore: Callable[[Any], None] = lambda state: None,
    tables: tuple[str, ...] = (),
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
      tables: Tables whose rows have checksums in the checkpoint.

    Returns:
      The checkpoint, or `None` if none was ever saved.

    Raises:
      RunError: If no saved checkpoint is usable; its cause is the error of the
        latest.
    """
    specs = {
      name: checkpoint_files.Spec.of(leaf)
      for name, leaf in _named(structure).items()
    }
    specs |= {f'row_sums/{table}': _ROW_SUMS for table in tables}
    damaged: dict[int, Exception] = {}
    for round_number in reversed(self.rounds):
      path = self.path(round_number)
      try:
        arrays = checkpoint_files.read(
          path, run=self._run, round_number=round_number, specs=specs
        )
        state = _packed(structure, arrays)
        restore(state)
      except FileNotFoundError:
        continue  # The running process has removed it meanwhile.
      except (errors.DamagedError, OSError) as e:
        damaged[round_number] = e
        continue
      for number, error in damaged.items():
        self._set_aside(number, errors.reason(error))
      if names := checkpoint_files.not_finite(arrays):
        self._warn(
          f'The checkpoint of round {round_number} holds NaN or infinity, as '
          f'the run did when it was saved, in {", ".join(names):.200}.'
        )
      sums = {table: arrays[f'row_sums/{table}'] for table in tables}
      return Checkpoint(round_number, state, sums)
    if damaged:
      latest = damaged[max(damaged)]
      raise errors.RunError(
        f'No checkpoint in {self._folder} can be used '
        f'({errors.reason(latest)}); restore the damaged files, or delete the '
        "run's folder to start over."
      ) from latest
    for path in self._folder.glob('round_*.state'):
      raise errors.RunError(
        f'{path} was written by an earlier version of this program, whose runs '
        'cannot be resumed; finish the run with that version, or delete the '
        "run's folder to start over."
      )
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


def _named(state: Any) -> dict[str, np.ndarray]:
  """Returns the arrays of a state by their paths."""
  leaves = tree.flatten_with_path(state)
  arrays = {
    '/'.join(['state', *map(str, path)]): np.asarray(leaf)
    for path, leaf in leaves
  }
  if len(arrays) != len(leaves):
    raise ValueError('Two leaves of the state have the same path.')
  return arrays


def _packed(structure: Any, arrays: Mapping[str, np.ndarray]) -> Any:
  """Packs arrays into a structure, with Python numbers where it has them."""
  leaves = zip(tree.flatten(structure), _named(structure), strict=True)
  restored = [
    type(leaf)(arrays[name])
    if isinstance(leaf, (bool, int, float))
    else arrays[name][()]
    for leaf, name in leaves
  ]
  return tree.unflatten_as(structure, restored)
