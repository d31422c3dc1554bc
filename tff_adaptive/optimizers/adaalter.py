"""Local-AdaAlter's client."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


class AdaAlter(protocol.LocalOptimizer):
  """See `build_adaalter`."""

  uses_batch = False

  def __init__(self, *, learning_rate: float, epsilon: float):
    super().__init__(learning_rate=learning_rate, epsilon=epsilon)
    self.epsilon = epsilon

  @property
  def formula(self) -> str:
    return (
      'x = x - learning_rate g / sqrt(B^2 + k epsilon^2), B^2 as received\n'
      'A^2 = A^2 + g^2, from B^2; the server averages it\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['step'] = tf.constant(0, tf.int32)
    state['received'] = tree.zeros(specs, self.epsilon**2)
    state['accumulated'] = tree.zeros(specs, self.epsilon**2)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    del batch
    gradients = tree.dense(weights, gradients)
    step = state['step'] + 1
    added = tf.cast(step, tf.float32) * tf.square(state['epsilon'])
    weights = tree.map_cast(
      lambda rate, added, x, g, b: x - rate * g / tf.sqrt(b + added),
      (state['learning_rate'], added),
      weights,
      gradients,
      state['received'],
    )
    accumulated = tf.nest.map_structure(
      lambda a, g: a + tf.square(g), state['accumulated'], gradients
    )
    return (
      collections.OrderedDict(state, step=step, accumulated=accumulated),
      weights,
    )


@parameters.checked
def build_adaalter(
  *,
  learning_rate: parameters.Positive = 0.1,
  epsilon: parameters.Positive = 1.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds Local-AdaAlter's client: Xie et al. 2019, arXiv 1911.09030.

  Elementwise at local step k = 1, 2, ..., with B^2 the accumulator received at
  the start of the round, which stays as it is:

    x   = x - learning_rate g / sqrt(B^2 + k epsilon^2)
    A^2 = A^2 + g^2                                      A^2 starts at B^2

  The step is taken first and the accumulator follows.

  Args:
    learning_rate: Step size, in units of x.
    epsilon: Adaptivity, in units of g; 1 as in the authors' code, because the
      first round divides by little else.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return AdaAlter(learning_rate=learning_rate, epsilon=epsilon)
