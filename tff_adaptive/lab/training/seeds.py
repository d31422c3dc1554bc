"""Seeds for everything random, derived from what the draw is for.

A draw's seed is a hash of (run seed, purpose, round, client, ...). So a draw
depends on nothing that happened before it: a resumed run, another order of the
clients or another number of threads sees the same shuffles, crops and noise.
Which clients take part is the one draw not made here: it follows the reference
implementation, see `cohorts`.
"""

import hashlib
import json
from typing import Any
from typing import Union

import numpy as np


def _digest(seed: int, purpose: str, parts: tuple[Union[int, str], ...]) -> Any:
  # JSON tells ('a', 'b') from ('ab',) and 1 from '1'.
  key = json.dumps([int(seed), purpose, *parts])
  return hashlib.blake2b(key.encode('utf-8'), digest_size=16).digest()


def seed_pair(seed: int, purpose: str, *parts: Union[int, str]) -> np.ndarray:
  """Draws two non-negative int64, as stateless random operations take.

  Args:
    seed: The run's seed.
    purpose: What the draw is for, such as 'client data'.
    *parts: What distinguishes the draw: round number, client id and the like.
  """
  pair = np.frombuffer(_digest(seed, purpose, parts), dtype='<i8')
  return (pair & np.int64(2**63 - 1)).astype(np.int64)


def seed_32(seed: int, purpose: str, *parts: Union[int, str]) -> int:
  """Draws a seed in [0, 2**32), as `tf.keras.utils.set_random_seed` takes."""
  return int.from_bytes(_digest(seed, purpose, parts)[:4], 'little')
