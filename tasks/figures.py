"""Figures of the distribution of a task's examples over its clients.

    python -m tasks.figures TASK PICTURE [--cache_dir=DIR] [--OPTION=VALUE ...]

plots each client's numbers of examples by label, and below that a histogram of
the number of different labels per client.
"""

import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Union

import numpy as np

import tasks
from tasks import class_names
from tasks import partition as partition_lib
from tasks.divisions import distances
from tff_adaptive import parameters

# Maximum number of rows that can be distinguished in a figure.
_MOST_CLIENTS = 100
# Maximum number of distinguishable colors.
_MOST_COLOURS = 20
# Height of the histogram in inches.
_HISTOGRAM = 1.6
# Characters of a class name and of a legend row; number of names below a map.
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
    path: Figure file to write; its extension selects the format.
    title: Title of the figure.
    classes: Names of classes by label; by default the labels.
  """
  # Takes a second to import; Agg needs no display.
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg

  all_counts = partition.label_counts(labels)
  counts = all_counts[:_MOST_CLIENTS]
  num_clients, num_classes = counts.shape
  upper = 1.5 + 0.12 * num_clients
  figure = figure_lib.Figure(
    figsize=(7, upper + _HISTOGRAM), layout='constrained'
  )
  backend_agg.FigureCanvasAgg(figure)
  axes, below = figure.subplots(2, height_ratios=(upper, _HISTOGRAM))
  _draw_histogram(below, np.count_nonzero(all_counts, axis=1))
  draw = _draw_bars if num_classes <= _MOST_COLOURS else _draw_map
  draw(figure, axes, counts, _words(classes, num_classes))
  drawn = '' if len(partition.client_ids) == num_clients else 'the first '
  axes.set_ylabel(f'{drawn}{num_clients} clients')
  axes.set_yticks([])
  if title:
    axes.set_title(title)
  figure.savefig(path, dpi=120)


def _draw_histogram(axes: Any, found: np.ndarray) -> None:
  """Plots a histogram of clients' numbers of different labels."""
  from matplotlib import ticker

  axes.hist(
    found,
    bins=np.arange(found.min(), found.max() + 2) - 0.5,
    rwidth=0.9,
    color='0.5',
  )
  axes.set_xlabel('different labels of a client')
  axes.set_ylabel('clients')
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))


def _words(classes: Sequence[str], count: int) -> list[str]:
  """Shortens names of classes for a figure."""
  if len(classes) < count:
    return [str(label) for label in range(count)]
  words = [' '.join(name.split()) for name in classes[:count]]
  printable = [w.encode('utf-8', 'backslashreplace').decode() for w in words]
  return [
    w
    if len(w) <= _LONGEST_WORD
    else f'{w[: _LONGEST_WORD - 1]}\N{HORIZONTAL ELLIPSIS}'
    for w in printable
  ]


def _draw_bars(
  figure: Any, axes: Any, counts: np.ndarray, words: Sequence[str]
) -> None:
  """Plots a stacked bar per client, with a segment for each label."""
  import matplotlib

  num_clients, num_classes = counts.shape
  left = np.zeros(num_clients)
  colours = matplotlib.colormaps['tab20']
  for label in range(num_classes):
    axes.barh(
      np.arange(num_clients),
      counts[:, label],
      left=left,
      color=colours(label / max(num_classes - 1, 1)),
      # matplotlib ignores names with a leading underscore.
      label=f' {words[label]}',
    )
    left += counts[:, label]
  axes.invert_yaxis()
  axes.set_xlabel('examples')
  legend = figure.legend(
    title='label',
    ncols=max(1, min(10, _LETTERS_OF_A_ROW // (max(map(len, words)) + 4))),
    loc='outside lower center',
    handlelength=1.2,
    columnspacing=1.0,
  )
  for text in legend.get_texts():
    # Escapes dollar signs, which would begin math text.
    text.set_parse_math(False)


def _draw_map(
  figure: Any, axes: Any, counts: np.ndarray, words: Sequence[str]
) -> None:
  """Plots a heat map, clients by labels, for many labels."""
  image = axes.imshow(counts, aspect='auto', interpolation='none')
  axes.set_xlabel('label')
  numbers = list(map(str, range(len(words))))
  if len(words) <= _MOST_WORDS and list(words) != numbers:
    axes.set_xticks(
      range(len(words)), words, rotation=90, fontsize=5, parse_math=False
    )
  figure.colorbar(image, label='examples')


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
    path: Figure file to write; its extension selects the format.
    title: Title of the figure.
  """
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg

  features = np.asarray(data.arrays[data.skewed])
  indices = data.partition.indices
  count = min(_ROWS_OF_FEATURES, len(indices))
  drawn = np.unique(np.linspace(0, len(indices) - 1, count).astype(int))
  figure = figure_lib.Figure(figsize=(7, 7), layout='constrained')
  backend_agg.FigureCanvasAgg(figure)
  axes = figure.subplots()
  if features.ndim > 2:
    axes.imshow(_montage(features, [indices[i] for i in drawn]), cmap='gray')
    axes.set_xticks([])
    places = (np.arange(len(drawn)) + 0.5) * features.shape[1]
  else:
    means = np.stack([features[indices[i]].mean(axis=0) for i in drawn])
    image = axes.imshow(means, aspect='auto', interpolation='none')
    figure.colorbar(image, label='mean')
    axes.set_xlabel('feature')
    places = np.arange(len(drawn))
  names = [data.client_ids[i] for i in drawn]
  axes.set_yticks(places, names, parse_math=False)
  if title:
    axes.set_title(title)
  figure.savefig(path, dpi=120)


def _montage(images: np.ndarray, rows: Sequence[np.ndarray]) -> np.ndarray:
  """Returns an image of clients' first images, a row per client, in [0, 1]."""
  height, width = images.shape[1:3]
  channels = images.shape[3] if images.ndim > 3 else 1
  sheet = np.ones([len(rows), height, _ROWS_OF_FEATURES, width, channels])
  scale = 255 if images.dtype == np.uint8 else 1
  for row, indices in enumerate(rows):
    for column, place in enumerate(indices[:_ROWS_OF_FEATURES]):
      image = images[place].reshape(height, width, channels)
      sheet[row, :, column] = np.clip(image / scale, 0, 1)
  sheet = sheet.reshape(len(rows) * height, _ROWS_OF_FEATURES * width, channels)
  return sheet if channels == 3 else sheet[..., 0]


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
