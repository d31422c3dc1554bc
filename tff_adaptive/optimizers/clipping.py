"""BiClip, two-sided clipping for client and server optimizers."""

from __future__ import annotations

import collections
from typing import ClassVar, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import rule
from tff_adaptive.optimizers import tree


class TwoSided(rule.Rule):
  """A step along the clipped gradient B(g): TailOPT, arXiv 2502.04164.

    B(g) = sign(g) min(max(|g|, clip_lower), clip_upper)      'coordinate'
    B(g) = g min(max(|g|, clip_lower), clip_upper) / |g|      'norm'

  The norm is over all weights together. Zeros stay zero.

  Attributes:
    step_text: The step as text.
    clipped_name: The symbol of the clipped quantity in the text.
  """

  step_text: ClassVar[str]
  clipped_name: ClassVar[str]

  clip_upper: Optional[parameters.Positive] = None
  """u, the largest absolute value, in units of the clipped quantity; by default
  unlimited.
  """

  clip_lower: parameters.NonNegative = 0.0
  """d, the smallest absolute value of a nonzero entry, in the same units."""

  clip_mode: Literal['coordinate', 'norm'] = 'coordinate'
  """Whether to clip each coordinate or the global norm."""

  def check(self) -> None:
    if self.clip_upper is not None and self.clip_lower > self.clip_upper:
      raise parameters.ParameterError(
        'clip_lower',
        '{} ({lower:g}) must not be above {clip_upper} ({upper:g}).',
        lower=self.clip_lower,
        upper=self.clip_upper,
      )

  @property
  def formula(self) -> str:
    g = self.clipped_name
    upper = 'inf' if self.clip_upper is None else 'clip_upper'
    clipped = f'min(max(|{g}|, clip_lower), {upper})'
    text = f'B({g}) = sign({g}) {clipped}'
    if self.clip_mode == 'norm':
      text = f'B({g}) = {g} {clipped} / |{g}|, |{g}| over all weights'
    return f'{self.step_text}\n{text}\n{self.values}'

  @property
  def hparams(self) -> collections.OrderedDict[str, float]:
    found = super().hparams
    if self.clip_upper is None:
      del found['clip_upper']
    return found

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return self.initial_hparams()

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    rate = state['learning_rate']
    if self.clip_mode == 'norm':
      norm = tree.norm(gradients)
      scale = tf.math.divide_no_nan(
        _clipped(norm, state['clip_lower'], state.get('clip_upper')), norm
      )
      return state, tree.add_scaled(weights, -rate * scale, gradients)
    bounds = [state[b] for b in ('clip_lower', 'clip_upper') if b in state]

    def clip(*bounds_and_leaf: tf.Tensor) -> tf.Tensor:
      *own, g = bounds_and_leaf
      return tf.sign(g) * _clipped(tf.abs(g), *own)

    steps = tree.map_cast(clip, tuple(bounds), gradients)
    return state, tree.add_scaled(weights, -rate, steps)


def _clipped(
  size: tf.Tensor, lower: tf.Tensor, upper: Optional[tf.Tensor] = None
) -> tf.Tensor:
  """Clips sizes to the interval between the two bounds."""
  size = tf.maximum(size, lower)
  return size if upper is None else tf.minimum(size, upper)
