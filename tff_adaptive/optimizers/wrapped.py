"""The base class of optimizers that wrap another one."""

from __future__ import annotations

import collections
from typing import Any, Optional

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


class Wrapped(protocol.LocalOptimizer):
  """An optimizer that takes the steps of a base optimizer.

  Subclasses change the gradient or the point at which it is evaluated. The
  state holds the base's state under `base`, the wrapper's own hyperparameters
  and any further values of a subclass.

  Attributes:
    note: The change to the base's rule, as text.

  Raises:
    ValueError: If the base uses the batch, whose loss and gradient belong to
      another point than the base's step.
  """

  base: Any
  """The wrapped optimizer; its step must depend only on the gradient."""

  def check(self) -> None:
    if isinstance(self.base, protocol.LocalOptimizer) and self.base.uses_batch:
      raise ValueError(
        f'{type(self).__name__} needs an optimizer that uses only gradients; '
        f'{type(self.base).__name__} also uses the batch.'
      )
    self.build()  # Registers `Rule` with TFF even if the base is TFF's own.

  @property
  def note(self) -> str:
    return ''

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(),
      base=tf.nest.map_structure(
        tf.convert_to_tensor, self.base.initialize(specs)
      ),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    base, weights = self.base.next(state['base'], weights, gradients)
    return collections.OrderedDict(state, base=base), weights

  def get_hparams(self, state: structures.OptimizerState) -> structures.HParams:
    return collections.OrderedDict(
      self.base.get_hparams(state['base']), **super().get_hparams(state)
    )

  def set_hparams(
    self, state: structures.OptimizerState, hparams: structures.HParams
  ) -> structures.OptimizerState:
    own = {name: hparams[name] for name in self.hparams}
    others = collections.OrderedDict(
      (name, value) for name, value in hparams.items() if name not in own
    )
    base = self.base.set_hparams(state['base'], others)
    return collections.OrderedDict(state, **own, base=base)

  def step_size(
    self, state: structures.OptimizerState
  ) -> Optional[protocol.StepSize]:
    return protocol.step_size_of(self.base, state['base'])
