"""Adam on a client, with delayed preconditioner updates."""

import collections

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.optimizers import tree


class DelayedAdam(tff.learning.optimizers.Optimizer):
  """See `build_delayed_adam`."""

  def __init__(
      self,
      learning_rate: float,
      beta_1: float,
      beta_2: float,
      epsilon: float,
      delay: int,
  ):
    self._hparams = collections.OrderedDict(
        learning_rate=learning_rate,
        beta_1=beta_1,
        beta_2=beta_2,
        epsilon=epsilon,
    )
    self._delay = delay

  @property
  def formula(self) -> str:
    every = '' if self._delay == 1 else f' at every {self._delay}th step'
    return (
        'm = beta_1 m + (1 - beta_1) g, from 0\n'
        f'v = beta_2 v + (1 - beta_2) g^2{every}, from 0\n'
        'x = x - learning_rate m / (1 - beta_1^k) / (sqrt(v / (1 - beta_2^u)) '
        '+ epsilon), u counting updates of v\n'
        'with ' + ', '.join(f'{k} = {v:g}' for k, v in self._hparams.items())
    )

  def initialize(self, specs):
    state = collections.OrderedDict(
        (k, tf.constant(v, tf.float32)) for k, v in self._hparams.items()
    )
    state['step'] = tf.constant(0, tf.int32)
    state['m'] = tree.zeros(specs)
    state['v'] = tree.zeros(specs)
    return state

  def next(self, state, weights, gradients):
    gradients = tree.dense(weights, gradients)
    beta_1, beta_2 = state['beta_1'], state['beta_2']
    updates = tf.equal(state['step'] % self._delay, 0)
    m = tree.map_cast(
        lambda b, m, g: b * m + (1 - b) * g, (beta_1,), state['m'], gradients
    )
    v = tree.map_cast(
        lambda b, v, g: tf.where(updates, b * v + (1 - b) * tf.square(g), v),
        (beta_2,),
        state['v'],
        gradients,
    )
    step = tf.cast(state['step'] + 1, tf.float32)
    count = tf.cast(state['step'] // self._delay + 1, tf.float32)
    weights = tree.map_cast(
        lambda rate, c_1, c_2, e, x, m, v: x
        - rate * tf.math.divide_no_nan(m / c_1, tf.sqrt(v / c_2) + e),
        (
            state['learning_rate'],
            1 - tf.pow(beta_1, step),
            1 - tf.pow(beta_2, count),
            state['epsilon'],
        ),
        weights,
        m,
        v,
    )
    new_state = collections.OrderedDict(
        state, step=state['step'] + 1, m=m, v=v
    )
    return new_state, weights

  def get_hparams(self, state):
    return collections.OrderedDict((k, state[k]) for k in self._hparams)

  def set_hparams(self, state, hparams):
    return collections.OrderedDict(state, **hparams)


@parameters.checked
def build_delayed_adam(
    *,
    learning_rate: parameters.Positive = 0.001,
    beta_1: parameters.Fraction = 0.9,
    beta_2: parameters.Fraction = 0.999,
    epsilon: parameters.NonNegative = 1e-5,
    delay: parameters.Count = 1,
) -> tff.learning.optimizers.Optimizer:
  """Adam client optimizer, FedAda2 (arXiv 2410.18117), Algorithm 7 (ADMU).

  Elementwise at local step k = 1, 2, ..., with z the delay and
  u = floor((k - 1) / z) + 1 the number of updates of v so far:

    m = beta_1 m + (1 - beta_1) g
    v = beta_2 v + (1 - beta_2) g^2    if (k - 1) mod z is 0, else as it was
    x = x - learning_rate m' / (sqrt(v') + epsilon)
    with m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^u)

  With z = 1 this is Kingma and Ba's Adam with epsilon added to the corrected
  root, as in torch and optax; Keras and TFF add it to the root of v.

  Args:
    learning_rate: Step size, in units of x.
    beta_1: Decay of m per local step.
    beta_2: Decay of v per update.
    epsilon: Adaptivity, in units of g.
    delay: z: v is updated at every z-th local step, the first included.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return DelayedAdam(learning_rate, beta_1, beta_2, epsilon, delay)
