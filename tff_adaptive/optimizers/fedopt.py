"""The common step of FedAdagrad, FedAdam, FedYogi and FedAMS.

Reddi et al., Adaptive Federated Optimization (arXiv 2003.00295), Algorithms 2
and 5. Once per round and elementwise, with Delta the mean client update:

  m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
  v = rule(v, s^2)                                  s is Delta, or m
  x = x + learning_rate m / (sqrt(v) + epsilon)

The methods differ in `rule` and, for FedAMS, in the denominator. TFF hands the
server optimizer -Delta as gradient; nothing but the sign of the step changes.
"""

import collections
import dataclasses
from collections.abc import Callable
from typing import Optional

import tensorflow as tf

from tff_adaptive import structures
from tff_adaptive.optimizers import rule as rule_lib
from tff_adaptive.optimizers import tree


@dataclasses.dataclass(frozen=True)
class SecondMoment:
  """The way that v follows the squared update s^2.

  Attributes:
    rule: Maps (v, s^2, beta_2) to the next v.
    text: The same, as text.
    decays: Whether the rule uses beta_2.
  """

  rule: Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]
  text: str
  decays: bool = True


@dataclasses.dataclass(frozen=True)
class Maximum:
  """FedAMS' running maximum of v, which divides the step instead of v.

  Attributes:
    start: First value.
    floor: Whether epsilon is inside the maximum, in place of being added to the
      root.
  """

  start: float
  floor: bool


class AdaptiveServerOptimizer(rule_lib.Rule):
  """The common step of the module's docstring, once per round."""

  def __init__(
    self,
    *,
    learning_rate: float,
    beta_1: float,
    beta_2: Optional[float],
    epsilon: float,
    second_moment: SecondMoment,
    squares_momentum: bool,
    bias_correction: bool,
    initial_accumulator: float,
    maximum: Optional[Maximum] = None,
    adds_epsilon: bool = True,
  ):
    """Takes values that the builders have checked and resolved.

    Args:
      learning_rate: Server step.
      beta_1: Decay of m.
      beta_2: Decay of v; `None` where the rule has none.
      epsilon: The adaptivity tau.
      second_moment: The rule of v.
      squares_momentum: Whether v takes m^2 in place of Delta^2.
      bias_correction: Whether the step is multiplied by sqrt(1 - beta_2^t) / (1
        - beta_1^t), t counting rounds from 1.
      initial_accumulator: Where v starts.
      maximum: FedAMS' maximum, or `None`.
      adds_epsilon: Whether epsilon is added to the root.
    """
    super().__init__(
      learning_rate=learning_rate, beta_1=beta_1, epsilon=epsilon
    )
    if beta_2 is not None:
      self.hparams['beta_2'] = beta_2
    self._second_moment = second_moment
    self._squares_momentum = squares_momentum
    self._bias_correction = bias_correction
    self._initial_accumulator = initial_accumulator
    self._maximum = maximum
    self._adds_epsilon = adds_epsilon

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    if self._bias_correction:
      state['step'] = tf.constant(0, tf.int32)
    state['m'] = tree.zeros(specs)
    state['v'] = tree.zeros(specs, self._initial_accumulator)
    if self._maximum is not None:
      state['v_max'] = tree.zeros(specs, self._maximum.start)
    return state

  # TFF's finalizer would, which takes a while and finds nothing.
  @tf.autograph.experimental.do_not_convert
  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    _check_state_match(weights, state['m'], 'm')
    beta_1, epsilon = state['beta_1'], state['epsilon']
    # A rule without decay still takes the argument; it does not look at it.
    beta_2 = state.get('beta_2', beta_1)

    m = tree.map_cast(
      lambda b1, m, g: b1 * m + (1 - b1) * g,
      (beta_1,),
      state['m'],
      gradients,
    )
    squared = tf.nest.map_structure(
      tf.square, m if self._squares_momentum else gradients
    )
    v = tree.map_cast(
      lambda b2, v, s: self._second_moment.rule(v, s, b2),
      (beta_2,),
      state['v'],
      squared,
    )
    new_state = collections.OrderedDict(state, m=m, v=v)
    divisor = v
    if self._maximum is not None:
      divisor = tf.nest.map_structure(tf.maximum, state['v_max'], v)
      if self._maximum.floor:
        divisor = tree.map_cast(
          lambda e, d: tf.maximum(d, e), (epsilon,), divisor
        )
      new_state['v_max'] = divisor
    step = state['learning_rate']
    if self._bias_correction:
      new_state['step'] = state['step'] + 1
      step *= self._correction(beta_1, beta_2, new_state['step'])
    added = epsilon if self._adds_epsilon else tf.zeros_like(epsilon)
    # A coordinate that no client ever moved has m = 0 and, with nothing added
    # to the root, v = 0: it stays where it is.
    new_weights = tree.map_cast(
      lambda step, e, x, m, d: (
        x - step * tf.math.divide_no_nan(m, tf.sqrt(d) + e)
      ),
      (step, added),
      weights,
      m,
      divisor,
    )
    return new_state, new_weights

  def _correction(
    self, beta_1: tf.Tensor, beta_2: tf.Tensor, step: tf.Tensor
  ) -> tf.Tensor:
    count = tf.cast(step, tf.float32)
    factor = 1 / (1 - tf.pow(beta_1, count))
    if self._second_moment.decays:
      factor *= tf.sqrt(1 - tf.pow(beta_2, count))
    return factor

  @property
  def formula(self) -> str:
    """The rule that the switches resolved to, one assignment a line."""
    squared = 'm' if self._squares_momentum else 'Delta'
    rule = self._second_moment.text.replace('s^2', f'{squared}^2')
    lines = [
      'm = beta_1 m + (1 - beta_1) Delta, from 0',
      f'v = {rule}, from {self._initial_accumulator:g}',
    ]
    root = 'v'
    if self._maximum is not None:
      floor = ', epsilon' if self._maximum.floor else ''
      root = 'v_max'
      lines.append(
        f'v_max = max(v_max, v{floor}), from {self._maximum.start:g}'
      )
    rate = 'learning_rate'
    if self._bias_correction:
      root_part = 'sqrt(1 - beta_2^t) ' if self._second_moment.decays else ''
      rate += f' {root_part}/ (1 - beta_1^t)'
    added = ' + epsilon' if self._adds_epsilon else ''
    lines.append(f'x = x + {rate} m / (sqrt({root}){added})')
    lines.append(self.values)
    return '\n'.join(lines)


def _check_state_match(
  weights: structures.Structure, state: structures.Structure, name: str
) -> None:
  try:
    tf.nest.assert_same_structure(weights, state)
    shapes = tf.nest.map_structure(
      lambda x, s: x.shape.is_compatible_with(s.shape) and x.dtype == s.dtype,
      weights,
      state,
    )
    matches = all(tf.nest.flatten(shapes))
  except (TypeError, ValueError):
    matches = False
  if not matches:
    raise ValueError(
      f'The optimizer state `{name}` and the weights do not match: the state '
      f'has {tf.nest.map_structure(lambda t: t.shape, state)}, the weights '
      f'have {tf.nest.map_structure(lambda t: t.shape, weights)}. Initialize '
      'the optimizer with specs of these weights.'
    )


def build(
  rule: SecondMoment,
  *,
  learning_rate: float,
  beta_1: float,
  epsilon: float,
  variant: str,
  second_moment: str,
  bias_correction: Optional[bool],
  initial_accumulator: Optional[float],
  beta_2: Optional[float] = None,
  corrects: bool = True,
  start: Optional[float] = None,
  maximum: Optional[Maximum] = None,
  adds_epsilon: bool = True,
) -> AdaptiveServerOptimizer:
  """Fills the switches that were not set alone with those of the variant.

  Args:
    rule: The rule of v.
    learning_rate: Server step.
    beta_1: Decay of m.
    epsilon: The adaptivity tau.
    variant: The name of the variant; 'reference' stands for the released code.
    second_moment: 'gradient' or 'momentum', what v squares.
    bias_correction: As given, or `None`.
    initial_accumulator: As given, or `None`.
    beta_2: Decay of v; `None` where the rule has none.
    corrects: Whether the released code corrects the bias.
    start: Where v starts; unless given, at 0 in the released code and at
      epsilon^2 otherwise.
    maximum: FedAMS' maximum, or `None`.
    adds_epsilon: Whether epsilon is added to the root.
  """
  released = variant == 'reference'
  if bias_correction is None:
    bias_correction = corrects and released
  if start is None:
    start = 0.0 if released else epsilon**2
  return AdaptiveServerOptimizer(
    learning_rate=learning_rate,
    beta_1=beta_1,
    beta_2=beta_2,
    epsilon=epsilon,
    second_moment=rule,
    squares_momentum=second_moment == 'momentum',
    bias_correction=bias_correction,
    initial_accumulator=(
      start if initial_accumulator is None else initial_accumulator
    ),
    maximum=maximum,
    adds_epsilon=adds_epsilon,
  )
