"""Hooks as release managers of TFF programs."""

import dataclasses
import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_adaptive.lab.recording import hooks


class HookReleaseManager(tff.program.ReleaseManager[Any, int]):
  """A `tff.program.ReleaseManager` that passes released values to a hook.

    mlflow = trackers.MLflow('sqlite:///mlflow.db')
    with releases.HookReleaseManager(
      mlflow, folder='runs/mine', total_rounds=100
    ) as manager:
      await manager.release(metrics, round_number)

  Names of nested values are joined with slashes; only scalars are passed on.
  """

  def __init__(
    self,
    hook: Any,
    *,
    folder: Any,
    total_rounds: int,
    **more: Any,
  ):
    """Notifies the hook of the start of the program.

    Args:
      hook: The hook.
      folder: A folder for the hook's files; the run has its name.
      total_rounds: The last round.
      **more: Further attributes of `hooks.Start`, such as `settings`.
    """
    self._hook = hook
    self._last = 0
    path = pathlib.Path(folder)
    # A program without an identity is identified by its folder.
    place = path.resolve().as_posix().encode('utf-8', 'surrogateescape')
    more.setdefault('identity', hashlib.sha256(place).hexdigest())
    self._hook.start(
      hooks.Start(folder=path, total_rounds=total_rounds, **more)
    )

  async def release(self, value: Any, key: int) -> None:
    """Notifies the hook of a round.

    Args:
      value: A structure of metrics, which may contain value references.
      key: The round.
    """
    found = await tff.program.materialize_value(value)
    row: dict[str, Any] = {'round': int(key)}
    for path, leaf in tree.flatten_with_path(_plain(found)):
      number = np.asarray(leaf)
      if not number.shape and number.dtype.kind in 'biuf':
        row['/'.join(map(str, path)) or 'value'] = number[()]
    self._last = row['round']
    self._hook.round(hooks.Round(row=row))

  def __enter__(self) -> 'HookReleaseManager':
    return self

  def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
    """Notifies the hook of the end."""
    self._hook.end(
      hooks.End(
        status=hooks.FINISHED if error is None else hooks.FAILED,
        round_number=self._last,
        reason=None if error is None else str(error),
      )
    )


def _plain(value: Any) -> Any:
  """Converts a dataclass and those in its fields to dictionaries."""
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {
      f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)
    }
  return value
