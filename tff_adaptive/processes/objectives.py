"""Client objectives: the model's loss plus regularization terms."""

from __future__ import annotations

import abc
import collections
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Optional, TypeAlias, Union

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import hparams as hparams_lib

Weights = structures.FlatWeights


class LossContext(NamedTuple):
  """Inputs of a term: weights and batch at which it is evaluated.

  Attributes:
    weights: The trainable weights now, flat.
    start: The trainable weights that the client started from, flat.
    context: The exchange's `context` for this client and round.
    batch: The batch.
    represent: The representation of the batch under the current weights, as
      `LocalModel.represent` makes it; differentiable.
    mask: Which examples of the batch count, bool [batch]; all if `None`.
  """

  weights: Weights
  start: Weights
  context: structures.FlatWeights
  batch: structures.Examples
  represent: Optional[Callable[[], tf.Tensor]] = None
  mask: Optional[tf.Tensor] = None


# A term's constants; for a sum of terms, by term.
Constants: TypeAlias = tuple[Union['tf.Tensor', 'Constants'], ...]

# Maps trainable weights to the batch's representation under them.
RepresentAt = Callable[[Weights], 'tf.Tensor']


class Objective(hparams_lib.HasHparams, abc.ABC):
  """A term that a client adds to its model's loss on every batch.

  The term is differentiated together with the loss, so that value and gradient
  agree, as Polyak steps and Delta-SGD require.

  Attributes:
    needs_representation: Whether `LossContext.represent` must be there.
  """

  needs_representation = False

  def constants(self, at: LossContext, represent_at: RepresentAt) -> Constants:
    """Computes the term's constants for a batch; they are not differentiated.

    Args:
      at: Weights and batch at the start of the step.
      represent_at: Maps other trainable weights to the batch's representation.
    """
    return ()

  @abc.abstractmethod
  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    """Computes the added term, scalar float32."""

  @property
  def formula(self) -> str:
    """The added term as text; empty if there is none."""
    return ''


class Plain(Objective):
  """The model's loss without further terms."""

  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    return tf.constant(0.0)


class Sum(Objective):
  """A sum of terms."""

  def __init__(self, *parts: Objective):
    self._parts = parts
    self.needs_representation = any(p.needs_representation for p in parts)

  def constants(self, at: LossContext, represent_at: RepresentAt) -> Constants:
    return tuple(part.constants(at, represent_at) for part in self._parts)

  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    return tf.add_n(
      [part.term(at, own) for part, own in zip(self._parts, constants)]
    )

  def hparams(self) -> collections.OrderedDict[str, float]:
    return collections.OrderedDict(
      item
      for index, part in enumerate(self._parts)
      for item in hparams_lib.prefixed(f'{index}', part.hparams()).items()
    )

  def with_hparams(self, values: Mapping[str, Any]) -> Sum:
    return Sum(
      *(
        part.with_hparams(hparams_lib.below(f'{index}', values))
        for index, part in enumerate(self._parts)
      )
    )

  @property
  def formula(self) -> str:
    return ' + '.join(part.formula for part in self._parts if part.formula)


class Proximal(Objective):
  """FedProx (Li et al., arXiv 1812.06127): (mu / 2) |x - x_t|^2.

  Its gradient mu (x - x_t) pulls towards the received model.
  `tff.learning.algorithms.build_weighted_fed_prox` of TFF 0.87.0 adds the
  negative of it.
  """

  hparam_names = ('_strength',)

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

  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    distance = tree.squared_norm(tree.subtract(at.weights, at.start))
    return 0.5 * self._strength * distance

  @property
  def formula(self) -> str:
    return f'{self._strength:g} / 2 |x - x_t|^2'


class Correction(Objective):
  """A linear term <context, x>, which adds the context to every gradient.

  The context is the exchange's, such as SCAFFOLD's correction c - c_i.
  """

  def __init__(self, context: str = 'c - c_i'):
    """Takes the context's name, as text."""
    self._context = context

  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    if len(at.context) != len(at.weights):
      raise ValueError(
        f'The correction {self._context} needs an exchange whose `context` has '
        f'a tensor for each of the {len(at.weights)} trainable weights, got '
        f'{len(at.context)}.'
      )
    return tree.dot(at.context, at.weights)

  @property
  def formula(self) -> str:
    return f'<{self._context}, x>'


class Contrastive(Objective):
  """MOON (Li et al., arXiv 2103.16257): representations near the server's.

  With z the last layer's input under the current weights, z_glob under the
  received weights and z_prev under the client's previous model (both
  constants), the term is mu times the batch mean of

    -log(a / (a + b)), a = e^(cos(z, z_glob) / T), b = e^(cos(z, z_prev) / T)

  The exchange's context is the previous model's weights, flat.
  """

  needs_representation = True
  hparam_names = ('_strength', '_temperature')

  def __init__(self, strength: float, temperature: float = 0.5):
    """Takes mu and T.

    Args:
      strength: mu, at least 0.
      temperature: T, positive.

    Raises:
      ValueError: If either is out of range.
    """
    if not strength >= 0:
      raise ValueError(
        f'`contrastive_strength` must be at least 0, got {strength!r}.'
      )
    if not temperature > 0:
      raise ValueError(f'`temperature` must be above 0, got {temperature!r}.')
    self._strength = strength
    self._temperature = temperature

  def constants(self, at: LossContext, represent_at: RepresentAt) -> Constants:
    return represent_at(at.start), represent_at(at.context)

  def term(self, at: LossContext, constants: Constants) -> tf.Tensor:
    if at.represent is None:
      raise TypeError('Contrastive needs `LossContext.represent`, got None.')
    z = at.represent()
    to_global, to_previous = (
      _cosine(z, tf.stop_gradient(other)) / self._temperature
      for other in constants
    )
    # log(1 + e^(b - a)), without overflow.
    losses = tf.math.softplus(to_previous - to_global)
    if at.mask is None:
      return self._strength * tf.reduce_mean(losses)
    counted = tf.cast(at.mask, losses.dtype)
    return self._strength * tf.math.divide_no_nan(
      tf.reduce_sum(losses[:, 0] * counted), tf.reduce_sum(counted)
    )

  @property
  def formula(self) -> str:
    return f'{self._strength:g} contrastive(z, z_glob, z_prev)'


def _cosine(a: tf.Tensor, b: tf.Tensor) -> tf.Tensor:
  """Computes the cosine similarity of rows, [rows, 1]; 0 for a zero row.

  Keeps the reduced axis: without it the gradient computes a shape on the GPU,
  for which the host has to wait.
  """
  return tf.reduce_sum(
    tf.math.l2_normalize(a, axis=-1) * tf.math.l2_normalize(b, axis=-1),
    axis=-1,
    keepdims=True,
  )
