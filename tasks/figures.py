"""Statistics and figures of the distribution of examples over clients.

Each client's numbers of examples by label, and below that a histogram of the
number of different labels per client.
"""

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
# Pixels: the width, a client's row, and the histogram below.
_WIDTH = 560
_ROW = 11
_HISTOGRAM = 110
# Maximum number of classes whose names are shown.
_MOST_WORDS = 100
# Maximum number of clients in pairwise distances, evenly spaced.
_MOST_PAIRED = 500
# Integers below this are classes, others are numeric targets.
_MOST_CLASSES = 1000


def label_distribution(
  partition: partition_lib.Partition,
  labels: np.ndarray,
  path: pathlib.Path,
  *,
  title: str = '',
  classes: Sequence[str] = (),
) -> None:
  """Plots the labels of each client, one client per row.

  A client is a row of a heat map. Below is a histogram over all clients of the
  number of different labels (Figure 14 of Reddi et al., arXiv 2003.00295).

  Args:
    partition: Example indices per client. The upper part shows the first 100
      clients.
    labels: The label of each example, int [examples], from 0.
    path: PNG file to write.
    title: Of the picture.
    classes: Words for labels, by label; the labels themselves unless given.
  """
  all_counts = partition.label_counts(labels)
  counts = all_counts[:_MOST_CLIENTS]
  drawn = '' if len(all_counts) == len(counts) else 'the first '
  rows = [
    dict(client=int(client), label=int(label), count=int(counts[client, label]))
    for client, label in np.argwhere(counts)
  ]
  axis = alt.Axis(title='label', labelAngle=0, labelOverlap=True)
  if counts.shape[1] <= min(_MOST_WORDS, len(classes)):
    words = json.dumps([' '.join(name.split()) for name in classes])
    axis = alt.Axis(
      title='label',
      labelAngle=-90,
      labelFontSize=7,
      labelLimit=120,
      labelExpr=f'{words}[datum.value]',
    )
  upper = (
    alt.Chart(drawing.table(rows), width=_WIDTH, height=_ROW * len(counts))
    .mark_rect()
    .encode(
      x=alt.X(
        'label:O',
        scale=alt.Scale(domain=list(range(counts.shape[1]))),
        axis=axis,
      ),
      y=alt.Y(
        'client:O',
        scale=alt.Scale(domain=list(range(len(counts)))),
        axis=alt.Axis(
          title=f'{drawn}{len(counts)} clients', labels=False, ticks=False
        ),
      ),
      color=alt.Color(
        'count:Q',
        scale=alt.Scale(scheme='viridis'),
        legend=alt.Legend(title='examples'),
      ),
    )
  )
  picture = alt.vconcat(
    upper,
    _histogram(np.count_nonzero(all_counts, axis=1)),
    resolve=alt.Resolve(scale=alt.ScaleResolveMap(color='independent')),
    title=title,
  )
  path.write_bytes(drawing.image(picture.to_dict(), 'png'))


def _histogram(found: np.ndarray) -> Any:
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
          title='different labels of a client', labelAngle=0, labelOverlap=True
        ),
      ),
      y=alt.Y('clients:Q', axis=alt.Axis(title='clients', tickMinStep=1)),
    )
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


def _has_classes(data: Any) -> bool:
  """Returns whether data are a partition of examples with classes as labels."""
  if not hasattr(data, 'partition') or 'label' not in data.arrays:
    return False
  labels = data.arrays['label']
  return (
    labels.ndim == 1
    and labels.dtype.kind in 'iu'
    and 0 <= labels.min() <= labels.max() < _MOST_CLASSES
  )


def draw_partition(
  data: Any, folder: pathlib.Path, *, title: str = '', task: str = ''
) -> None:
  """Plots a partition's labels as labels.png, if examples have classes.

  Writes nothing for natural clients.

  Args:
    data: A task's training data.
    folder: Folder to write to.
    title: Title of the figure.
    task: The task's name, for names of its classes.
  """
  if not _has_classes(data):
    return
  labels = data.arrays['label']
  known = registry.classes_of(task, int(labels.max()) + 1)
  label_distribution(
    data.partition,
    labels,
    folder / 'labels.png',
    title=title,
    classes=data.classes or known,
  )


def describe_partition(data: Any) -> Optional[dict[str, Any]]:
  """Computes statistics of clients' sizes and label skew.

  Args:
    data: A task's training data.

  Returns:
    A JSON object: the number of clients, their sizes, and means of the
    Jensen-Shannon distance of clients' label distributions to the pool
    (`to_pool`) and to each other (`between_clients`), from 0 to 1. None for
    natural clients or examples without classes.
  """
  if not _has_classes(data):
    return None
  # Takes a fifth of a second to import, which `--help` does not need.
  from scipy.spatial import distance  # pylint: disable=g-import-not-at-top

  sizes = data.partition.sizes
  counts = data.partition.label_counts(data.arrays['label'])
  shares = counts / sizes[:, np.newaxis]
  pool = counts.sum(axis=0) / counts.sum()
  picked = shares
  if len(shares) > _MOST_PAIRED:
    places = np.linspace(0, len(shares) - 1, _MOST_PAIRED).astype(int)
    picked = shares[places]
  # From natural logarithms to those with the base 2.
  between = distance.pdist(picked, 'jensenshannon') / np.sqrt(np.log(2))
  to_pool = distance.jensenshannon(shares, pool[np.newaxis], base=2, axis=1)
  return {
    'clients': len(sizes),
    'examples': {
      'smallest': int(sizes.min()),
      'mean': round(float(sizes.mean()), 2),
      'largest': int(sizes.max()),
    },
    'label_distances': {
      'to_pool': round(float(to_pool.mean()), 6),
      'between_clients': round(float(between.sum() / max(len(between), 1)), 6),
    },
  }
