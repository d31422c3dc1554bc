"""Recorders of runs as release managers of TFF's programs."""

import dataclasses
import hashlib
import pathlib
from typing import Any

import numpy as np
import tensorflow_federated as tff
import tree

from tff_adaptive.lab.recording import hooks


class HookReleaseManager(tff.program.ReleaseManager[Any, int]):
  """A `tff.program.ReleaseManager` that hands what is released to a hook.

    mlflow = trackers.MLflow('sqlite:///mlflow.db')
    with releases.HookReleaseManager(
      mlflow, folder='runs/mine', total_rounds=100
    ) as manager:
      await manager.release(metrics, round_number)

  Names of nested values are joined with slashes; only single numbers are
  handed on.
  """

  def __init__(
    self,
    hook: Any,
    *,
    folder: Any,
    total_rounds: int,
    **more: Any,
  ):
    """Tells the hook that the program starts.

    Args:
      hook: The hook.
      folder: A folder for what the hook keeps; its name is the run's.
      total_rounds: The last round.
      **more: Further attributes of `hooks.Start`, such as `settings`.
    """
    self._hook = hook
    self._last = 0
    path = pathlib.Path(folder)
    # Without an identity of its own a program is told apart by its folder.
    place = path.resolve().as_posix().encode('utf-8', 'surrogateescape')
    more.setdefault('identity', hashlib.sha256(place).hexdigest())
    self._hook.start(
      hooks.Start(folder=path, total_rounds=total_rounds, **more)
    )

  async def release(self, value: Any, key: int) -> None:
    """Tells the hook of a round.

    Args:
      value: A structure of metrics, which may hold value references.
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
    """Tells the hook of the end."""
    self._hook.end(
      hooks.End(
        status=hooks.FINISHED if error is None else hooks.FAILED,
        round_number=self._last,
        reason=None if error is None else str(error),
      )
    )


def _plain(value: Any) -> Any:
  """Takes a structure apart down to what `tree` knows."""
  if dataclasses.is_dataclass(value) and not isinstance(value, type):
    return {
      f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)
    }
  return value
