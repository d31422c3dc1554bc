"""The step that FedAdagrad, FedAdam, FedYogi and FedAMS share.

Reddi et al., Adaptive Federated Optimization (arXiv 2003.00295), Algorithms 2
and 5. Once per round, elementwise, with Delta the mean client update:

  m = beta_1 m + (1 - beta_1) Delta                 m starts at 0
  v = rule(v, s^2)                                  s is Delta, or m
  x = x + learning_rate m / (sqrt(v) + epsilon)

The methods differ in `rule` and, for FedAMS, in the denominator. TFF passes
-Delta to the server optimizer as the gradient, hence steps are subtracted.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
from typing import ClassVar, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import rule as rule_lib
from tff_adaptive.optimizers import tree


@dataclasses.dataclass(frozen=True)
class Maximum:
  """The running maximum of v, which replaces v in FedAMS' denominator.

  Attributes:
    start: Initial value.
    floor: Whether epsilon is inside the maximum rather than added to the root.
  """

  start: float
  floor: bool


class AdaptiveServerOptimizer(rule_lib.Rule):
  """The base of adaptive server optimizers; the module has the equations.

  Attributes:
    second_moment_text: The update rule of v as text.
    corrects: Whether the released code corrects the bias.
    maximum: FedAMS' maximum, or `None`.
    adds_epsilon: Whether epsilon is added to the root.
  """

  fixed = frozenset({'initial_accumulator'})
  starts = fixed
  second_moment_text: ClassVar[str]
  corrects: ClassVar[bool] = True

  learning_rate: parameters.Positive = 0.01
  """Server step, in units of x per round."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per round."""

  epsilon: parameters.Positive = 1e-3
  """Adaptivity tau, in units of Delta."""

  variant: Literal['paper', 'reference'] = 'paper'
  """Update rule, as in the paper or as in the released code."""

  second_moment: Literal['gradient', 'momentum'] = 'gradient'
  """Quantity whose square updates v: Delta ('gradient') or m ('momentum', as in
  one version of the paper).
  """

  bias_correction: Optional[bool] = None
  """Whether to multiply the step by sqrt(1 - beta_2^t) / (1 - beta_1^t), t
  counting rounds from 1; by default as in the variant.
  """

  initial_accumulator: Optional[parameters.NonNegative] = None
  """Initial value of v; by default the variant's."""

  @abc.abstractmethod
  def follow(
    self, v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tf.Tensor:
    """Computes the next v, elementwise.

    Args:
      v: The current v.
      squared: s^2.
      beta_2: Decay, of the same dtype; beta_1 for a rule without beta_2.
    """

  @property
  def maximum(self) -> Optional[Maximum]:
    return None

  @property
  def adds_epsilon(self) -> bool:
    return True

  @property
  def start(self) -> float:
    """The initial value of every entry of v."""
    if self.initial_accumulator is not None:
      return self.initial_accumulator
    return 0.0 if self.variant == 'reference' else self.epsilon**2

  @property
  def _corrects_bias(self) -> bool:
    if self.bias_correction is not None:
      return self.bias_correction
    return self.corrects and self.variant == 'reference'

  @property
  def _decays(self) -> bool:
    return 'beta_2' in self.hparams

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    if self._corrects_bias:
      state['step'] = tf.constant(0, tf.int32)
    state['m'] = tree.zeros(specs)
    state['v'] = tree.zeros(specs, self.start)
    if self.maximum is not None:
      state['v_max'] = tree.zeros(specs, self.maximum.start)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    _check_state_match(weights, state['m'], 'm')
    beta_1, epsilon = state['beta_1'], state['epsilon']
    # A rule without decay ignores the argument.
    beta_2 = state.get('beta_2', beta_1)

    m = tree.moving_average(beta_1, state['m'], gradients)
    squared = tf.nest.map_structure(
      tf.square, m if self.second_moment == 'momentum' else gradients
    )
    v = tree.map_cast(
      lambda b2, v, s: self.follow(v, s, b2),
      (beta_2,),
      state['v'],
      squared,
    )
    new_state = collections.OrderedDict(state, m=m, v=v)
    divisor = v
    if self.maximum is not None:
      divisor = tf.nest.map_structure(tf.maximum, state['v_max'], v)
      if self.maximum.floor:
        divisor = tree.map_cast(
          lambda e, d: tf.maximum(d, e), (epsilon,), divisor
        )
      new_state['v_max'] = divisor
    step = state['learning_rate']
    if self._corrects_bias:
      new_state['step'] = state['step'] + 1
      step *= self._correction(beta_1, beta_2, new_state['step'])
    added = epsilon if self.adds_epsilon else tf.zeros_like(epsilon)
    # A coordinate that no client has updated has m = 0 and, with nothing added
    # to the root, v = 0: 0 / 0 means no step.
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
    if self._decays:
      factor *= tf.sqrt(1 - tf.pow(beta_2, count))
    return factor

  @property
  def formula(self) -> str:
    """The rule with all options resolved, one assignment per line."""
    squared = 'm' if self.second_moment == 'momentum' else 'Delta'
    rule = self.second_moment_text.replace('s^2', f'{squared}^2')
    lines = [
      'm = beta_1 m + (1 - beta_1) Delta, from 0',
      f'v = {rule}, from {self.start:g}',
    ]
    root = 'v'
    if self.maximum is not None:
      floor = ', epsilon' if self.maximum.floor else ''
      root = 'v_max'
      lines.append(f'v_max = max(v_max, v{floor}), from {self.maximum.start:g}')
    rate = 'learning_rate'
    if self._corrects_bias:
      root_part = 'sqrt(1 - beta_2^t) ' if self._decays else ''
      rate += f' {root_part}/ (1 - beta_1^t)'
    added = ' + epsilon' if self.adds_epsilon else ''
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
