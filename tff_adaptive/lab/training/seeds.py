"""Seeds of all random draws, derived from the purpose of each draw.

A draw's seed is a hash of (run seed, purpose, round, client, ...). A draw thus
does not depend on earlier ones: shuffles, crops and noise are the same in a
resumed run, in another order of clients and with another number of threads.
The one exception is the sampling of cohorts, which follows the reference
implementation; see `cohorts`.
"""

import hashlib
import json
from typing import Any, Union

import numpy as np


def _digest(seed: int, purpose: str, parts: tuple[Union[int, str], ...]) -> Any:
  # JSON distinguishes ('a', 'b') from ('ab',) and 1 from '1'.
  key = json.dumps([int(seed), purpose, *parts])
  return hashlib.blake2b(key.encode('utf-8'), digest_size=16).digest()


def seed_pair(seed: int, purpose: str, *parts: Union[int, str]) -> np.ndarray:
  """Derives a seed for stateless random operations, non-negative int64 [2].

  Args:
    seed: The run's seed.
    purpose: Purpose of the draw, such as 'client data'.
    *parts: Further keys of the draw: round number, client id and the like.
  """
  pair = np.frombuffer(_digest(seed, purpose, parts), dtype='<i8')
  return (pair & np.int64(2**63 - 1)).astype(np.int64)


def seed_32(seed: int, purpose: str, *parts: Union[int, str]) -> int:
  """Derives a seed in [0, 2**32), as `tf.keras.utils.set_random_seed` takes."""
  return int.from_bytes(_digest(seed, purpose, parts)[:4], 'little')
