"""Local-AMSGrad's client."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree


class LocalAmsgrad(protocol.LocalOptimizer):
  """See `build_local_amsgrad`."""

  uses_batch = False

  def __init__(
    self,
    *,
    learning_rate: float,
    beta_1: float,
    beta_2: float,
    epsilon: float,
  ):
    super().__init__(learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2)
    self.epsilon = epsilon

  @property
  def formula(self) -> str:
    return (
      'm = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2, both '
      'from the values received\n'
      'x = x - learning_rate m / sqrt(v_max), v_max as received\n'
      f'the server averages m and v; v and v_max start at {self.epsilon:g}\n'
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['m'] = tree.zeros(specs)
    state['v'] = tree.zeros(specs, self.epsilon)
    state['v_max'] = tree.zeros(specs, self.epsilon)
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
    m = tree.moving_average(state['beta_1'], state['m'], gradients)
    squares = tf.nest.map_structure(tf.square, gradients)
    v = tree.moving_average(state['beta_2'], state['v'], squares)
    weights = tree.map_cast(
      lambda rate, x, m, v_max: x - rate * m / tf.sqrt(v_max),
      (state['learning_rate'],),
      weights,
      m,
      state['v_max'],
    )
    return collections.OrderedDict(state, m=m, v=v), weights


@parameters.checked
def build_local_amsgrad(
  *,
  learning_rate: parameters.Positive = 0.001,
  beta_1: parameters.Fraction = 0.9,
  beta_2: parameters.Fraction = 0.999,
  epsilon: parameters.Positive = 1e-5,
) -> tff.learning.optimizers.Optimizer:
  """Builds Local-AMSGrad's client: Chen, Li and Li 2020, arXiv 2109.05109.

  Elementwise at every local step, m and v going on from the values received and
  v_max staying as received:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2
    x = x - learning_rate m / sqrt(v_max)

  No bias correction.

  Args:
    learning_rate: Step size, in units of x.
    beta_1: Decay of m per local step.
    beta_2: Decay of v per local step.
    epsilon: Where v and v_max start, in units of g^2; nothing is added
      elsewhere.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return LocalAmsgrad(
    learning_rate=learning_rate, beta_1=beta_1, beta_2=beta_2, epsilon=epsilon
  )
