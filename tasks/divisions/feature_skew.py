"""Transformations of clients' features: feature skew.

Of n clients, client i has the strength s (i + 1) / n, so that the last one has
the whole of it, as with the noise of NIID-Bench (Li et al., arXiv 2102.02079,
Section 4.2). Labels stay as they are, and so do test examples.

  noise           Gaussian, of this deviation
  shift           this is added to each feature: of images, brightness
  scale           distances from the mean feature, times 1 + this: contrast
  permutation     this share of the features, or pixels, change places
  rotation        of images, by so many degrees
  noisy_rotation  the same, and noise of a deviation of 0.1 for each 30 degrees
  blur            of images, Gaussian, of a deviation of so many pixels

Of images whose pixels are bytes, 1 is the whole range from 0 to 255; they stay
bytes, rounded and clipped.
"""

from collections.abc import Mapping
from typing import Optional

import numpy as np
from scipy import ndimage

from tasks import partition
from tasks.formats import data_errors

# The strength of each kind unless given.
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
    features: [examples, ...] of floats, or of bytes.
    kind: A key of `STRENGTHS`.
    strength: The client's own.
    rng: Of noise, and of the features that change places: the same ones in all
      of the client's examples.

  Returns:
    Features of the same shape and dtype.
  """
  unit = 255 if features.dtype == np.uint8 else 1
  wide = features.astype(np.float32) / unit
  # Pixels' places; channels, if there are some, stay together.
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
    arrays: Examples, by name; the one with the features is transformed.
    split: Which examples each client has.
    kind: A key of `STRENGTHS`; `None` leaves all as it is.
    strength: The last client's; that of `STRENGTHS` unless given.
    seed: Of all draws.

  Returns:
    Arrays of the same names, shapes and dtypes.

  Raises:
    PartitionError: If the examples have no features of this kind.
  """
  found = dict(arrays)
  if kind is None:
    return found
  name = features_of(arrays)
  if name is None:
    raise data_errors.PartitionError(
      f'`feature_skew` {kind} needs features that are numbers; the examples '
      f'have {", ".join(arrays)}.'
    )
  features = np.asarray(arrays[name])
  if kind in _OF_IMAGES and features.ndim < 3:
    raise data_errors.PartitionError(
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
  """Finds the array with the features: floats or bytes, several an example."""
  for name, array in arrays.items():
    numbers = array.dtype == np.uint8 or array.dtype.kind == 'f'
    if name != 'label' and numbers and array.ndim > 1:
      return name
  return None
