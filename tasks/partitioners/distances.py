"""Distances between clients' label distributions."""

import itertools
from typing import Any

import numpy as np

from tasks import partition as partition_lib

# Maximum number of clients in pairwise distances, evenly spaced.
_MOST_PAIRED = 500
# Number of quantile bins of numeric targets.
_BINS = 10
# Integers below this are classes, others are numeric targets.
_MOST_CLASSES = 1000


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Computes the Jensen-Shannon distance of distributions, from 0 to 1.

  The square root of the divergence, with logarithms to the base 2.

  Args:
    p: Probabilities [..., labels].
    q: Probabilities, of a shape that broadcasts with that of `p`.
  """
  # Takes a fifth of a second to import, which `--help` does not need.
  from scipy.spatial import distance  # pylint: disable=g-import-not-at-top

  return distance.jensenshannon(p, q, base=2, axis=-1)


def hellinger(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Computes the Hellinger distance of distributions, from 0 to 1.

  Args:
    p: Probabilities [..., labels].
    q: Probabilities, of a shape that broadcasts with that of `p`.
  """
  return np.linalg.norm(np.sqrt(p) - np.sqrt(q), axis=-1) / np.sqrt(2)


def as_labels(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns labels as integers from 0, and names of the bins of numbers.

  Args:
    labels: Labels [examples]: classes, or numeric targets, which are binned by
      deciles.
  """
  flat = np.ravel(labels)
  whole = not np.any(np.mod(flat, 1)) and flat.min() >= 0
  if whole and flat.max() < _MOST_CLASSES:
    return flat.astype(np.int64), ()
  inner = np.unique(np.quantile(flat, np.arange(1, _BINS) / _BINS))
  words = [f'< {inner[0]:.4g}']
  pairs = itertools.pairwise(inner)
  words += [f'{low:.4g} to {high:.4g}' for low, high in pairs]
  words += [f'\N{GREATER-THAN OR EQUAL TO} {inner[-1]:.4g}']
  return np.searchsorted(inner, flat, side='right'), tuple(words)


def describe(
  split: partition_lib.Partition, labels: np.ndarray
) -> dict[str, Any]:
  """Computes statistics of clients' sizes and label skew.

  Args:
    split: Example indices per client.
    labels: Labels [examples]; see `as_labels`.

  Returns:
    A JSON object: the number of clients, their sizes, and for either distance
    its means over clients to the pool (`to_pool`) and over pairs of clients
    (`between_clients`).
  """
  sizes = split.sizes
  counts = split.label_counts(as_labels(labels)[0])
  shares = counts / sizes[:, np.newaxis]
  pool = counts.sum(axis=0) / counts.sum()
  picked = shares
  if len(shares) > _MOST_PAIRED:
    places = np.linspace(0, len(shares) - 1, _MOST_PAIRED).astype(int)
    picked = shares[places]
  found = {}
  for measure in (jensen_shannon, hellinger):
    pairs = [measure(picked[i], picked[i + 1 :]) for i in range(len(picked))]
    between = np.concatenate(pairs)
    found[measure.__name__] = {
      'to_pool': round(float(measure(shares, pool).mean()), 6),
      'between_clients': round(float(between.mean()), 6)
      if len(between)
      else 0.0,
    }
  return {
    'clients': len(sizes),
    'examples': {
      'smallest': int(sizes.min()),
      'mean': round(float(sizes.mean()), 2),
      'largest': int(sizes.max()),
    },
    'label_distances': found,
  }
