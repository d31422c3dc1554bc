"""Feature skew: transformations of clients' features.

Client i of n has strength s (i + 1) / n, so that the last one has strength s,
as with the noise of NIID-Bench (Li et al., arXiv 2102.02079, Section 4.2).
Labels and test examples are not changed.

  noise           Gaussian noise of this standard deviation
  shift           added to each feature; brightness of images
  scale           scales deviations from the mean by 1 + this; contrast
  permutation     fraction of features, or pixels, that are permuted
  rotation        of images, in degrees
  noisy_rotation  the same, plus noise of deviation 0.1 for each 30 degrees
  blur            of images, Gaussian, standard deviation in pixels

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
  'shift': 0.3,
  'scale': 0.5,
  'permutation': 1.0,
  'rotation': 90.0,
  'noisy_rotation': 90.0,
  'blur': 1.0,
}
_OF_IMAGES = {'rotation', 'noisy_rotation', 'blur'}
_NOISE_PER_DEGREE = 0.1 / 30


def transform(
  features: np.ndarray, kind: str, strength: float, rng: np.random.Generator
) -> np.ndarray:
  """Transforms the features of one client's examples.

  Args:
    features: Floats or bytes, [examples, ...].
    kind: A key of `STRENGTHS`.
    strength: The client's strength.
    rng: Generator of noise and of the permutation, which is the same for all of
      the client's examples.

  Returns:
    Features of the same shape and dtype.
  """
  unit = 255 if features.dtype == np.uint8 else 1
  wide = features.astype(np.float32) / unit
  # Permutes pixels, keeping their channels together.
  space = (1, 2) if wide.ndim > 2 else (1,)
  if kind == 'noise':
    wide += strength * rng.standard_normal(wide.shape, np.float32)
  elif kind == 'shift':
    wide += np.float32(strength)
  elif kind == 'scale':
    mean = wide.mean() if len(space) > 1 else wide.mean(axis=0)
    wide = mean + (wide - mean) * np.float32(1 + strength)
  elif kind == 'permutation':
    pixels = wide.reshape(len(wide), -1, *wide.shape[1 + len(space) :])
    count = pixels.shape[1]
    places = rng.permutation(count)[: round(min(strength, 1) * count)]
    order = np.arange(count)
    order[np.sort(places)] = places
    wide = pixels[:, order].reshape(wide.shape)
  elif kind in ('rotation', 'noisy_rotation'):
    wide = ndimage.rotate(
      wide, strength, axes=space, reshape=False, order=1, mode='nearest'
    )
    if kind == 'noisy_rotation':
      noise = rng.standard_normal(wide.shape, np.float32)
      wide += np.float32(_NOISE_PER_DEGREE * strength) * noise
  else:
    sigma = [strength if axis in space else 0 for axis in range(wide.ndim)]
    wide = ndimage.gaussian_filter(wide, sigma)
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
  if kind in _OF_IMAGES and features.ndim < 3:
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
