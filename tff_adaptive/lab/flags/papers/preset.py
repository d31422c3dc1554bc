"""A published experiment, as flags."""

import dataclasses
from typing import Any
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Preset:
  """A published experiment.

  Attributes:
    name: PAPER/TASK/METHOD.
    flags: Its flags by name, converted to text.
    source: The paper, and the place of the settings in it.
    published: The result that the paper reports, as text, if any.
    note: Departures of the settings from the paper, if any.
  """

  name: str
  flags: dict[str, Any]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def __post_init__(self) -> None:
    # The papers report evaluations on test data.
    flags = {**self.flags}
    flags.setdefault('validation_split', 'test')
    texts = {
      name: f'{value:.6g}' if isinstance(value, float) else str(value)
      for name, value in flags.items()
    }
    object.__setattr__(self, 'flags', texts)

  def text(self) -> str:
    """Renders a flag file, readable by absl's --flagfile."""
    comments = {
      'source': self.source,
      'published': self.published,
      'note': self.note,
    }
    lines = [f'# {k}: {v}' for k, v in comments.items() if v is not None]
    lines += [f'--{name}={text}' for name, text in self.flags.items()]
    return '\n'.join(lines)

  def describe(self) -> str:
    """Describes the preset and the reported result, for --dry_run."""
    lines = [f'preset       {self.name}', f'source       {self.source}']
    if self.published is None:
      lines.append('reported     the paper gives no number for this setting')
    else:
      lines.append(f'reported     {self.published}')
    if self.note is not None:
      lines.append(f'note         {self.note}')
    return '\n'.join(lines)


def whole_images(task: str) -> dict[str, Any]:
  """Returns flags of networks on whole CIFAR images, without weight decay.

  The tasks' defaults are those of Reddi et al.: crops of 24 x 24 pixels, a
  strided first layer, and weight decay.
  """
  return {
    f'{task}_crop_size': 32,
    f'{task}_stem': 'small',
    f'{task}_weight_decay': 0,
  }
