"""The client optimizer of FedMuon: orthogonalized momentum and Adam."""

from __future__ import annotations

import collections

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import rule as rule_lib
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import adamw

# Muon's coefficients of the quintic Newton-Schulz iteration.
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_ITERATIONS = 5


def matrices(structure: structures.Structure) -> list[tf.Tensor]:
  """Returns the leaves of rank 2 or more."""
  return [t for t in tf.nest.flatten(structure) if t.shape.rank >= 2]


def others(structure: structures.Structure) -> list[tf.Tensor]:
  """Returns the leaves of rank 0 or 1."""
  return [t for t in tf.nest.flatten(structure) if t.shape.rank < 2]


def orthogonalized(momentum: tf.Tensor) -> tf.Tensor:
  """Approximates U V^T of a tensor, reshaped to a matrix of its last axis.

  Runs five quintic Newton-Schulz iterations, after which singular values are
  between 0.7 and 1.2.

  Args:
    momentum: A tensor of rank 2 or more.

  Returns:
    A tensor of the same shape.
  """
  a, b, c = _COEFFICIENTS
  x = tf.reshape(momentum, [-1, momentum.shape[-1]])
  x /= tf.norm(x) + 1e-7
  # A wide matrix has the smaller Gram matrix x x^T.
  is_tall = x.shape[0] > x.shape[1]
  if is_tall:
    x = tf.transpose(x)
  for _ in range(_ITERATIONS):
    square = tf.matmul(x, x, transpose_b=True)
    x = a * x + tf.matmul(b * square + c * tf.matmul(square, square), x)
  if is_tall:
    x = tf.transpose(x)
  return tf.reshape(x, momentum.shape)


@registry.client_optimizer('muon_global', of_method=True)
class GlobalMuon(rule_lib.Rule):
  """The FedMuon client optimizer: Liu et al., arXiv 2510.27403.

  At local step k = 1, 2, ..., with Delta_g and the initial M received from the
  server, for variables of rank 2 or more (all axes but the last as rows):

    M = momentum M + g
    x = x - learning_rate ((1 - alpha) O(M) + alpha Delta_g)

  O runs five Newton-Schulz iterations towards U V^T. For the other variables,
  with m and v reset in every round:

    m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2
    m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^k)
    x = x - learning_rate ((1 - alpha) m' / (sqrt(v') + epsilon)
                           + alpha Delta_g)
  """

  learning_rate: parameters.Positive = 3e-2
  """Step size; the authors use 3e-2 for a ResNet, 3e-4 for transformers."""

  alpha: parameters.Probability = 0.5
  """Weight of the last global update direction Delta_g."""

  momentum: parameters.Fraction = 0.98
  """Decay of M per local step."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.95
  """Decay of v per local step."""

  epsilon: parameters.NonNegative = 1e-10
  """Adaptivity, in units of g."""

  @property
  def formula(self) -> str:
    return (
      'matrices: M = momentum M + g, from what was received\n'
      'x = x - learning_rate ((1 - alpha) O(M) + alpha Delta_g)\n'
      'others: m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2,'
      ' from 0\n'
      "m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^k)\n"
      "x = x - learning_rate ((1 - alpha) m' / (sqrt(v') + epsilon) + alpha "
      'Delta_g)\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      self.initial_hparams(),
      step=tf.constant(0, tf.int32),
      # The exchange replaces these with the values that the server sent.
      momenta=tuple(tree.zeros(matrices(specs))),
      direction=tuple(tree.zeros(tf.nest.flatten(specs))),
      m=tuple(tree.zeros(others(specs))),
      v=tuple(tree.zeros(others(specs))),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    momenta = tree.map_cast(
      lambda b, m, g: b * m + g,
      (state['momentum'],),
      state['momenta'],
      tuple(matrices(gradients)),
    )
    state, directions = adamw.directed(state, tuple(others(gradients)))
    by_muon, by_adam = map(orthogonalized, momenta), iter(directions)
    new_weights = [
      self._moved(state, x, next(by_muon if x.shape.rank >= 2 else by_adam), d)
      for x, d in zip(tf.nest.flatten(weights), state['direction'])
    ]
    return (
      collections.OrderedDict(state, momenta=momenta),
      tf.nest.pack_sequence_as(weights, new_weights),
    )

  def _moved(
    self,
    state: structures.OptimizerState,
    x: tf.Tensor,
    own: tf.Tensor,
    direction: tf.Tensor,
  ) -> tf.Tensor:
    rate = tf.cast(state['learning_rate'], x.dtype)
    alpha = tf.cast(state['alpha'], x.dtype)
    return x - rate * ((1 - alpha) * own + alpha * direction)
