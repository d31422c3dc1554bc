"""Small, learnable, reproducible synthetic data."""

import numpy as np


def images(
  count: int, shape: tuple[int, ...], num_classes: int, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Generates images float32 in [0, 1] and labels int32, classes balanced.

  Each class has a smooth pattern, to which noise is added.
  """
  rng = np.random.default_rng([seed, 0x1A6E5])
  labels = rng.permutation(np.arange(count) % num_classes).astype(np.int32)
  height, width, channels = shape
  coarse = rng.random((num_classes, 4, 4, channels), np.float32)
  rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
  patterns = coarse[:, rows][:, :, columns]
  noise = rng.random((count, *shape), np.float32)
  return 0.7 * patterns[labels] + 0.3 * noise, labels


def words(count: int, *, seed: int = 0) -> list[str]:
  """Generates distinct words of two to four syllables."""
  rng = np.random.default_rng([seed, 0x30DD5])
  syllables = [c + v for c in 'bdfgklmnprstvz' for v in 'aeiou']
  found: dict[str, None] = {}
  while len(found) < count:
    found[''.join(rng.choice(syllables, rng.integers(2, 5)))] = None
  return list(found)


def sentences(count: int, *, vocabulary: list[str], seed: int = 0) -> list[str]:
  """Generates sentences of 4 to 24 words, each with few likely successors."""
  rng = np.random.default_rng([seed, 0x5E47])
  successors = rng.integers(0, len(vocabulary), [len(vocabulary), 3])
  result = []
  for _ in range(count):
    word = rng.integers(len(vocabulary))
    line = []
    for _ in range(rng.integers(4, 25)):
      line.append(vocabulary[word])
      word = successors[word, rng.integers(3)]
    result.append(' '.join(line))
  return result
