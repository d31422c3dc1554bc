"""Figures of the distribution of a task's examples over its clients.

    python -m tasks.figures TASK PICTURE [--cache_dir=DIR] [--OPTION=VALUE ...]

plots each client's numbers of examples by label, and below that a histogram of
the number of different labels per client.
"""

import base64
import io
import json
import os
import pathlib
import sys
import typing
from collections.abc import Sequence
from typing import Any
from typing import cast
from typing import Optional
from typing import Union

import numpy as np

import tasks
from tasks import class_names
from tasks import partition as partition_lib
from tasks.divisions import distances
from tff_adaptive import drawing
from tff_adaptive import parameters
from tff_adaptive.lazy import alt

# Maximum number of rows that can be distinguished in a figure.
_MOST_CLIENTS = 100
# Maximum number of distinguishable colors.
_MOST_COLOURS = 20
# Pixels: the width, a client's row in the picture of labels and of features,
# and the histogram below.
_WIDTH = 560
_ROW = 11
_FEATURES_ROW = 56
_HISTOGRAM = 110
# Letters of a class, and of a row of the legend; words below a map.
_LONGEST_WORD = 24
_LETTERS_OF_A_ROW = 80
_MOST_WORDS = 100
# Number of clients, and of images of each, in the figure of features.
_ROWS_OF_FEATURES = 10


def label_distribution(
  partition: partition_lib.Partition,
  labels: np.ndarray,
  path: Union[str, 'os.PathLike[str]'],
  *,
  title: str = '',
  classes: Sequence[str] = (),
) -> None:
  """Plots the labels of each client, one client per row.

  A client is a stacked bar for up to 20 labels, else a row of a heat map. Below
  is a histogram over all clients of the number of different labels (Figure 14
  of Reddi et al., arXiv 2003.00295).

  Args:
    partition: Example indices per client. The upper part shows the first 100
      clients.
    labels: The label of each example, int [examples], from 0.
    path: Picture to write, which ends in .pdf, .png or .svg.
    title: Of the picture.
    classes: Words for labels, by label; the labels themselves unless given.

  Raises:
    ValueError: If the picture's name has another ending.
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
    _histogram(np.count_nonzero(all_counts, axis=1)),
    resolve=alt.Resolve(scale=alt.ScaleResolveMap(color='independent')),
    title=title,
  )
  _write(picture, path)


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


def _write(picture: Any, path: Union[str, 'os.PathLike[str]']) -> None:
  """Writes a picture in the format that its name's ending says."""
  form = pathlib.Path(path).suffix.removeprefix('.').lower()
  if form not in typing.get_args(drawing.Format):
    raise ValueError(
      "A picture's name must end in .pdf, .png or .svg, got "
      f'{os.fspath(path)!r}.'
    )
  image = drawing.image(picture.to_dict(), cast(drawing.Format, form))
  pathlib.Path(path).write_bytes(image)


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
  """Plots a partition's labels, if examples have labels, and feature skew.

  Writes labels.png, and with feature skew (`Divided.feature_skew`)
  features.png, or nothing for natural clients.

  Args:
    data: A task's training data.
    folder: Folder to write to.
    title: Title of the figures.
    task: The task's name, for names of its classes.
  """
  if not hasattr(data, 'partition'):
    return
  if 'label' in data.arrays:
    labels, classes = _labels(data, task)
    label_distribution(
      data.partition,
      labels,
      folder / 'labels.png',
      title=title,
      classes=classes,
    )
  if data.skewed:
    feature_skew(data, folder / 'features.png', title=title)


def describe_partition(data: Any) -> Optional[dict[str, Any]]:
  """Computes a partition's statistics, see `distances.describe`.

  Returns:
    None for natural clients or examples without labels.
  """
  if not hasattr(data, 'partition') or 'label' not in data.arrays:
    return None
  return distances.describe(data.partition, data.arrays['label'])


def _labels(data: Any, task: str) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns labels as int64 [examples], and the names of their classes.

  Names are those of the data or of the task, or the ranges of binned numeric
  labels.
  """
  labels, between = distances.as_labels(data.arrays['label'])
  known = class_names.of(task, int(labels.max()) + 1)
  return labels, between or data.classes or known


def feature_skew(
  data: Any, path: Union[str, 'os.PathLike[str]'], *, title: str = ''
) -> None:
  """Plots the features of up to ten clients, evenly spaced.

  A row per client: its first images, or the means of other features.

  Args:
    data: Clients' data, with `skewed`.
    path: Picture to write, which ends in .pdf, .png or .svg.
    title: Of the picture.
  """
  features = np.asarray(data.arrays[data.skewed])
  indices = data.partition.indices
  count = min(_ROWS_OF_FEATURES, len(indices))
  drawn = np.unique(np.linspace(0, len(indices) - 1, count).astype(int))
  names = [data.client_ids[i] for i in drawn]
  rows: list[dict[str, Any]]
  if features.ndim > 2:
    rows = [
      dict(client=name, url=_strip(features[indices[i][:_ROWS_OF_FEATURES]]))
      for name, i in zip(names, drawn, strict=True)
    ]
  else:
    rows = [
      dict(client=name, feature=feature, mean=float(mean))
      for name, i in zip(names, drawn, strict=True)
      for feature, mean in enumerate(features[indices[i]].mean(axis=0))
    ]
  height = _FEATURES_ROW * len(names)
  base = alt.Chart(
    drawing.table(rows), width=_WIDTH, height=height, title=title
  ).encode(y=alt.Y('client:N', sort=names, axis=alt.Axis(title=None)))
  if features.ndim > 2:
    picture = base.mark_image(
      align='left', width=_WIDTH, height=_FEATURES_ROW
    ).encode(x=alt.value(0), url='url:N')
  else:
    picture = base.mark_rect().encode(
      x=alt.X('feature:O', axis=alt.Axis(labelAngle=0, labelOverlap=True)),
      color=alt.Color('mean:Q', scale=alt.Scale(scheme='viridis')),
    )
  _write(picture, path)


def _strip(images: np.ndarray) -> str:
  """Puts a client's first images side by side; returns a PNG as a URL."""
  from PIL import Image  # pylint: disable=g-import-not-at-top

  height, width = images.shape[1:3]
  channels = images.shape[3] if images.ndim > 3 else 1
  sheet = np.full([height, _ROWS_OF_FEATURES, width, channels], 255, np.uint8)
  scale = 1 if images.dtype == np.uint8 else 255
  for column, image in enumerate(images.reshape(-1, height, width, channels)):
    sheet[:, column] = np.clip(scale * image, 0, 255)
  flat = sheet.reshape(height, _ROWS_OF_FEATURES * width, channels)
  strip = Image.fromarray(flat if channels == 3 else flat[..., 0])
  buffer = io.BytesIO()
  # Enlarged here, so that pixels keep their edges.
  strip.resize(
    (4 * strip.width, 4 * strip.height), Image.Resampling.NEAREST
  ).save(buffer, 'png')
  text = base64.b64encode(buffer.getvalue()).decode('ascii')
  return f'data:image/png;base64,{text}'


def main(argv: Optional[Sequence[str]] = None) -> int:
  """Plots a task's clients; returns an exit status."""
  words = list(sys.argv[1:] if argv is None else argv)
  names = [word for word in words if not word.startswith('--')]
  if len(names) != 2:
    print(__doc__.splitlines()[2].strip(), file=sys.stderr)
    return 2
  name, path = names
  # Hides TensorFlow's messages at startup.
  os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
  try:
    accepted = tasks.parameters_of(name)
    options = {}
    for word in words:
      if word.startswith('--'):
        option, _, value = word[2:].partition('=')
        if option not in accepted:
          raise ValueError(
            f'Task {name} has no option --{option}; it takes '
            f'{", ".join(accepted)}.'
          )
        options[option] = accepted[option].parse(value)
    data = tasks.create(name, **options).datasets.train_data
    if not hasattr(data, 'partition') or 'label' not in data.arrays:
      raise ValueError(
        f'The clients of {name} are given by the data, not by a partition; '
        'there is nothing to plot.'
      )
    labels, classes = _labels(data, name)
    label_distribution(
      data.partition, labels, path, title=name, classes=classes
    )
  except parameters.ParameterError as e:
    print(e.told(lambda option: f'--{option}'), file=sys.stderr)
    return 2
  except (ValueError, OSError) as e:
    print(e, file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
