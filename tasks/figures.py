"""Statistics and figures of the distribution of examples over clients.

Each client's numbers of examples by label, and below that a histogram of the
number of different labels per client.
"""

import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np

from tasks import partition as partition_lib
from tasks import registry
from tff_adaptive import drawing
from tff_adaptive.lazy import alt

# Maximum number of rows that can be distinguished in a figure.
_MOST_CLIENTS = 100
# Maximum number of distinguishable colors.
_MOST_COLOURS = 20
# Pixels: the width, a client's row, and the histogram below.
_WIDTH = 560
_ROW = 11
_HISTOGRAM = 110
# Letters of a class, and of a row of the legend; words below a map.
_LONGEST_WORD = 24
_LETTERS_OF_A_ROW = 80
_MOST_WORDS = 100
# Maximum number of clients in pairwise distances, evenly spaced.
_MOST_PAIRED = 500
# Number of quantile bins of numeric targets.
_BINS = 10
# Integers below this are classes, others are numeric targets.
_MOST_CLASSES = 1000


def label_distribution(
  partition: partition_lib.Partition,
  labels: np.ndarray,
  path: pathlib.Path,
  *,
  title: str = '',
  classes: Sequence[str] = (),
  counted: str = 'labels',
) -> None:
  """Plots the labels of each client, one client per row.

  A client is a stacked bar for up to 20 labels, else a row of a heat map. Below
  is a histogram over all clients of the number of different labels (Figure 14
  of Reddi et al., arXiv 2003.00295).

  Args:
    partition: Example indices per client. The upper part shows the first 100
      clients.
    labels: The label of each example, int [examples], from 0.
    path: PNG file to write.
    title: Of the picture.
    classes: Words for labels, by label; the labels themselves unless given.
    counted: What the histogram counts, in the plural.
  """
  all_counts = partition.label_counts(labels)
  counts = all_counts[:_MOST_CLIENTS]
  words = _words(classes, counts.shape[1])
  drawn = '' if len(all_counts) == len(counts) else 'the first '
  rows = [
    dict(client=int(client), label=int(label), count=int(counts[client, label]))
    for client, label in np.argwhere(counts)
  ]
  base = alt.Chart(
    drawing.table(rows), width=_WIDTH, height=_ROW * len(counts)
  ).encode(
    y=alt.Y(
      'client:O',
      scale=alt.Scale(domain=list(range(len(counts)))),
      axis=alt.Axis(
        title=f'{drawn}{len(counts)} clients', labels=False, ticks=False
      ),
    )
  )
  draw = _bars if len(words) <= _MOST_COLOURS else _map
  picture = alt.vconcat(
    draw(base, words),
    _histogram(np.count_nonzero(all_counts, axis=1), counted),
    resolve=alt.Resolve(scale=alt.ScaleResolveMap(color='independent')),
    title=title,
  )
  path.write_bytes(drawing.image(picture.to_dict(), 'png'))


def _histogram(found: np.ndarray, counted: str) -> Any:
  """Draws how many clients have so many different labels."""
  numbers = range(int(found.min()), int(found.max()) + 1)
  heights = np.bincount(found)
  rows = [dict(labels=n, clients=int(heights[n])) for n in numbers]
  return (
    alt.Chart(drawing.table(rows), width=_WIDTH, height=_HISTOGRAM)
    .mark_bar(color='#7f7f7f')
    .encode(
      x=alt.X(
        'labels:O',
        axis=alt.Axis(
          title=f'different {counted} of a client',
          labelAngle=0,
          labelOverlap=True,
        ),
      ),
      y=alt.Y('clients:Q', axis=alt.Axis(title='clients', tickMinStep=1)),
    )
  )


def _words(classes: Sequence[str], count: int) -> list[str]:
  """Shortens names of classes for a figure."""
  if len(classes) < count:
    return [str(label) for label in range(count)]
  words = [' '.join(name.split()) for name in classes[:count]]
  return [
    w
    if len(w) <= _LONGEST_WORD
    else f'{w[: _LONGEST_WORD - 1]}\N{HORIZONTAL ELLIPSIS}'
    for w in words
  ]


def _named(words: Sequence[str]) -> str:
  """Renders the expression that turns a label into its word."""
  return f'{json.dumps(list(words))}[datum.value]'


def _bars(base: Any, words: Sequence[str]) -> Any:
  """Draws a bar a client, with a piece for each label."""
  return base.mark_bar().encode(
    x=alt.X('count:Q', axis=alt.Axis(title='examples')),
    order='label:Q',
    color=alt.Color(
      'label:O',
      scale=alt.Scale(domain=list(range(len(words))), scheme='tableau20'),
      legend=alt.Legend(
        title='label',
        orient='bottom',
        columns=max(
          1, min(10, _LETTERS_OF_A_ROW // (max(map(len, words)) + 4))
        ),
        labelExpr=_named(words),
      ),
    ),
  )


def _map(base: Any, words: Sequence[str]) -> Any:
  """Draws a row a client, a column a label, for too many labels to colour."""
  numbers = list(map(str, range(len(words))))
  axis = alt.Axis(title='label', labelAngle=0, labelOverlap=True)
  if len(words) <= _MOST_WORDS and list(words) != numbers:
    axis = alt.Axis(
      title='label', labelAngle=-90, labelFontSize=7, labelExpr=_named(words)
    )
  return base.mark_rect().encode(
    x=alt.X(
      'label:O', scale=alt.Scale(domain=list(range(len(words)))), axis=axis
    ),
    color=alt.Color(
      'count:Q',
      scale=alt.Scale(scheme='viridis'),
      legend=alt.Legend(title='examples'),
    ),
  )


def save_partition(data: Any, folder: pathlib.Path) -> None:
  """Saves the partition of a run's data.

  Writes partition.npz (see `Partition.load`), or nothing for natural clients.

  Args:
    data: A task's training data.
    folder: Folder to write to.
  """
  if hasattr(data, 'partition'):
    data.partition.save(folder / 'partition.npz')


def draw_partition(
  data: Any, folder: pathlib.Path, *, title: str = '', task: str = ''
) -> None:
  """Plots a partition's labels as labels.png, if examples have labels.

  Writes nothing for natural clients.

  Args:
    data: A task's training data.
    folder: Folder to write to.
    title: Title of the figure.
    task: The task's name, for names of its classes.
  """
  if not hasattr(data, 'partition'):
    return
  if 'label' in data.arrays:
    shift, scale = data.label_unit
    labels, ranges = as_labels(data.arrays['label'] * scale + shift)
    known = registry.classes_of(task, int(labels.max()) + 1)
    label_distribution(
      data.partition,
      labels,
      folder / 'labels.png',
      title=title,
      classes=ranges or data.classes or known,
      counted='ranges' if ranges else 'labels',
    )


def describe_partition(data: Any) -> Optional[dict[str, Any]]:
  """Computes a partition's statistics, see `describe`.

  Returns:
    None for natural clients or examples without labels.
  """
  if not hasattr(data, 'partition') or 'label' not in data.arrays:
    return None
  return describe(data.partition, data.arrays['label'])


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
