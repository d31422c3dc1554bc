"""Checkpoints of a run: one file a state, whole or not there.

`tff.program.FileProgramStateManager` was considered and does not fit. It saves
a SavedModel, which is a program: loading one runs it, and a run's folder may
come from somebody else. It traces that program for every state, which takes
longer than a round of a small task. And it tells neither damage nor the state
of another model from its own. Here a file holds arrays and nothing else, under
a digest.
"""

import base64
import dataclasses
import hashlib
import itertools
import json
import math
import pathlib
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.recording import files

_MAGIC = b'tff-adaptive state 1\n'
_DIGEST_BYTES = hashlib.sha256().digest_size
# Booleans, numbers, and bytes of a fixed length.
_KINDS = 'biufcS'


@dataclasses.dataclass(frozen=True)
class _Array:
  """How one array of a state stands in the file.

  Attributes:
    dtype: As NumPy writes it, byte order included; 'strings' for strings of
      any length.
    shape: Its shape.
    strings: The strings in base64, where it holds strings.
  """

  dtype: str
  shape: list[int]
  strings: Optional[list[str]] = None

  @classmethod
  def of(cls, array: np.ndarray) -> '_Array':
    if array.dtype.kind in _KINDS:
      return cls(array.dtype.str, list(array.shape))
    words = [
      word.encode('utf-8') if isinstance(word, str) else bytes(word)
      for word in array.ravel().tolist()
    ]
    encoded = [base64.b64encode(word).decode('ascii') for word in words]
    return cls('strings', list(array.shape), encoded)

  @property
  def size(self) -> int:
    """Bytes behind the header."""
    if self.strings is not None:
      return 0
    return math.prod(self.shape) * np.dtype(self.dtype).itemsize

  def read(self, content: bytearray, begin: int) -> np.ndarray:
    if self.strings is not None:
      words = [base64.b64decode(word) for word in self.strings]
      return np.array(words, object).reshape(self.shape)
    array = np.frombuffer(
      content, self.dtype, math.prod(self.shape), begin
    ).reshape(self.shape)
    return array[()]


def write(path: pathlib.Path, arrays: Sequence[np.ndarray]) -> None:
  """Writes arrays to a file, aside first.

  The file is a line that says what it is, the length of a header as a
  little-endian uint64, the header in JSON (dtype and shape of each array), the
  arrays one behind the other, and the SHA-256 of all that.

  Args:
    path: The file.
    arrays: Of numbers, booleans, bytes or strings.

  Raises:
    RunError: If it cannot be written; a file that was there is kept.
  """
  plans = [_Array.of(array) for array in arrays]
  header = json.dumps([dataclasses.asdict(plan) for plan in plans]).encode()

  contents = (
    array.tobytes()
    for plan, array in zip(plans, arrays, strict=True)
    if plan.strings is None
  )
  head = _MAGIC + len(header).to_bytes(8, 'little') + header
  files.write_atomically(path, _signed(itertools.chain([head], contents)))


def _signed(pieces: Iterable[bytes]) -> Iterator[bytes]:
  """The pieces, and behind them the digest of all."""
  digest = hashlib.sha256()
  for piece in pieces:
    digest.update(piece)
    yield piece
  yield digest.digest()


def read(path: pathlib.Path) -> list[np.ndarray]:
  """The arrays that `write` wrote.

  Raises:
    DamagedError: If the file was changed since, or never was such a file.
    OSError: If it cannot be read.
  """
  content = bytearray(path.read_bytes())
  end = len(content) - _DIGEST_BYTES
  begin = len(_MAGIC) + 8
  if end < begin or not content.startswith(_MAGIC):
    raise errors.DamagedError(f'{path} is no checkpoint.')
  if hashlib.sha256(memoryview(content)[:end]).digest() != content[end:]:
    raise errors.DamagedError(f'{path} does not hold what was written to it.')
  # Nothing below can fail unless somebody made up a digest.
  try:
    length = int.from_bytes(content[len(_MAGIC) : begin], 'little')
    plans = [_Array(**a) for a in json.loads(content[begin : begin + length])]
    begin += length
    arrays = []
    for plan in plans:
      arrays.append(plan.read(content, begin))
      begin += plan.size
  except (ValueError, TypeError, AttributeError, OverflowError) as e:
    raise errors.DamagedError(f'{path} contradicts itself: {e}.') from e
  if begin != end:
    raise errors.DamagedError(f'{path} has {end - begin} bytes too many.')
  return arrays


class Checkpoints:
  """The last few states of a run, by round."""

  def __init__(
    self,
    folder: pathlib.Path,
    *,
    keep: int = 3,
    warn: Callable[[str], None] = print,
  ):
    """Names the folder, which need not exist.

    Args:
      folder: Where to keep states; created when the first is saved.
      keep: How many to keep, the latest ones.
      warn: Is told, in a sentence, when a state turns out to be damaged.
    """
    self._folder = folder
    self._keep = keep
    self._warn = warn

  @property
  def rounds(self) -> list[int]:
    """Rounds of which there is a state, in ascending order."""
    if not self._folder.is_dir():
      return []
    names = [p.name for p in self._folder.iterdir()]
    found = [re.fullmatch(r'round_(\d+)\.state', name) for name in names]
    return sorted(int(match.group(1)) for match in found if match)

  def _path(self, round_number: int) -> pathlib.Path:
    return self._folder / f'round_{round_number}.state'

  def save(self, state: Any, round_number: int) -> None:
    """Saves the state after a round, then drops the oldest beyond `keep`.

    Args:
      state: A structure of arrays, numbers and strings.
      round_number: The round.

    Raises:
      RunError: If it cannot be written; earlier states are kept.
    """
    try:
      files.make_folder(self._folder)
      arrays = [np.asarray(leaf) for leaf in tf.nest.flatten(state)]
      write(self._path(round_number), arrays)
    except errors.RunError as e:
      kept = (
        f'that of round {self.rounds[-1]} is kept'
        if self.rounds
        else 'there is none before it'
      )
      raise errors.RunError(
        f'The checkpoint of round {round_number} cannot be written; {kept}. {e}'
      ) from e
    for old in self.rounds[: -self._keep]:
      self._path(old).unlink(missing_ok=True)

  def load_latest(
    self,
    structure: Any,
    restore: Callable[[Any], None] = lambda state: None,
  ) -> Optional[tuple[int, Any]]:
    """The latest state that is whole, with its round.

    Damaged ones after it are set aside. If none is whole, all stay where they
    are: what they need may yet be brought back.

    Args:
      structure: A state of the same structure, as `initialize` gives; its
        arrays may have other shapes.
      restore: Takes up a state. It raises `DamagedError` if something that the
        state refers to is damaged; then the one before it is tried.

    Returns:
      The round and the state, or `None` if none was ever saved.

    Raises:
      RunError: If all that were saved are damaged, or the latest is of another
        structure.
    """
    damaged: dict[int, str] = {}
    for round_number in reversed(self.rounds):
      path = self._path(round_number)
      try:
        state = _pack(path, structure, read(path))
        restore(state)
      except FileNotFoundError:
        continue  # A run that is going on has dropped it.
      except (errors.DamagedError, OSError) as e:
        damaged[round_number] = errors.reason(e)
        continue
      for number, reason in damaged.items():
        self._set_aside(number, reason)
      return round_number, state
    if damaged:
      raise errors.RunError(
        f'No checkpoint in {self._folder} can be used '
        f'({damaged[max(damaged)]}); restore what is damaged, or delete the '
        "run's folder to start afresh."
      )
    return None

  def _set_aside(self, round_number: int, reason: str) -> None:
    path = self._path(round_number)
    aside = path.with_name(f'damaged_{path.name}')
    sentence = f'The checkpoint of round {round_number} is damaged'
    try:
      path.replace(aside)
      sentence += f'; it was set aside as {aside.name}'
    except OSError:
      pass  # A folder that is only read, by export say.
    self._warn(f'{sentence} and is not used: {reason}.')


def _pack(path: pathlib.Path, structure: Any, arrays: list[np.ndarray]) -> Any:
  """The arrays in a structure, Python's own numbers where it has some."""
  leaves = tf.nest.flatten(structure)
  if len(leaves) != len(arrays) or any(
    np.asarray(leaf).dtype.kind != array.dtype.kind
    for leaf, array in zip(leaves, arrays)
    if not isinstance(leaf, (str, bytes))
  ):
    raise errors.RunError(
      f'{path} holds the state of another method or model; delete the '
      "run's folder to start afresh."
    )
  restored = [
    type(leaf)(array) if isinstance(leaf, (bool, int, float)) else array
    for leaf, array in zip(leaves, arrays)
  ]
  return tf.nest.pack_sequence_as(structure, restored)
