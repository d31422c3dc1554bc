"""Distances between the labels of clients: how uneven a division is."""

import itertools
from typing import Any

import numpy as np

from tasks import partition as partition_lib

# Of more clients than this, pairs are made of so many, evenly spaced.
_MOST_PAIRED = 500
# Quantile bins for numeric targets.
_BINS = 10
# Whole numbers below this are classes, others numbers to predict.
_MOST_CLASSES = 1000


def jensen_shannon(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Returns the Jensen-Shannon distance of distributions, from 0 to 1.

  The square root of the divergence, with logarithms to the base 2.

  Args:
    p: Probabilities [..., labels].
    q: Likewise; shapes are broadcast.
  """
  # A fifth of a second that `--help` can do without.
  from scipy.spatial import distance  # pylint: disable=g-import-not-at-top

  return distance.jensenshannon(p, q, base=2, axis=-1)


def hellinger(p: np.ndarray, q: np.ndarray) -> np.ndarray:
  """Returns the Hellinger distance of distributions, from 0 to 1.

  Args:
    p: Probabilities [..., labels].
    q: Likewise; shapes are broadcast.
  """
  return np.linalg.norm(np.sqrt(p) - np.sqrt(q), axis=-1) / np.sqrt(2)


def as_labels(labels: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns labels as whole numbers from 0, and words for those of numbers.

  Args:
    labels: Of each example: classes, or numbers to predict, which are binned
      by deciles.
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
  """Describes how uneven sizes and labels of clients are.

  Args:
    split: Which examples each client has.
    labels: Of each example, [examples]; see `as_labels`.

  Returns:
    For a file in JSON: the number of clients, their sizes, and of either
    distance the mean over clients to all of them together (`to_pool`) and over
    pairs of clients (`between_clients`).
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
