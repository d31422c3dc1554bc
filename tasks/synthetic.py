"""Made-up data of the right shapes: small, learnable, the same every time."""

import numpy as np


def images(
    count: int, shape: tuple[int, ...], num_classes: int, *, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
  """Images float32 in [0, 1] and labels int32, every class as often.

  Each class is a smooth pattern of its own, seen through noise.
  """
  rng = np.random.default_rng([seed, 0x1A6E5])
  labels = rng.permutation(np.arange(count) % num_classes).astype(np.int32)
  height, width, channels = shape
  coarse = rng.random((num_classes, 4, 4, channels), np.float32)
  rows, columns = np.arange(height) * 4 // height, np.arange(width) * 4 // width
  patterns = coarse[:, rows][:, :, columns]
  noise = rng.random((count, *shape), np.float32)
  return 0.7 * patterns[labels] + 0.3 * noise, labels
