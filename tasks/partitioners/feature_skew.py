"""Feature skew: transformations of clients' features.

Client i of n has strength s (i + 1) / n, so that the last one has strength s,
as with the noise of NIID-Bench (Li et al., arXiv 2102.02079, Section 4.2).
Labels and test examples are not changed.

  noise           Gaussian noise of this standard deviation
  rotation        of images, in degrees
  noisy_rotation  the same, plus noise of deviation 0.1 for each 30 degrees

For images of bytes a strength of 1 is the range from 0 to 255; results are
rounded and clipped to bytes.
"""

from collections.abc import Mapping
from typing import Optional

import numpy as np
from scipy import ndimage

from tasks import partition
from tasks.formats import data_files

# Kinds of transformations and their default strengths.
STRENGTHS = {
  'noise': 0.1,
  'rotation': 90.0,
  'noisy_rotation': 90.0,
}
_NOISE_PER_DEGREE = 0.1 / 30


def transform(
  features: np.ndarray, kind: str, strength: float, rng: np.random.Generator
) -> np.ndarray:
  """Transforms the features of one client's examples.

  Args:
    features: Floats or bytes, [examples, ...].
    kind: A key of `STRENGTHS`.
    strength: The client's strength.
    rng: Generator of noise.

  Returns:
    Features of the same shape and dtype.
  """
  unit = 255 if features.dtype == np.uint8 else 1
  wide = features.astype(np.float32) / unit
  noise = strength
  if kind != 'noise':
    noise = _NOISE_PER_DEGREE * strength if kind == 'noisy_rotation' else 0
    wide = ndimage.rotate(
      wide, strength, axes=(1, 2), reshape=False, order=1, mode='nearest'
    )
  if noise:
    drawn = rng.standard_normal(wide.shape, np.float32)
    wide += np.float32(noise) * drawn
  if unit == 255:
    return np.rint(255 * np.clip(wide, 0, 1)).astype(np.uint8)
  return wide.astype(features.dtype)


def apply(
  arrays: Mapping[str, np.ndarray],
  split: partition.Partition,
  kind: Optional[str],
  strength: Optional[float] = None,
  *,
  seed: int = 0,
) -> dict[str, np.ndarray]:
  """Transforms the features of every client.

  Args:
    arrays: Examples as arrays by name, of which the features are transformed.
    split: Example indices per client.
    kind: A key of `STRENGTHS`; `None` for no transformation.
    strength: The last client's strength; by default that of `STRENGTHS`.
    seed: Seed of all draws.

  Returns:
    Arrays of the same names, shapes and dtypes.

  Raises:
    PartitionError: If this kind does not apply to the features.
  """
  found = dict(arrays)
  if kind is None:
    return found
  name = features_of(arrays)
  if name is None:
    raise data_files.PartitionError(
      f'`feature_skew` {kind} needs numeric features; the examples have '
      f'{", ".join(arrays)}.'
    )
  features = np.asarray(arrays[name])
  if kind != 'noise' and features.ndim < 3:
    raise data_files.PartitionError(
      f'`feature_skew` {kind} needs images, but an example is a vector of '
      f'{features.shape[1]} features.'
    )
  strength = STRENGTHS[kind] if strength is None else strength
  features = features.copy()
  for i, rows in enumerate(split.indices):
    features[rows] = transform(
      features[rows],
      kind,
      strength * (i + 1) / len(split.indices),
      np.random.default_rng([seed, 0xFEA7, i]),
    )
  found[name] = features
  return found


def features_of(arrays: Mapping[str, np.ndarray]) -> Optional[str]:
  """Returns the name of the features, floats or bytes [examples, several]."""
  for name, array in arrays.items():
    numbers = array.dtype == np.uint8 or array.dtype.kind == 'f'
    if name != 'label' and numbers and array.ndim > 1:
      return name
  return None
