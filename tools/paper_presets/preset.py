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

  def text(self) -> str:
    """The flag file."""
    lines = [f'# source: {self.source}']
    if self.published is not None:
      lines.append(f'# published: {self.published}')
    if self.note is not None:
      lines.append(f'# note: {self.note}')
    for name, value in self.flags.items():
      shown = f'{value:.6g}' if isinstance(value, float) else value
      lines.append(f'--{name}={shown}')
    return '\n'.join(lines) + '\n'
