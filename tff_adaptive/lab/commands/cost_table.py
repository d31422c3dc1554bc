"""Table of methods' costs per client, compared with FedAda2's paper."""

import dataclasses
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """The costs of a method for one client.

  Attributes:
    model: Bytes of the trainable weights, the unit d.
    down, up: Bytes that a client receives and sends in a round.
    optimizer_state: Bytes of the client optimizer's state between local steps.
    context: Bytes of the exchange's context in a round, such as a correction
      of gradients or a previous model.
    kept: Bytes of the client state kept between rounds, which is not sent.
    gradients: Number of batch gradients computed per local step, including that
      of a full-gradient pass over the data.
  """

  model: int
  down: int
  up: int
  optimizer_state: int
  context: int
  kept: int
  gradients: int

  def in_models(self, size: float) -> float:
    """Converts bytes to units of d."""
    return size / self.model

  @property
  def traffic(self) -> float:
    """Sum of `down` and `up`, in units of d."""
    return self.in_models(self.down + self.up)

  @property
  def memory(self) -> float:
    """Memory for model, optimizer, context and client state, in units of d.

    As counted in FedAda2's paper: includes the model once, excludes batches,
    activations, the current gradient and the received model.
    """
    return self.in_models(
      self.model + self.optimizer_state + self.context + self.kept
    )


@dataclasses.dataclass(frozen=True)
class PublishedCosts:
  """A row of Table 2 of FedAda2's paper, in units of d."""

  traffic: int
  gradients: int
  memory: int


# arXiv 2410.18117, Table 2.
PUBLISHED: Mapping[str, PublishedCosts] = {
  'fedavg': PublishedCosts(2, 1, 1),
  'fedadagrad': PublishedCosts(2, 1, 1),
  'direct_joint': PublishedCosts(3, 1, 2),
  'fedada2': PublishedCosts(2, 1, 2),
  'mime': PublishedCosts(5, 3, 4),
  'mimelite': PublishedCosts(4, 2, 3),
}


_HEADER = (
  'method', 'down B', 'up B', 'down d', 'up d', 'traffic d', 'paper',
  'optimizer B', 'kept B', 'memory d', 'paper', 'gradients', 'paper',
)  # fmt: skip
_BYTES = (1, 2, 7, 8)
# Upper bound of what methods send or keep, in units of d, for column widths.
_MOST = 10


def lines(
  task: str,
  names: Sequence[str],
  rows: Iterable[tuple[str, Optional[Costs]]],
) -> Iterator[str]:
  """Renders the table, yielding each line as soon as its row is measured.

  Figures of the paper are shown next to the measured ones.

  Args:
    task: Name of the task whose model is measured.
    names: All methods of the table, which determine the first column's width.
    rows: Methods and costs; `None` for a method that cannot train the model.

  Yields:
    A line with the model's size, the header, and one line per method.
  """
  waiting, widths = [], None
  for name, costs in rows:
    waiting.append(_cells(name, costs))
    if widths is None and costs is not None:
      widths = _widths(names, costs.model)
      yield f'{task}: d = {costs.model:,} bytes of trainable weights'
      yield _line(_HEADER, widths)
    if widths is not None:
      yield from (_line(cells, widths) for cells in waiting)
      waiting = []
  if waiting:  # None of them was measured.
    yield f'{task}:'
    yield from (_line(cells, _widths(names, 0)) for cells in waiting)


def _widths(names: Sequence[str], model: int) -> list[int]:
  widths = [max(6, len(title)) for title in _HEADER]
  widths[0] = max(map(len, [_HEADER[0], *names]))
  for i in _BYTES:
    widths[i] = max(widths[i], len(f'{_MOST * model:,}'))
  return widths


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
  first, *others = cells
  shown = [first.ljust(widths[0])]
  shown += [cell.rjust(width) for cell, width in zip(others, widths[1:])]
  return '  '.join(shown).rstrip()


def _cells(name: str, costs: Optional[Costs]) -> list[str]:
  if costs is None:
    return [name, 'not for this model']
  said = PUBLISHED.get(name)
  return [
    name,
    f'{costs.down:,}',
    f'{costs.up:,}',
    f'{costs.in_models(costs.down):.3f}',
    f'{costs.in_models(costs.up):.3f}',
    f'{costs.traffic:.3f}',
    '' if said is None else f'{said.traffic}',
    f'{costs.optimizer_state:,}',
    f'{costs.kept:,}',
    f'{costs.memory:.3f}',
    '' if said is None else f'{said.memory}',
    f'{costs.gradients}',
    '' if said is None else f'{said.gradients}',
  ]
