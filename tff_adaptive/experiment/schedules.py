"""Learning rates that change with the round, for clients and server.

Free of TensorFlow: the rate is a number computed between rounds and set in the
process's state, so that nothing is compiled again and a resumed run needs no
memory of it.
"""

import dataclasses
import math
from typing import Optional

from tff_adaptive.experiment import errors

KINDS = (
    'constant',
    'exp_decay',
    'inv_lin_decay',
    'inv_sqrt_decay',
    'step_decay',
)
_NEED_STEPS_AND_RATE = ('exp_decay', 'inv_lin_decay', 'inv_sqrt_decay')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schedule:
  """A learning rate by round, as the released FedOpt code computes it.

  With r the number of completed rounds, less the warm-up:

    constant        rate
    exp_decay       rate * decay_rate ** (r / decay_steps)
    inv_lin_decay   rate / (1 + decay_rate * r / decay_steps)
    inv_sqrt_decay  rate / sqrt(1 + decay_rate * r / decay_steps)
    step_decay      rate, a tenth of it after half of all rounds, and a
                    hundredth after three quarters (Kim et al., Delta-SGD)

  During the first `warmup_steps` rounds the rate is
  rate * (completed rounds + 1) / warmup_steps.

  Attributes:
    side: 'client' or 'server'; names the flags in messages.
    kind: One of `KINDS`.
    decay_steps: Rounds over which `decay_rate` applies once.
    decay_rate: See above.
    staircase: Whether r / decay_steps is rounded down.
    warmup_steps: Rounds of linear warm-up; 0 for none.
    total_rounds: All rounds of the run; step_decay counts in it.
  """

  side: str = 'client'
  kind: str = 'constant'
  decay_steps: Optional[int] = None
  decay_rate: Optional[float] = None
  staircase: bool = False
  warmup_steps: int = 0
  total_rounds: int = 1

  def __post_init__(self):
    prefix = f'--{self.side}_lr_'
    if self.kind not in KINDS:
      raise errors.SettingsError(
          f'{prefix}schedule must be one of {", ".join(KINDS)}, got '
          f'{self.kind!r}.'
      )
    for name in ('decay_steps', 'decay_rate'):
      value = getattr(self, name)
      if self.kind in _NEED_STEPS_AND_RATE:
        if value is None:
          raise errors.SettingsError(
              f'{prefix}schedule={self.kind} needs {prefix}{name}, which has '
              'no default.'
          )
        if not (math.isfinite(value) and value > 0):
          raise errors.SettingsError(
              f'{prefix}{name} must be above 0, got {value}.'
          )
      elif value is not None:
        raise errors.SettingsError(
            f'{prefix}{name}={value} would be ignored by '
            f'{prefix}schedule={self.kind}.'
        )
    if self.staircase and self.kind not in _NEED_STEPS_AND_RATE:
      raise errors.SettingsError(
          f'{prefix}staircase would be ignored by '
          f'{prefix}schedule={self.kind}.'
      )
    if self.warmup_steps < 0:
      raise errors.SettingsError(
          f'{prefix}warmup_steps must be at least 0, got {self.warmup_steps}.'
      )

  @property
  def constant(self) -> bool:
    """Whether the rate never changes."""
    return self.kind == 'constant' and not self.warmup_steps

  def __call__(self, rate: float, completed_rounds: int) -> float:
    """The rate for the round after `completed_rounds` rounds."""
    if completed_rounds < self.warmup_steps:
      return rate * (completed_rounds + 1) / self.warmup_steps
    rounds = completed_rounds - self.warmup_steps
    if self.kind == 'constant':
      return rate
    if self.kind == 'step_decay':
      # Stated in rounds of the whole run, so the warm-up does not shift it.
      if completed_rounds >= 0.75 * self.total_rounds:
        return rate / 100
      return rate / 10 if completed_rounds >= 0.5 * self.total_rounds else rate
    steps = rounds / self.decay_steps
    if self.staircase:
      steps = math.floor(steps)
    if self.kind == 'exp_decay':
      return rate * self.decay_rate**steps
    if self.kind == 'inv_lin_decay':
      return rate / (1 + self.decay_rate * steps)
    return rate / math.sqrt(1 + self.decay_rate * steps)

  def describe(self) -> str:
    """The schedule in words, for the resolved experiment."""
    if self.constant:
      return 'constant'
    words = [self.kind]
    if self.kind in _NEED_STEPS_AND_RATE:
      words.append(f'steps {self.decay_steps}, rate {self.decay_rate:g}')
    if self.staircase:
      words.append('staircase')
    if self.warmup_steps:
      words.append(f'warm-up over {self.warmup_steps} rounds')
    return ', '.join(words)
