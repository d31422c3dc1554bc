"""The base of all update rules: hyperparameters that are part of the state."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures


class Rule(tff.learning.optimizers.Optimizer):
  """An optimizer whose hyperparameters are part of its state.

  There a schedule, or whoever has the state, can change them between rounds.

  Attributes:
    hparams: The hyperparameters that the rule was made with, by name.
  """

  def __init__(self, **hparams: float):
    self.hparams = collections.OrderedDict(hparams)

  @property
  def values(self) -> str:
    """The hyperparameters as text, the last line of a formula."""
    return 'with ' + ', '.join(f'{k} = {v:g}' for k, v in self.hparams.items())

  def initial_hparams(self) -> structures.OptimizerState:
    """Makes the part of the first state that holds the hyperparameters."""
    return collections.OrderedDict(
      (k, tf.constant(v, tf.float32)) for k, v in self.hparams.items()
    )

  def get_hparams(self, state: structures.OptimizerState) -> structures.HParams:
    return collections.OrderedDict((k, state[k]) for k in self.hparams)

  def set_hparams(
    self, state: structures.OptimizerState, hparams: structures.HParams
  ) -> structures.OptimizerState:
    return collections.OrderedDict(state, **hparams)
