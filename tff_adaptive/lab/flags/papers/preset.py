"""One published experiment, as flags."""

import dataclasses
from typing import Any
from typing import Optional


@dataclasses.dataclass(frozen=True)
class Preset:
  """A published experiment.

  Attributes:
    name: PAPER/TASK/METHOD.
    flags: Its flags by name; texts, whatever they were given as.
    source: The paper, and where in it the settings are.
    published: The number that the paper reports for them, in words, if it
      reports one.
    note: Where the settings depart from the paper, if they do.
  """

  name: str
  flags: dict[str, Any]
  source: str
  published: Optional[str] = None
  note: Optional[str] = None

  def __post_init__(self) -> None:
    # The papers' numbers are of evaluations on test data.
    flags = {**self.flags}
    flags.setdefault('validation_split', 'test')
    texts = {
      name: f'{value:.6g}' if isinstance(value, float) else str(value)
      for name, value in flags.items()
    }
    object.__setattr__(self, 'flags', texts)

  def text(self) -> str:
    """Renders a flag file, which absl's own --flagfile reads."""
    comments = {
      'source': self.source,
      'published': self.published,
      'note': self.note,
    }
    lines = [f'# {k}: {v}' for k, v in comments.items() if v is not None]
    lines += [f'--{name}={text}' for name, text in self.flags.items()]
    return '\n'.join(lines)

  def describe(self) -> str:
    """Says what the paper reports, for --dry_run."""
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

  The tasks' own defaults are of Reddi et al.: pieces of 24 x 24 pixels, a
  beginning with stride, and weight decay.
  """
  return {
    f'{task}_crop_size': 32,
    f'{task}_stem': 'small',
    f'{task}_weight_decay': 0,
  }
