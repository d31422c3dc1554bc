"""Learning rates that depend on the number of completed rounds.

The FedOpt reference's schedules under its names, and the step decay of
Delta-SGD's baselines. Importing this module imports no TensorFlow, so that a
wrong flag is refused before anything slow happens.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Literal
from typing import Optional
from typing import TYPE_CHECKING

from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow as tf

# What each schedule needs, and what else it takes.
_SMOOTH = (('lr_decay_steps', 'lr_decay_rate'), ('lr_staircase',))
_ARGUMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
  'constant': ((), ()),
  'exp_decay': _SMOOTH,
  'inv_lin_decay': _SMOOTH,
  'inv_sqrt_decay': _SMOOTH,
  'step_decay': (('lr_decay_steps',), ('lr_decay_rate',)),
}


@parameters.checked
def build_schedule(
  learning_rate: float,
  *,
  lr_schedule: Literal[
    'constant', 'exp_decay', 'inv_lin_decay', 'inv_sqrt_decay', 'step_decay'
  ] = 'constant',
  lr_decay_steps: Optional[parameters.Count] = None,
  lr_decay_rate: Optional[parameters.Positive] = None,
  lr_staircase: Optional[bool] = None,
  lr_warmup_steps: parameters.NonNegativeInt = 0,
) -> Optional[Callable[['tf.Tensor'], 'tf.Tensor']]:
  """Maps completed rounds to a learning rate.

  With r the completed rounds since the end of the warm-up, and q = r /
  decay_steps (the integer quotient with staircase):

    constant         lr
    exp_decay        lr decay_rate^q
    inv_lin_decay    lr / (1 + decay_rate q)
    inv_sqrt_decay   lr / sqrt(1 + decay_rate q)
    step_decay       lr, times decay_rate from 50 % of decay_steps on, times
                     decay_rate again from 75 % on

  During the warm-up of W rounds, round r (from 0) has the rate lr (r + 1) / W.

  Args:
    learning_rate: The rate lr that the schedule starts from.
    lr_schedule: Which schedule.
    lr_decay_steps: Rounds of one unit of decay; for step_decay all rounds of
      the run. Needed by every schedule but constant.
    lr_decay_rate: How much one unit decays; needed by exp_decay, inv_lin_decay
      and inv_sqrt_decay, 0.1 for step_decay unless given.
    lr_staircase: Whether the decay goes in whole units; no unless given.
    lr_warmup_steps: Rounds of linear warm-up.

  Returns:
    A function of an integer scalar, or `None` for a constant rate.

  Raises:
    ParameterError: If the schedule lacks an argument or would ignore one.
  """
  check(
    lr_schedule,
    lr_decay_steps=lr_decay_steps,
    lr_decay_rate=lr_decay_rate,
    lr_staircase=lr_staircase,
  )
  if is_constant(lr_schedule, lr_warmup_steps):
    return None
  decays = lr_schedule != 'constant'
  decay_rate = 0.1 if lr_decay_rate is None else lr_decay_rate

  def schedule(round_number: 'tf.Tensor') -> 'tf.Tensor':
    import tensorflow as tf  # pylint: disable=g-import-not-at-top

    completed = tf.cast(round_number, tf.float32)
    after = tf.maximum(completed - lr_warmup_steps, 0.0)
    rate = tf.constant(learning_rate, tf.float32)
    if decays:
      units = after / lr_decay_steps
      if lr_staircase:
        units = tf.floor(units)
      rate = _decay(lr_schedule, rate, units, decay_rate)
    if lr_warmup_steps:
      rate = tf.where(
        completed < lr_warmup_steps,
        learning_rate * (completed + 1) / lr_warmup_steps,
        rate,
      )
    return rate

  return schedule


def is_constant(lr_schedule: str, lr_warmup_steps: int, **_: object) -> bool:
  """Tells whether a schedule leaves the rate as it is."""
  return lr_schedule == 'constant' and not lr_warmup_steps


def check(
  lr_schedule: str, *, lr_warmup_steps: int = 0, **arguments: object
) -> None:
  """Raises `ParameterError` if an argument is missing, or would be ignored."""
  del lr_warmup_steps  # Goes with all of them.
  needed, others = _ARGUMENTS[lr_schedule]
  given = [name for name, value in arguments.items() if value is not None]
  stray = [name for name in given if name not in (*needed, *others)]
  if stray:
    raise parameters.ParameterError(
      stray[0],
      f'{_listed(stray, ", ")} would be ignored: '
      '{lr_schedule} is {chosen!r}.',
      chosen=lr_schedule,
    )
  missing = [name for name in needed if name not in given]
  if missing:
    raise parameters.ParameterError(
      'lr_schedule',
      f'{{}}={{chosen!r}} needs {_listed(missing, " and ")}.',
      chosen=lr_schedule,
    )


def _listed(names: Sequence[str], between: str) -> str:
  """Lists names for the problem of a `ParameterError`."""
  return between.join(f'{{{name}}}' for name in names)


def _decay(
  lr_schedule: str, rate: 'tf.Tensor', units: 'tf.Tensor', decay_rate: float
) -> 'tf.Tensor':
  """Computes the rate after some units of decay; see `build_schedule`."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  if lr_schedule == 'exp_decay':
    return rate * tf.pow(decay_rate, units)
  if lr_schedule == 'inv_lin_decay':
    return rate / (1 + decay_rate * units)
  if lr_schedule == 'inv_sqrt_decay':
    return rate / tf.sqrt(1 + decay_rate * units)
  drops = tf.cast(units >= 0.5, tf.float32) + tf.cast(units >= 0.75, tf.float32)
  return rate * tf.pow(decay_rate, drops)
