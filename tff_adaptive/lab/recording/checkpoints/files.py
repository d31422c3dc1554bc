"""The file format of checkpoints: named arrays in safetensors.

`tff.program.FileProgramStateManager` is not used, for three reasons. It saves a
SavedModel, which is a program that runs when loaded, and a run's folder may
come from others. It traces that program for every state, which takes longer
than a round of a small task. And it detects neither damage nor the state of
another model.

A file holds the arrays of a state by their paths, such as
`state/global_model_weights/trainable/0`, and a manifest in the metadata of its
header: the `format` and its version, the identity of the `run`, the `round`,
the names of arrays of `strings` as a JSON list, and the `sha256` of all of that
and of the arrays. safetensors has no dtype for strings; an array of strings is
stored as the UTF-8 bytes of a JSON object with its shape, its strings (one
character per byte) and whether they have a fixed length.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Optional

import numpy as np
import safetensors
import safetensors.numpy

from tff_adaptive import errors
from tff_adaptive.lab.recording import files

FORMAT = 'tff-adaptive checkpoint 3'


class OtherStateError(errors.DamagedError):
  """Raised for an intact checkpoint of another method or model."""


@dataclasses.dataclass(frozen=True)
class Spec:
  """The expected shape and dtype of an array in a checkpoint.

  Attributes:
    dtype: The name of the dtype; 'strings' for text.
    shape: The shape; `None` for one dimension of any length.
  """

  dtype: str
  shape: Optional[tuple[int, ...]]

  @classmethod
  def of(cls, array: np.ndarray) -> 'Spec':
    dtype = 'strings' if _is_text(array) else array.dtype.newbyteorder('=').name
    return cls(dtype, array.shape)

  def __str__(self) -> str:
    shape = '[n]' if self.shape is None else list(self.shape)
    return f'{self.dtype} of shape {shape}'

  def fits(self, found: 'Spec') -> bool:
    """Returns whether an array has this shape and dtype."""
    if self.shape is None and found.shape is not None:
      return self.dtype == found.dtype and len(found.shape) == 1
    return self == found


def _is_text(array: np.ndarray) -> bool:
  return array.dtype.kind in 'SUO'


def _encode(array: np.ndarray) -> np.ndarray:
  """Encodes an array of strings as bytes."""
  words = [
    word.encode('utf-8') if isinstance(word, str) else bytes(word)
    for word in array.ravel().tolist()
  ]
  text = json.dumps(
    {
      'shape': array.shape,
      'fixed': array.dtype.kind == 'S',
      'strings': [word.decode('latin-1') for word in words],
    }
  )
  return np.frombuffer(text.encode('utf-8'), np.uint8)


def _decode(content: np.ndarray) -> np.ndarray:
  """Decodes an array encoded by `_encode`."""
  found = json.loads(content.tobytes())
  words = [word.encode('latin-1') for word in found['strings']]
  kind = np.bytes_ if found['fixed'] else object
  return np.array(words, kind).reshape(found['shape'])


def _digest(
  manifest: Mapping[str, str], arrays: Mapping[str, np.ndarray]
) -> str:
  """Returns the SHA-256 of a manifest and of arrays."""
  entries = sorted((k, v) for k, v in manifest.items() if k != 'sha256')
  digest = hashlib.sha256(json.dumps(entries).encode('utf-8'))
  for name, array in sorted(arrays.items()):
    spec = json.dumps([name, array.dtype.str, array.shape])
    digest.update(spec.encode('utf-8'))
    digest.update(array.reshape(-1).view(np.uint8).data)
  return digest.hexdigest()


def not_finite(arrays: Mapping[str, np.ndarray]) -> list[str]:
  """Returns the names of arrays that contain NaN or infinity."""
  return sorted(
    name
    for name, array in arrays.items()
    if array.dtype.kind in 'fc' and not np.isfinite(array).all()
  )


def write(
  path: pathlib.Path,
  arrays: Mapping[str, Any],
  *,
  run: str = '',
  round_number: int = 0,
) -> None:
  """Writes arrays to a file atomically.

  Args:
    path: The file.
    arrays: Arrays of numbers, booleans or strings, by name.
    run: The identity of the run.
    round_number: The round.

  Raises:
    RunError: If the file cannot be written; an existing file is kept.
  """
  stored, strings = {}, []
  for name, value in arrays.items():
    array = np.asarray(value, order='C')
    if _is_text(array):
      strings.append(name)
      array = _encode(array)
    stored[name] = array.astype(array.dtype.newbyteorder('<'), copy=False)
  manifest = {
    'format': FORMAT,
    'run': run,
    'round': str(round_number),
    'strings': json.dumps(strings),
  }
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
  specs: Optional[Mapping[str, Spec]] = None,
) -> dict[str, np.ndarray]:
  """Reads the arrays of a file written by `write`.

  Args:
    path: The file.
    run: The expected identity of the run; by default any.
    round_number: The expected round; by default any.
    specs: The expected arrays; by default any.

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
  except (
    safetensors.SafetensorError,
    OSError,
    MemoryError,
    OverflowError,
    ValueError,
    TypeError,
    KeyError,
  ) as e:
    raise errors.DamagedError(
      f'{path} cannot be read as a checkpoint: {errors.reason(e)}.'
    ) from e
  found = str(manifest.get('format'))
  if found != FORMAT:
    what = 'is not a checkpoint of tff-adaptive'
    if found.startswith(FORMAT[:-1]):
      what = 'was written by another version of tff-adaptive'
    raise errors.DamagedError(
      f'{path} {what}: its format is {found!r:.60}, this one reads {FORMAT!r}.'
    )
  if _digest(manifest, arrays) != manifest.get('sha256'):
    raise errors.DamagedError(
      f'{path} is damaged: its contents do not match their checksum.'
    )
  if run is not None and manifest['run'] != run:
    raise errors.DamagedError(f'{path} is a checkpoint of another run.')
  if round_number is not None and manifest['round'] != str(round_number):
    raise errors.DamagedError(
      f'{path} is the checkpoint of round {manifest["round"]:.20}, contrary to '
      'its name.'
    )
  for name in json.loads(manifest['strings']):
    arrays[name] = _decode(arrays[name])
  if specs is not None:
    _check_specs(path, {n: Spec.of(a) for n, a in arrays.items()}, specs)
  return arrays


def _check_specs(
  path: pathlib.Path, found: Mapping[str, Spec], specs: Mapping[str, Spec]
) -> None:
  """Checks dtypes and shapes against those of the expected state."""
  for name in [*specs, *found]:
    wanted, there = specs.get(name), found.get(name)
    if wanted is None or there is None or not wanted.fits(there):
      raise OtherStateError(
        f'{path} holds the state of another method or model: {name:.200} is '
        f'{there or "missing"}, expected {wanted or "nothing"}.'
      )
