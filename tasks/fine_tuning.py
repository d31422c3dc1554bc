"""Fine-tuning: freezing of a pretrained model's weights."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import parameters

ModelFn = Callable[[], tff.learning.models.VariableModel]


def check(fine_tune: str, weights_dir: Optional[str], data: str) -> None:
  """Raises `ParameterError` if a head would be trained on random features.

  This is allowed with synthetic data, which are for smoke tests.
  """
  if fine_tune == 'head' and weights_dir is None and data != 'synthetic':
    raise parameters.ParameterError(
      'fine_tune',
      '{}=head trains only a classifier, on the pretrained features in '
      '{weights_dir}; without it they are random. Give it, or {fine_tune}=all.',
    )


def is_no_head(name: str) -> bool:
  """Returns whether a variable is not part of the classifier."""
  return not name.startswith('head/')


def freeze(model_fn: ModelFn, is_frozen: Callable[[str], bool]) -> ModelFn:
  """Freezes variables, so that they are neither trained nor sent in updates.

  Args:
    model_fn: Builds the model.
    is_frozen: Whether to freeze a variable, by its `models.variable_names`.

  Returns:
    A function that builds the model with these variables appended to its
    non-trainable ones.
  """
  names = models.variable_names(model_fn)
  frozen = frozenset(i for i, name in enumerate(names) if is_frozen(name))
  if not frozen:
    return model_fn
  return lambda: FrozenModel(model_fn(), frozen)


class FrozenModel(models.Wrapped):
  """A model with some trainable variables made non-trainable."""

  def __init__(
    self, unfrozen: tff.learning.models.VariableModel, frozen: frozenset[int]
  ):
    """Wraps a model.

    Args:
      unfrozen: The model to wrap.
      frozen: Indices of the trainable variables to freeze.
    """
    super().__init__(unfrozen)
    self._frozen = frozen

  def _variables(self, frozen: bool) -> list[tf.Variable]:
    return [
      variable
      for place, variable in enumerate(self.unfrozen.trainable_variables)
      if (place in self._frozen) == frozen
    ]

  @property
  def trainable_names(self) -> Sequence[str]:
    names = models.names_in(self.unfrozen)
    return [n for place, n in enumerate(names) if place not in self._frozen]

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    return self._variables(frozen=False)

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return [
      *self.unfrozen.non_trainable_variables,
      *self._variables(frozen=True),
    ]
