"""The base class of update rules, frozen dataclasses of hyperparameters."""

from __future__ import annotations

import abc
import collections
from typing import Any, ClassVar

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


class Rule(parameters.Described, abc.ABC):
  """An update rule whose fields are its hyperparameters.

  Numeric hyperparameters are stored in the state, so that a schedule, or a
  caller who holds the state, can change them between rounds. `build` returns
  the rule as a `tff.learning.optimizers.Optimizer`.

  Attributes:
    fixed: Names of numbers that are constants of the rule and not stored in its
      state.
    starts: Names of further numbers that only `initialize` reads. A server
      optimizer is initialized outside of the round's computation.
    in_state: Names of the numbers that do not change the graph; runs that
      differ only in these share one graph. Empty for rules defined outside this
      package, unless they declare it, because their `next` may read the fields.
    formula: The rule as text, one assignment per line.
  """

  fixed: ClassVar[frozenset[str]] = frozenset()
  starts: ClassVar[frozenset[str]] = frozenset()
  in_state: ClassVar[frozenset[str]] = frozenset()

  def __init_subclass__(cls, **kwargs: Any):
    super().__init_subclass__(**kwargs)
    if 'in_state' not in vars(cls):
      ours = cls.__module__.startswith('tff_adaptive.')
      cls.in_state = cls.starts | cls._float_names() if ours else frozenset()

  @classmethod
  def _float_names(cls) -> frozenset[str]:
    """Returns the names of the fields that are numbers in the state."""
    return frozenset(
      name
      for name, parameter in parameters.parameters_of(cls).items()
      if parameter.kind is float and name not in cls.fixed
    )

  def build(self) -> tff.learning.optimizers.Optimizer:
    """Returns the rule as a `tff.learning.optimizers.Optimizer`.

    The rule implements TFF's class without inheriting from it: inheriting would
    import TensorFlow in every module that declares a rule.
    """
    tff.learning.optimizers.Optimizer.register(Rule)
    return self

  @property
  def hparams(self) -> collections.OrderedDict[str, float]:
    """The hyperparameters stored in the state, by name."""
    return collections.OrderedDict(
      (name, getattr(self, name))
      for name, parameter in parameters.parameters_of(type(self)).items()
      if parameter.kind is float and name not in self.fixed
    )

  @property
  def values(self) -> str:
    """The hyperparameters as text, the last line of a formula."""
    return 'with ' + ', '.join(f'{k} = {v:g}' for k, v in self.hparams.items())

  def initial_hparams(self) -> structures.OptimizerState:
    """Builds the part of the initial state that holds the hyperparameters."""
    return collections.OrderedDict(
      (k, tf.constant(v, tf.float32)) for k, v in self.hparams.items()
    )

  @abc.abstractmethod
  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    """Builds the initial state; see `tff.learning.optimizers.Optimizer`.

    Args:
      specs: A structure of `tf.TensorSpec`s, one for each weight.
    """

  @abc.abstractmethod
  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    """Takes a step; see `tff.learning.optimizers.Optimizer`.

    Args:
      state: The state returned by `initialize` or `next`.
      weights: A structure of tensors.
      gradients: The same structure.

    Returns:
      The next state and the next weights.
    """

  def get_hparams(self, state: structures.OptimizerState) -> structures.HParams:
    """Returns the hyperparameters of a state, by name."""
    return collections.OrderedDict((k, state[k]) for k in self.hparams)

  def set_hparams(
    self, state: structures.OptimizerState, hparams: structures.HParams
  ) -> structures.OptimizerState:
    """Returns a copy of the state with the given hyperparameters."""
    return collections.OrderedDict(state, **hparams)
