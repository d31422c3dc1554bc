"""The costs of a method for a client, beside those in FedAda2's paper."""

import dataclasses
from collections.abc import Mapping
from typing import Optional

from tff_adaptive.recording import formatting


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """The costs of a method for one client.

  Attributes:
    model: Bytes of the trainable weights, the unit d.
    down, up: Bytes that a client receives and sends in a round.
    optimizer_state: Bytes that its optimizer holds from one local step to the
      next.
    context: Bytes of what the method adds to the gradient or the loss in a
      round: a correction, a previous model.
    kept: Bytes that it keeps from one round to the next; they do not travel.
    gradients: Evaluations of the gradient on a batch for each local step,
      those of the pass over the data before or after the steps included.
  """

  model: int
  down: int
  up: int
  optimizer_state: int
  context: int
  kept: int
  gradients: int

  def in_models(self, size: float) -> float:
    """Expresses bytes in units of d."""
    return size / self.model

  @property
  def traffic(self) -> float:
    """Down and up together, in units of d."""
    return self.in_models(self.down + self.up)

  @property
  def memory(self) -> float:
    """Model, optimizer state, context and what is kept, in units of d.

    As ADA2 counts: the model itself is among it once; batches, activations, the
    gradient at hand and the received model are not.
    """
    return self.in_models(
      self.model + self.optimizer_state + self.context + self.kept
    )


@dataclasses.dataclass(frozen=True)
class PublishedCosts:
  """A row of ADA2's Table 2, in units of d."""

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


def table(rows: Mapping[str, Optional[Costs]]) -> str:
  """Sets the costs side by side, with the paper's figures where it has them.

  Args:
    rows: Costs by method; `None` for a method that the model does not suit.
  """
  header = [
    'method', 'down B', 'up B', 'down d', 'up d', 'traffic d', 'paper',
    'optimizer B', 'kept B', 'memory d', 'paper', 'gradients', 'paper',
  ]  # fmt: skip
  lines = [header]
  for name, costs in rows.items():
    if costs is None:
      lines.append([name, 'not for this model', *([''] * (len(header) - 2))])
      continue
    said = PUBLISHED.get(name)
    lines.append(
      [
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
    )
  return '\n'.join(formatting.aligned(lines, left=1))
