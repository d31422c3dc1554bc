"""Damage to files, as hypothesis draws it."""

import contextlib
import random
import signal
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
from hypothesis import strategies

_SECONDS = 60
# What readers of numbers, texts and tables stumble over.
_TOKENS = (
  b'',
  b'\0',
  b'\n',
  b'\r',
  b'"',
  b',',
  b':',
  b'-1',
  b'0',
  b'1_0',
  b'1e999',
  b'nan',
  b'inf',
  b'null',
  b'true',
  b'[]',
  b'{}',
  b'[' * 3000,
  b'9' * 5000,
  b'99999999999999999999',
  b'\xff',
  b'\xef\xbb\xbf',
  '²'.encode(),
  '٣'.encode(),
  '\u2028'.encode(),
  b'../',
  b'/dev/zero',
)
_EDITS = ('flip', 'overwrite', 'insert', 'delete', 'cut', 'double')

_edit = strategies.tuples(
  strategies.sampled_from(_EDITS),
  strategies.integers(0, 2**20),
  strategies.one_of(
    strategies.binary(min_size=1, max_size=8), strategies.sampled_from(_TOKENS)
  ),
)
edits = strategies.lists(_edit, min_size=1, max_size=4)


def apply(content: bytes, changes: list[tuple[str, int, bytes]]) -> bytes:
  """The content after some changes."""
  for kind, place, piece in changes:
    at = place % (len(content) + 1)
    length = max(len(piece), 1)
    if kind == 'flip' and at < len(content):
      flipped = content[at] ^ (1 << (place >> 8) % 8)
      content = content[:at] + bytes([flipped]) + content[at + 1 :]
    elif kind == 'overwrite':
      content = content[:at] + piece + content[at + len(piece) :]
    elif kind == 'insert':
      content = content[:at] + piece + content[at:]
    elif kind == 'delete':
      content = content[:at] + content[at + length :]
    elif kind == 'cut':
      content = content[:at]
    elif kind == 'double':
      content = content[: at + 8 * length] + content[at:]
  return content


class HangError(Exception):
  """Something took longer than any reader may."""


@contextlib.contextmanager
def no_hang() -> Iterator[None]:
  """Raises where the block takes too long."""

  def ring(number, frame):
    del number, frame
    raise HangError(f'more than {_SECONDS} s')

  before = signal.signal(signal.SIGALRM, ring)
  signal.setitimer(signal.ITIMER_REAL, _SECONDS)
  try:
    yield
  finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def draw_edits(rng: random.Random) -> list[tuple[str, int, bytes]]:
  """As `edits`, drawn in a fiftieth of the time."""
  return [
    (
      rng.choice(_EDITS),
      rng.randrange(2**20),
      rng.choice(_TOKENS)
      if rng.random() < 0.5
      else rng.randbytes(rng.randrange(1, 9)),
    )
    for _ in range(rng.randrange(1, 5))
  ]


def try_seeds(
  check: Callable[[Any], None],
  draw: Callable[[random.Random], Any],
  count: int,
) -> None:
  """Checks the inputs drawn from the seeds 0 to `count` - 1."""
  for seed in range(count):
    value = draw(random.Random(seed))
    try:
      with no_hang():
        check(value)
    except Exception as e:
      raise AssertionError(f'seed {seed}: {value!r}') from e


def try_many(check: Callable[[Any], None], inputs: Any, count: int) -> None:
  """Checks `count` inputs that a strategy draws, the same ones every time.

  What fails is made as small as it can be.
  """

  @hypothesis.settings(
    max_examples=count,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(hypothesis.HealthCheck),
  )
  @hypothesis.given(inputs)
  def run(value):
    with no_hang():
      check(value)

  run()
