"""The file format of checkpoints: named arrays in safetensors.

`tff.program.FileProgramStateManager` is not used, for three reasons. It saves a
SavedModel, which is a program that runs when loaded, and a run's folder may
come from others. It traces that program for every state, which takes longer
than a round of a small task. And it detects neither damage nor the state of
another model.

A file holds the arrays of a state by their paths, such as
`state/global_model_weights/trainable/0`, and a manifest in the metadata of its
header:

  format      the name and version of this format
  run         the run's identity, see `files.RunFolder.identity`
  round       the round
  strings     names of arrays of strings, as a JSON list
  not_finite  names of arrays that contain NaN or infinity, as a JSON list
  sha256      digest of all of the above and of the arrays

safetensors has no dtype for strings. An array of strings is stored as the UTF-8
bytes of a JSON object with its shape, its strings (one character per byte) and
whether they have a fixed length.
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

FORMAT = 'tff-adaptive checkpoint 2'
_MANIFEST = ('format', 'run', 'round', 'strings', 'not_finite', 'sha256')
# safetensors' names of NumPy's dtypes.
_CODES = {
  np.dtype(name): code
  for code, name in {
    'BOOL': 'bool',
    'I8': 'int8',
    'I16': 'int16',
    'I32': 'int32',
    'I64': 'int64',
    'U8': 'uint8',
    'U16': 'uint16',
    'U32': 'uint32',
    'U64': 'uint64',
    'F16': 'float16',
    'F32': 'float32',
    'F64': 'float64',
    'C64': 'complex64',
  }.items()
}
_NAMES = {code: dtype.name for dtype, code in _CODES.items()}


class OtherStateError(errors.DamagedError):
  """Raised for an intact checkpoint of another method or model."""


@dataclasses.dataclass(frozen=True)
class Spec:
  """The expected shape and dtype of an array in a checkpoint.

  Attributes:
    dtype: The dtype, as named by safetensors; `None` for strings.
    shape: The shape; `None` for one dimension of any length.
  """

  dtype: Optional[str]
  shape: Optional[tuple[int, ...]]

  @classmethod
  def of(cls, array: np.ndarray) -> 'Spec':
    if _is_text(array):
      return cls(None, array.shape)
    dtype = array.dtype.newbyteorder('=')
    return cls(_CODES.get(dtype, dtype.name), array.shape)


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
  """Decodes an array encoded by `_encode`.

  Raises:
    ValueError, TypeError, KeyError, AttributeError, RecursionError: If the
      content was not encoded by `_encode`.
  """
  found = json.loads(content.tobytes())
  words = [word.encode('latin-1') for word in found['strings']]
  kind = np.bytes_ if found['fixed'] else object
  return np.array(words, kind).reshape(found['shape'])


def _digest(
  manifest: Mapping[str, str], arrays: Mapping[str, np.ndarray]
) -> str:
  """Returns the SHA-256 of a manifest and of arrays in little-endian order."""
  digest = hashlib.sha256()
  entries = [[key, manifest[key]] for key in _MANIFEST if key != 'sha256']
  digest.update(json.dumps(entries).encode('utf-8'))
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
    array = array.astype(array.dtype.newbyteorder('<'), copy=False)
    if array.dtype not in _CODES:
      raise errors.RunError(
        f'{path} cannot be written: {name} has the dtype {array.dtype}, which '
        'checkpoints do not support.'
      )
    stored[name] = array
  manifest = {
    'format': FORMAT,
    'run': run,
    'round': str(round_number),
    'strings': json.dumps(sorted(strings)),
    'not_finite': json.dumps(not_finite(stored)),
  }
  manifest['sha256'] = _digest(manifest, stored)
  files.write_atomically(path, safetensors.numpy.save(stored, manifest))


def read(
  path: pathlib.Path,
  *,
  run: Optional[str] = None,
  round_number: Optional[int] = None,
  specs: Optional[Mapping[str, Spec]] = None,
) -> dict[str, np.ndarray]:
  """Reads the arrays of a file written by `write`.

  The header is checked before arrays are read, and the digest before arrays are
  returned.

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
      _check_manifest(path, manifest, run, round_number)
      found = {}
      for name in file.keys():  # noqa: SIM118
        view = file.get_slice(name)
        found[name] = view.get_dtype(), tuple(view.get_shape())
      _check_header(path, found, specs)
      arrays = {name: file.get_tensor(name) for name in found}
  except FileNotFoundError:
    raise
  except (
    safetensors.SafetensorError,
    OSError,
    MemoryError,
    OverflowError,
    ValueError,
  ) as e:
    raise errors.DamagedError(
      f'{path} cannot be read as a checkpoint: {errors.reason(e)}.'
    ) from e
  if _digest(manifest, arrays) != manifest['sha256']:
    raise errors.DamagedError(
      f'{path} is damaged: its contents do not match their checksum.'
    )
  return _checked(path, manifest, arrays, specs or {})


def _check_manifest(
  path: pathlib.Path,
  manifest: Mapping[str, str],
  run: Optional[str],
  round_number: Optional[int],
) -> None:
  if not str(manifest.get('format')).startswith('tff-adaptive checkpoint '):
    raise errors.DamagedError(f'{path} is not a checkpoint of tff-adaptive.')
  if manifest['format'] != FORMAT:
    raise errors.DamagedError(
      f'{path} was written by another version of tff-adaptive: its format is '
      f'{manifest["format"]!r:.60}, this one reads {FORMAT!r}.'
    )
  if set(manifest) != set(_MANIFEST):
    raise errors.DamagedError(
      f'{path} has no valid checkpoint manifest, which must contain '
      f'{", ".join(_MANIFEST)}.'
    )
  if run is not None and manifest['run'] != run:
    raise errors.DamagedError(f'{path} is a checkpoint of another run.')
  if round_number is not None and manifest['round'] != str(round_number):
    raise errors.DamagedError(
      f'{path} is the checkpoint of round {manifest["round"]:.20}, contrary to '
      'its name.'
    )


def _check_header(
  path: pathlib.Path,
  found: Mapping[str, tuple[str, tuple[int, ...]]],
  specs: Optional[Mapping[str, Spec]],
) -> None:
  """Checks dtypes and shapes against those of the expected state."""
  for name, (dtype, _) in found.items():
    if dtype not in _NAMES:
      raise errors.DamagedError(
        f'{path} holds {name:.200} as {dtype}, which checkpoints do not '
        'support.'
      )
  if specs is None:
    return
  other = f'{path} holds the state of another method or model'
  for name in [*specs, *found]:
    if name not in found:
      raise OtherStateError(f'{other}: it lacks {name}.')
    if name not in specs:
      raise OtherStateError(f'{other}: it has {name:.200}.')
    spec, (dtype, shape) = specs[name], found[name]
    if dtype != (spec.dtype or 'U8'):
      raise OtherStateError(
        f'{other}: {name} is of {_NAMES[dtype]}, not of '
        f'{_NAMES.get(spec.dtype, spec.dtype) if spec.dtype else "strings"}.'
      )
    wanted = None if spec.dtype is None else spec.shape
    if (len(shape) != 1) if wanted is None else (shape != wanted):
      raise OtherStateError(
        f'{other}: {name} has the shape {list(shape)}, not '
        f'{"[n]" if wanted is None else list(wanted)}.'
      )


def _checked(
  path: pathlib.Path,
  manifest: Mapping[str, str],
  arrays: dict[str, np.ndarray],
  specs: Mapping[str, Spec],
) -> dict[str, np.ndarray]:
  """Decodes strings and checks the manifest against the arrays."""
  if json.dumps(not_finite(arrays)) != manifest['not_finite']:
    names = ', '.join(not_finite(arrays)) or 'no array'
    raise errors.DamagedError(
      f'{path} is inconsistent: NaN or infinity in {names:.200}.'
    )
  try:
    for name in json.loads(manifest['strings']):
      arrays[name] = _decode(arrays[name])
      spec = specs.get(name)
      if spec is not None and spec != Spec(None, arrays[name].shape):
        raise ValueError(f'{name} has the shape {list(arrays[name].shape)}')
    for name, spec in specs.items():
      if spec.dtype is None and not _is_text(arrays[name]):
        raise ValueError(f'{name} is not an array of strings')
  except (
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
  ) as e:
    raise errors.DamagedError(
      f'{path} is inconsistent: {errors.reason(e)}.'
    ) from e
  return arrays
