"""One preset, as a flag file has it."""

import dataclasses
from typing import Any
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Row:
  """One preset: PAPER/TASK/METHOD, its flags and what the paper says."""

  name: str
  flags: dict[str, Any]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def __post_init__(self) -> None:
    # The papers' numbers are of evaluations on test data.
    self.flags.setdefault('validation_split', 'test')

  def text(self) -> str:
    """Renders the flag file."""
    lines = [f'# source: {self.source}']
    if self.published is not None:
      lines.append(f'# published: {self.published}')
    if self.note is not None:
      lines.append(f'# note: {self.note}')
    for name, value in self.flags.items():
      shown = f'{value:.6g}' if isinstance(value, float) else value
      lines.append(f'--{name}={shown}')
    return '\n'.join(lines) + '\n'


def whole_images(task: str) -> dict[str, Any]:
  """Returns flags of networks on whole CIFAR images, without weight decay.

  The tasks' own defaults are of Reddi et al.: pieces of 24 x 24 pixels, a
  beginning with stride, and weight decay.
  """
  return {
    f'{task}_crop_size': 32,
    f'{task}_stem': 'small',
    f'{task}_weight_decay': 0,
  }
