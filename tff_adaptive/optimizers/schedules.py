"""Learning rate schedules over completed rounds.

The schedules of the FedOpt reference code, under its names; the step decay of
Delta-SGD's baselines; and cosine, linear and warmup-stable-decay schedules.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive.lazy import tf

# Required and optional arguments of each schedule.
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
# Schedules that decay to a fraction of the initial rate. On the command line
# they end with the run by default.
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
                     decay_rate again from 75 % on, in rounds of the whole run
    cosine           lr (f + (1 - f) (1 + cos(pi p)) / 2)
    linear, wsd      lr (f + (1 - f) (1 - p))
    wsd_sqrt         lr (f + (1 - f) (1 - sqrt(p)))

  with f = minimum and p = (r - stable_steps) / decay_steps, clipped to [0, 1].
  During a warm-up of W rounds, round r (from 0) has the rate lr (r + 1) / W.

  Raises:
    ParameterError: If a required argument is missing, or an argument does not
      apply to the schedule.
  """

  later: ClassVar[frozenset[str]] = frozenset({'lr_stable_steps', 'lr_minimum'})

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
  """Name of the schedule."""

  lr_decay_steps: Optional[parameters.Count] = None
  """Number of rounds per unit of decay; for step_decay, the total number of
  rounds. Required by every schedule except constant; on the command line,
  step_decay, cosine, linear, wsd and wsd_sqrt end with the run by default.
  """

  lr_decay_rate: Optional[parameters.Positive] = None
  """Decay per unit; required by exp_decay, inv_lin_decay and inv_sqrt_decay,
  0.1 by default for step_decay.
  """

  lr_staircase: Optional[bool] = None
  """Whether to decay at whole units only; by default no."""

  lr_stable_steps: Optional[parameters.NonNegativeInt] = None
  """Rounds at the full rate between warm-up and decay; required by wsd and
  wsd_sqrt."""

  lr_minimum: Optional[parameters.Probability] = None
  """f, the final rate of cosine, linear, wsd and wsd_sqrt as a fraction of the
  initial rate; 0 by default.
  """

  lr_warmup_steps: parameters.NonNegativeInt = 0
  """Number of rounds of linear warm-up."""

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
    """Whether the rate never changes."""
    return self.lr_schedule == 'constant' and not self.lr_warmup_steps

  def build(self, learning_rate: float) -> Optional[Scheduled]:
    """Returns the schedule as a function, or `None` for a constant rate.

    Args:
      learning_rate: The base rate lr.

    Returns:
      A function from the completed rounds, an integer scalar, to the rate, a
      float32 scalar.
    """
    return None if self.is_constant else Scheduled(self, learning_rate)

  def rate(
    self, learning_rate: tf.Tensor, round_number: tf.Tensor
  ) -> tf.Tensor:
    """Computes the rate after some rounds, float32 scalar.

    Args:
      learning_rate: The base rate lr, float32 scalar.
      round_number: Number of completed rounds, integer scalar.
    """
    completed = tf.cast(round_number, tf.float32)
    after = tf.maximum(completed - self.lr_warmup_steps, 0.0)
    rate = learning_rate
    if self.lr_schedule in TO_MINIMUM:
      rate = self._towards_minimum(rate, after)
    elif self.lr_decay_steps is not None:
      # Step decay is of all rounds, those of the warm-up too.
      whole = self.lr_schedule == 'step_decay'
      units = (completed if whole else after) / self.lr_decay_steps
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
    """Computes the rate of schedules that end at a minimum, float32 scalar."""
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
    """Computes the rate after some units of decay, float32 scalar."""
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
  """A schedule with a base rate, callable with the completed rounds.

  Attributes:
    schedule: The schedule.
    learning_rate: The base rate.
  """

  schedule: Schedule
  learning_rate: float

  def __call__(self, round_number: tf.Tensor) -> tf.Tensor:
    rate = tf.constant(self.learning_rate, tf.float32)
    return self.schedule.rate(rate, round_number)


def _listed(names: Sequence[str], between: str) -> str:
  """Joins names as placeholders in the message of a `ParameterError`."""
  return between.join(f'{{{name}}}' for name in names)
