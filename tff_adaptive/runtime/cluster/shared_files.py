"""Small files that are sent to other machines through Ray's object store."""

import dataclasses
import hashlib
import os
import pathlib
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import ray

from tff_adaptive.runtime import failures

# Total size. The files stay in the object store for the whole run, beside its
# weights; by default a store has 30 % of its machine's memory, 600 MB of 2 GB.
MAX_BYTES = 256 << 20


@dataclasses.dataclass(frozen=True)
class _File:
  """A file in the object store.

  Attributes:
    name: Path relative to the folder, POSIX style.
    digest: SHA-256 of the content, in hexadecimal.
    content: Reference to the content, a uint8 array [bytes].
  """

  name: str
  digest: str
  content: ray.ObjectRef


@dataclasses.dataclass(frozen=True)
class SharedFiles:
  """Files in Ray's object store, kept there as long as this object lives."""

  files: Sequence[_File]

  def are_in(self, folder: pathlib.Path) -> bool:
    """Returns whether a folder has files of all these names; reads none."""
    return all((folder / file.name).is_file() for file in self.files)

  def write(self) -> pathlib.Path:
    """Writes the files to this machine's cache, unless they are there.

    Returns:
      Their folder, named by a hash of their contents, in `tff_adaptive` in
      `XDG_CACHE_HOME` or ~/.cache.

    Raises:
      RuntimeFailure: If a file cannot be written, or arrives damaged.
    """
    base = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    listing = '\n'.join(f'{file.digest} {file.name}' for file in self.files)
    key = hashlib.sha256(listing.encode()).hexdigest()[:16]
    folder = pathlib.Path(base) / 'tff_adaptive' / key
    try:
      for file in self.files:
        path = folder / file.name
        if not path.is_file() or _digest_of(path) != file.digest:
          _write(path, file)
    except OSError as e:
      raise failures.RuntimeFailure(
        "The task's files are missing on this machine and could not be copied "
        f'to it: {e}.'
      ) from e
    return folder


def share(folder: pathlib.Path, patterns: Iterable[str]) -> SharedFiles | None:
  """Puts files into the object store of the connected cluster.

  Args:
    folder: Their folder.
    patterns: Glob patterns of their paths in the folder.

  Returns:
    The files; `None` if there are none or they exceed `MAX_BYTES` in total.
  """
  paths = sorted(
    {path for pattern in patterns for path in folder.glob(pattern)}
  )
  paths = [path for path in paths if path.is_file()]
  if not paths or sum(path.stat().st_size for path in paths) > MAX_BYTES:
    return None
  found = []
  for path in paths:
    content = np.fromfile(path, np.uint8)
    name = path.relative_to(folder).as_posix()
    digest = hashlib.sha256(content.data).hexdigest()
    found.append(_File(name, digest, ray.put(content)))
  return SharedFiles(found)


def _digest_of(path: pathlib.Path) -> str:
  with open(path, 'rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def _write(path: pathlib.Path, file: _File) -> None:
  """Writes a file atomically, as another actor may write the same one."""
  content: Any = ray.get(file.content)
  if hashlib.sha256(content).hexdigest() != file.digest:
    raise failures.RuntimeFailure(
      f'{file.name} was damaged in transfer from the driver.'
    )
  path.parent.mkdir(parents=True, exist_ok=True)
  handle, aside = tempfile.mkstemp(prefix=path.name, dir=path.parent)
  try:
    with os.fdopen(handle, 'wb') as out:
      content.tofile(out)
      out.flush()
      os.fsync(out.fileno())
    os.replace(aside, path)
  except BaseException:
    os.unlink(aside)
    raise
