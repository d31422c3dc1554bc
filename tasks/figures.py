"""Pictures of how a task's examples are distributed over its clients.

    python -m tasks.figures TASK PICTURE [--cache_dir=DIR] [--OPTION=VALUE ...]

draws, for each client, how many examples of each label it has, and below it of
how many clients have so many different labels.
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

# More rows than this cannot be told apart in a picture.
_MOST_CLIENTS = 100
# Nor more colours than this.
_MOST_COLOURS = 20
# Inches of the histogram below.
_HISTOGRAM = 1.6
# Letters of a class, and of a row of the legend; words below a map.
_LONGEST_WORD = 24
_LETTERS_OF_A_ROW = 80
_MOST_WORDS = 100
# Clients, and images of each, in the picture of features.
_ROWS_OF_FEATURES = 10


def label_distribution(
  partition: partition_lib.Partition,
  labels: np.ndarray,
  path: Union[str, 'os.PathLike[str]'],
  *,
  title: str = '',
  classes: Sequence[str] = (),
) -> None:
  """Draws the labels of each client, clients one below the other.

  With up to 20 labels a client is a bar, with more it is a row of a map. Below
  that is a histogram over all clients: how many different labels they have
  (Figure 14 of Reddi et al., arXiv 2003.00295).

  Args:
    partition: Which examples belong to which client. Of more than 100 clients
      the upper part has the first 100.
    labels: The label of each example, int [examples], from 0.
    path: Picture to write; its ending decides the format.
    title: Of the picture.
    classes: Words for labels, by label; the labels themselves unless given.
  """
  # Drawing costs a second to import and needs no screen.
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
  """Draws how many clients have so many different labels."""
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
  """Makes the words for labels short enough for a picture."""
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
  """Draws a bar a client, with a piece for each label."""
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
      # matplotlib takes what begins with _ for no name.
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
    # Words may have dollar signs, which stand for mathematics otherwise.
    text.set_parse_math(False)


def _draw_map(
  figure: Any, axes: Any, counts: np.ndarray, words: Sequence[str]
) -> None:
  """Draws a row a client, a column a label, for too many labels to colour."""
  image = axes.imshow(counts, aspect='auto', interpolation='none')
  axes.set_xlabel('label')
  numbers = list(map(str, range(len(words))))
  if len(words) <= _MOST_WORDS and list(words) != numbers:
    axes.set_xticks(
      range(len(words)), words, rotation=90, fontsize=5, parse_math=False
    )
  figure.colorbar(image, label='examples')


def save_partition(data: Any, folder: pathlib.Path) -> None:
  """Keeps with a run which examples belonged to which client.

  Writes partition.npz (see `Partition.load`); nothing where the clients are
  those of a data set.

  Args:
    data: A task's training data.
    folder: Where to.
  """
  if hasattr(data, 'partition'):
    data.partition.save(folder / 'partition.npz')


def draw_partition(
  data: Any, folder: pathlib.Path, *, title: str = '', task: str = ''
) -> None:
  """Draws the labels of each client's examples, where these have labels.

  Writes labels.png, and features.png where clients have features of their own
  (`Divided.feature_skew`); nothing where the clients are those of a data set.

  Args:
    data: A task's training data.
    folder: Where to.
    title: Of the picture.
    task: The task's name, by which the words of its classes may be known.
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
  """Describes how uneven a partition is, see `distances.describe`.

  Returns:
    None where the clients are those of a data set, or without labels.
  """
  if not hasattr(data, 'partition') or 'label' not in data.arrays:
    return None
  return distances.describe(data.partition, data.arrays['label'])


def _labels(data: Any, task: str) -> tuple[np.ndarray, tuple[str, ...]]:
  """Returns labels as int64 [examples], and the words of their classes.

  These are the data's, or of the task's classes, or say between which numbers a
  label is that is a number.
  """
  labels, between = distances.as_labels(data.arrays['label'])
  known = class_names.of(task, int(labels.max()) + 1)
  return labels, between or data.classes or known


def feature_skew(
  data: Any, path: Union[str, 'os.PathLike[str]'], *, title: str = ''
) -> None:
  """Draws the features of up to ten clients, first to last.

  Of images a row a client, with its first ones; of other features a row a
  client, with the mean of each.

  Args:
    data: Clients' data, with `skewed`.
    path: Picture to write; its ending decides the format.
    title: Of the picture.
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
  """Puts clients' first images side by side, a row a client, in [0, 1]."""
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
  """Draws a task's clients; returns an exit status."""
  words = list(sys.argv[1:] if argv is None else argv)
  names = [word for word in words if not word.startswith('--')]
  if len(names) != 2:
    print(__doc__.splitlines()[2].strip(), file=sys.stderr)
    return 2
  name, path = names
  # Whatever TensorFlow logs about its own start.
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
        f'The clients of {name} are its own, not a partition by label; there '
        'is nothing to draw.'
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
