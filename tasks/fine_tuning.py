"""Fine-tuning: which weights of a pretrained network are trained further."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import models
from tff_adaptive import parameters

ModelFn = Callable[[], tff.learning.models.VariableModel]


def check(fine_tune: str, weights_dir: Optional[str], data: str) -> None:
  """Raises ParameterError if a head would be trained on random features.

  Made-up data are for trying things out; there it may.
  """
  if fine_tune == 'head' and weights_dir is None and data != 'synthetic':
    raise parameters.ParameterError(
      'fine_tune',
      '{}=head trains a classifier on features that {weights_dir} brings; '
      'without it they are random. Give it, or {fine_tune}=all.',
    )


def is_no_head(name: str) -> bool:
  """Tells whether a variable is none of the classifier's."""
  return not name.startswith('head/')


def freeze(model_fn: ModelFn, is_frozen: Callable[[str], bool]) -> ModelFn:
  """Freezes variables: they are not trained, and no update of them is sent.

  Args:
    model_fn: Makes the model.
    is_frozen: Tells it of a variable by its name in `models.variable_names`.

  Returns:
    A function that makes the model with these among its non-trainable
    variables, behind those that were there.
  """
  names = models.variable_names(model_fn)
  frozen = frozenset(i for i, name in enumerate(names) if is_frozen(name))
  if not frozen:
    return model_fn
  return lambda: FrozenModel(model_fn(), frozen)


class FrozenModel(models.Wrapped):
  """A model some of whose trainable variables count as non-trainable ones."""

  def __init__(
    self, unfrozen: tff.learning.models.VariableModel, frozen: frozenset[int]
  ):
    """Wraps a model.

    Args:
      unfrozen: The model.
      frozen: Places of its trainable variables.
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
