"""Learning rates that depend on the number of completed rounds.

The FedOpt reference's schedules under its names, and the step decay of
Delta-SGD's baselines.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.lazy import tf

# Which arguments each schedule needs, and which others it takes.
_SMOOTH = (('lr_decay_steps', 'lr_decay_rate'), ('lr_staircase',))
_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
  'constant': ((), ()),
  'exp_decay': _SMOOTH,
  'inv_lin_decay': _SMOOTH,
  'inv_sqrt_decay': _SMOOTH,
  'step_decay': (('lr_decay_steps',), ('lr_decay_rate',)),
  'cosine': (('lr_decay_steps',), ('lr_minimum',)),
  'linear': (('lr_decay_steps',), ('lr_minimum',)),
  'wsd': (('lr_decay_steps', 'lr_stable_steps'), ('lr_minimum',)),
  'wsd_sqrt': (('lr_decay_steps', 'lr_stable_steps'), ('lr_minimum',)),
}
_ARGUMENT_NAMES = (
  'lr_decay_steps',
  'lr_decay_rate',
  'lr_staircase',
  'lr_stable_steps',
  'lr_minimum',
)
# Schedules that end at a share of the rate, on the command line with the run.
TO_MINIMUM = ('cosine', 'linear', 'wsd', 'wsd_sqrt')


class Schedule(parameters.Described):
  """A learning rate as a function of completed rounds.

  With r the completed rounds since the end of the warm-up, and q = r /
  decay_steps (the integer quotient with staircase):

    constant         lr
    exp_decay        lr decay_rate^q
    inv_lin_decay    lr / (1 + decay_rate q)
    inv_sqrt_decay   lr / sqrt(1 + decay_rate q)
    step_decay       lr, times decay_rate from 50 % of decay_steps on, times
                     decay_rate again from 75 % on
    cosine           lr (f + (1 - f) (1 + cos(pi p)) / 2)
    linear, wsd      lr (f + (1 - f) (1 - p))
    wsd_sqrt         lr (f + (1 - f) (1 - sqrt(p)))

  with f = minimum and p = (r - stable_steps) / decay_steps, held to 0 .. 1.
  During the warm-up of W rounds, round r (from 0) has the rate
  lr (r + 1) / W.

  Raises:
    ParameterError: If the schedule lacks an argument or would ignore one.
  """

  lr_schedule: Literal[
    'constant',
    'exp_decay',
    'inv_lin_decay',
    'inv_sqrt_decay',
    'step_decay',
    'cosine',
    'linear',
    'wsd',
    'wsd_sqrt',
  ] = 'constant'
  """Which schedule."""

  lr_decay_steps: Optional[parameters.Count] = None
  """Rounds of one unit of decay; for step_decay all rounds of the run. Needed
  by every schedule but constant."""

  lr_decay_rate: Optional[parameters.Positive] = None
  """How much one unit decays; needed by exp_decay, inv_lin_decay and
  inv_sqrt_decay, 0.1 for step_decay unless given."""

  lr_staircase: Optional[bool] = None
  """Whether the decay goes in whole units; no unless given."""

  lr_stable_steps: Optional[parameters.NonNegativeInt] = None
  """Rounds between warm-up and decay that have the full rate; needed by wsd and
  wsd_sqrt."""

  lr_minimum: Optional[parameters.Probability] = None
  """f, the share of the rate that cosine, linear, wsd and wsd_sqrt end at; 0
  unless given."""

  lr_warmup_steps: parameters.NonNegativeInt = 0
  """Rounds of linear warm-up."""

  def check(self) -> None:
    needed, others = _ARGUMENTS[self.lr_schedule]
    given = [
      name for name in _ARGUMENT_NAMES if getattr(self, name) is not None
    ]
    stray = [name for name in given if name not in (*needed, *others)]
    if stray:
      raise parameters.ParameterError(
        stray[0],
        f'{_listed(stray, ", ")} would be ignored: '
        '{lr_schedule} is {chosen!r}.',
        chosen=self.lr_schedule,
      )
    missing = [name for name in needed if name not in given]
    if missing:
      raise parameters.ParameterError(
        'lr_schedule',
        f'{{}}={{chosen!r}} needs {_listed(missing, " and ")}.',
        chosen=self.lr_schedule,
      )

  @property
  def is_constant(self) -> bool:
    """Whether the schedule leaves the rate as it is."""
    return self.lr_schedule == 'constant' and not self.lr_warmup_steps

  def build(self, learning_rate: float) -> Optional[Scheduled]:
    """Returns the function of completed rounds, or `None` for a constant rate.

    Args:
      learning_rate: The rate lr that the schedule starts from.

    Returns:
      A function from an integer scalar to a float32 scalar.
    """
    return None if self.is_constant else Scheduled(self, learning_rate)

  def rate(
    self, learning_rate: tf.Tensor, round_number: tf.Tensor
  ) -> tf.Tensor:
    """Computes the rate after some rounds, float32 scalar.

    Args:
      learning_rate: lr, float32 scalar.
      round_number: Completed rounds, integer scalar.
    """
    completed = tf.cast(round_number, tf.float32)
    after = tf.maximum(completed - self.lr_warmup_steps, 0.0)
    rate = learning_rate
    if self.lr_schedule in TO_MINIMUM:
      rate = self._towards_minimum(rate, after)
    elif self.lr_decay_steps is not None:
      units = after / self.lr_decay_steps
      if self.lr_staircase:
        units = tf.floor(units)
      rate = self._decayed(rate, units)
    if self.lr_warmup_steps:
      rate = tf.where(
        completed < self.lr_warmup_steps,
        learning_rate * (completed + 1) / self.lr_warmup_steps,
        rate,
      )
    return rate

  def _towards_minimum(self, rate: tf.Tensor, after: tf.Tensor) -> tf.Tensor:
    """Computes the rate some rounds after the warm-up, float32 scalars."""
    assert self.lr_decay_steps is not None
    progress = tf.clip_by_value(
      (after - (self.lr_stable_steps or 0)) / self.lr_decay_steps, 0.0, 1.0
    )
    if self.lr_schedule == 'cosine':
      left = (1 + tf.cos(math.pi * progress)) / 2
    elif self.lr_schedule == 'wsd_sqrt':
      left = 1 - tf.sqrt(progress)
    else:
      left = 1 - progress
    least = self.lr_minimum or 0.0
    return rate * (least + (1 - least) * left)

  def _decayed(self, rate: tf.Tensor, units: tf.Tensor) -> tf.Tensor:
    """Computes the rate after some units of decay, float32 scalars."""
    decay_rate = 0.1 if self.lr_decay_rate is None else self.lr_decay_rate
    if self.lr_schedule == 'exp_decay':
      return rate * tf.pow(decay_rate, units)
    if self.lr_schedule == 'inv_lin_decay':
      return rate / (1 + decay_rate * units)
    if self.lr_schedule == 'inv_sqrt_decay':
      return rate / tf.sqrt(1 + decay_rate * units)
    drops = tf.cast(units >= 0.5, tf.float32)
    drops += tf.cast(units >= 0.75, tf.float32)
    return rate * tf.pow(decay_rate, drops)


@dataclasses.dataclass(frozen=True)
class Scheduled:
  """A schedule as a function of completed rounds.

  Attributes:
    schedule: What happens to the rate.
    learning_rate: Where it starts.
  """

  schedule: Schedule
  learning_rate: float

  def __call__(self, round_number: tf.Tensor) -> tf.Tensor:
    return self.of(tf.constant(self.learning_rate, tf.float32), round_number)

  def of(self, learning_rate: tf.Tensor, round_number: tf.Tensor) -> tf.Tensor:
    """Computes the rate of one that starts elsewhere; see `Schedule.rate`."""
    return self.schedule.rate(learning_rate, round_number)


def _listed(names: Sequence[str], between: str) -> str:
  """Lists names for the problem of a `ParameterError`."""
  return between.join(f'{{{name}}}' for name in names)
