"""Pictures of how a task's examples lie with its clients.

    python -m tasks.figures TASK PICTURE [--cache_dir=DIR] [--OPTION=VALUE ...]

draws, for each client, how many examples of each label it has.
"""

import os
import sys
from collections.abc import Sequence
from typing import Optional
from typing import Union

import numpy as np

import tasks
from tasks import partition as partition_lib

# More rows than this cannot be told apart in a picture.
_MOST_CLIENTS = 100


def label_distribution(
  partition: partition_lib.Partition,
  labels: np.ndarray,
  path: Union[str, 'os.PathLike[str]'],
  *,
  title: str = '',
) -> None:
  """Draws the labels of each client as a bar, clients one below the other.

  Args:
    partition: Which examples belong to which client. Of more than 100 clients
      the first 100 are drawn.
    labels: The label of each example, int [examples], from 0.
    path: Picture to write; its ending decides the format.
    title: Of the picture.
  """
  # Drawing costs a second to import and needs no screen.
  from matplotlib import cm
  from matplotlib import figure as figure_lib
  from matplotlib.backends import backend_agg

  counts = partition.label_counts(labels)[:_MOST_CLIENTS]
  num_clients, num_classes = counts.shape
  figure = figure_lib.Figure(
    figsize=(7, 1.5 + 0.12 * num_clients), layout='constrained'
  )
  backend_agg.FigureCanvasAgg(figure)
  axes = figure.add_subplot()
  left = np.zeros(num_clients)
  colours = cm.get_cmap('tab20' if num_classes <= 20 else 'nipy_spectral')
  for label in range(num_classes):
    axes.barh(
      np.arange(num_clients),
      counts[:, label],
      left=left,
      color=colours(label / max(num_classes - 1, 1)),
      label=str(label),
    )
    left += counts[:, label]
  axes.invert_yaxis()
  axes.set_xlabel('examples')
  drawn = '' if len(partition.client_ids) == num_clients else 'the first '
  axes.set_ylabel(f'{drawn}{num_clients} clients')
  axes.set_yticks([])
  if title:
    axes.set_title(title)
  if num_classes <= 20:
    figure.legend(
      title='label', ncols=10, loc='outside lower center', fontsize='small'
    )
  figure.savefig(path, dpi=120)


def main(argv: Optional[Sequence[str]] = None) -> int:
  """Draws a task's clients; returns an exit status."""
  words = list(sys.argv[1:] if argv is None else argv)
  names = [word for word in words if not word.startswith('--')]
  if len(names) != 2:
    print(__doc__.splitlines()[2].strip(), file=sys.stderr)
    return 2
  name, path = names
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
        options[option] = accepted[option].parse(value, f'--{option}')
    data = tasks.create(name, **options).datasets.train_data
    if not hasattr(data, 'partition') or 'label' not in data.arrays:
      raise ValueError(
        f'The clients of {name} are its own, not a partition by label; there '
        'is nothing to draw.'
      )
    labels = np.asarray(data.arrays['label']).ravel().astype(np.int64)
    label_distribution(data.partition, labels, path, title=name)
  except (ValueError, OSError) as e:
    print(e, file=sys.stderr)
    return 2
  return 0


if __name__ == '__main__':
  sys.exit(main())
