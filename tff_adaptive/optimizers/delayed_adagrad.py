"""AdaGrad on a client, with delayed preconditioner updates."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import tree


class DelayedAdagrad(tff.learning.optimizers.Optimizer):
  """See `build_delayed_adagrad`."""

  def __init__(
      self,
      learning_rate: float,
      epsilon: float,
      delay: int,
      initial_accumulator: float,
  ):
    self._hparams = collections.OrderedDict(
        learning_rate=learning_rate, epsilon=epsilon
    )
    self._delay = delay
    self._initial_accumulator = initial_accumulator

  @property
  def formula(self) -> str:
    every = '' if self._delay == 1 else f' at every {self._delay}th step'
    return (
        f'v = v + g^2{every}, from {self._initial_accumulator:g}\n'
        'x = x - learning_rate g / (sqrt(v) + epsilon)\n'
        'with ' + ', '.join(f'{k} = {v:g}' for k, v in self._hparams.items())
    )

  def initialize(self, specs):
    state = collections.OrderedDict(
        (k, tf.constant(v, tf.float32)) for k, v in self._hparams.items()
    )
    state['step'] = tf.constant(0, tf.int32)
    state['v'] = tree.zeros(specs, self._initial_accumulator)
    return state

  def next(self, state, weights, gradients):
    gradients = tree.dense(weights, gradients)
    updates = tf.equal(state['step'] % self._delay, 0)
    v = tf.nest.map_structure(
        lambda v, g: v + tf.where(updates, tf.square(g), tf.zeros_like(g)),
        state['v'],
        gradients,
    )
    weights = tree.map_cast(
        lambda rate, e, x, g, v: x
        - rate * tf.math.divide_no_nan(g, tf.sqrt(v) + e),
        (state['learning_rate'], state['epsilon']),
        weights,
        gradients,
        v,
    )
    return collections.OrderedDict(state, step=state['step'] + 1, v=v), weights

  def get_hparams(self, state):
    return collections.OrderedDict((k, state[k]) for k in self._hparams)

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(state, **hparams)


@parameters.checked
def build_delayed_adagrad(
    *,
    learning_rate: parameters.Positive = 0.01,
    epsilon: parameters.NonNegative = 1e-5,
    delay: parameters.Count = 1,
    initial_accumulator: parameters.NonNegative = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """AdaGrad client optimizer, FedAda2 (arXiv 2410.18117), Algorithm 3 family.

  Elementwise at local step k = 1, 2, ...:

    v = v + g^2    if (k - 1) mod delay is 0, else as it was
    x = x - learning_rate g / (sqrt(v) + epsilon)

  epsilon stands outside the root, as in torch and unlike in
  `tff.learning.optimizers.build_adagrad`.

  Args:
    learning_rate: Step size, in units of x.
    epsilon: Adaptivity, in units of g.
    delay: z: v is updated at every z-th local step, the first included.
    initial_accumulator: Where v starts in every round.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return DelayedAdagrad(learning_rate, epsilon, delay, initial_accumulator)
