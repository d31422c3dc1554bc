"""An optimizer around another one, whose steps it prepares or counts."""

import collections
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


class Wrapped(protocol.LocalOptimizer):
  """Steps as its base does; subclasses change the gradient or the place of it.

  The state is the base's, under `base`, with the wrapper's own hyperparameters
  and whatever else a subclass keeps.

  Attributes:
    base: The optimizer that is wrapped, which needs nothing but the gradient.
    note: What is done with its rule, for people.
  """

  note = ''

  def __init__(self, base: tff.learning.optimizers.Optimizer, **hparams: float):
    """Takes the base, and hyperparameters of the wrapper's own.

    Raises:
      ValueError: If the base looks at the batch: what it would see there is not
        what it is to step with.
    """
    super().__init__(**hparams)
    if isinstance(base, protocol.LocalOptimizer) and base.uses_batch:
      raise ValueError(
        f'{type(self).__name__} needs an optimizer that steps from gradients '
        f'alone; {type(base).__name__} looks at the batch.'
      )
    self.base = base

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
    if isinstance(self.base, protocol.LocalOptimizer):
      return self.base.step_size(state['base'])
    return None
