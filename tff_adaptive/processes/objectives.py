"""What a client minimises: the model's loss, and terms added to it."""

import abc
from typing import Any

import tensorflow as tf

from tff_adaptive.optimizers import tree


class Objective(abc.ABC):
  """A term that a client adds to its model's loss on every batch.

  The term is differentiated with the loss, so that value and gradient agree: a
  Polyak step and Delta-SGD see the objective that is really minimised.
  """

  @abc.abstractmethod
  def term(self, weights: Any, start: Any) -> tf.Tensor:
    """The added term, scalar float32.

    Args:
      weights: The trainable weights now, a flat tuple of tensors.
      start: The trainable weights that the client received, likewise.
    """

  @property
  def formula(self) -> str:
    """The objective, for people."""
    return 'F'


class Plain(Objective):
  """The model's loss alone."""

  def term(self, weights, start):
    del weights, start
    return tf.constant(0.0)


class Proximal(Objective):
  """FedProx (Li et al., arXiv 1812.06127): F + (mu / 2) |x - x_t|^2.

  The gradient of the term is mu (x - x_t), which pulls towards the received
  model. `tff.learning.algorithms.build_weighted_fed_prox` of TFF 0.87.0 adds
  its negative.
  """

  def __init__(self, strength: float):
    """Takes mu.

    Args:
      strength: mu, at least 0.

    Raises:
      ValueError: If `strength` is negative.
    """
    if not strength >= 0:
      raise ValueError(
          f'`proximal_strength` must be at least 0, got {strength!r}.'
      )
    self._strength = strength

  def term(self, weights, start):
    distance = tree.squared_norm(tree.subtract(weights, start))
    return 0.5 * self._strength * distance

  @property
  def formula(self) -> str:
    return f'F + {self._strength:g} / 2 |x - x_t|^2'
