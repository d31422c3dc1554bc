"""An LSTM layer with less work in the loop over time.

Same cell, weights and results as `tf.keras.layers.LSTM` (Hochreiter and
Schmidhuber 1997, with forget gate), but computations that do not depend on the
previous step are moved out of the loop: the projection of the input, and in the
backward pass the gradient of the recurrent weights, one product over all steps
instead of one per step that each writes the whole matrix.
"""

from typing import Any

import tensorflow as tf


def build(units: int, kernel_initializer: str = 'glorot_uniform') -> Any:
  """Builds a layer that returns the outputs of all steps.

  On a GPU the layer uses cuDNN.

  Args:
    units: Dimension of state and output.
    kernel_initializer: Initializer of the input weights.
  """
  gpu = tf.config.list_logical_devices('GPU')
  kind = CudnnLSTM if gpu else LoopedLSTM
  return kind(
    units, return_sequences=True, kernel_initializer=kernel_initializer
  )


class CudnnLSTM(tf.keras.layers.LSTM):
  """LSTM from [batch, time, inputs] to [batch, time, units], by cuDNN.

  Keras' own layer chooses between cuDNN and a loop over time when a function is
  placed. TFF inlines functions before placement, so the loop is chosen, with a
  dozen copies to the host per step.
  """

  def call(
    self,
    inputs: tf.Tensor,
    mask: Any = None,
    training: Any = None,
    initial_state: Any = None,
  ) -> tf.Tensor:
    _refuse_mask_and_state(self, mask, initial_state)
    kernel, recurrent, bias = (
      variable.read_value()
      for variable in (
        self.cell.kernel,
        self.cell.recurrent_kernel,
        self.cell.bias,
      )
    )
    parts = [*tf.split(kernel, 4, axis=1), *tf.split(recurrent, 4, axis=1)]
    flat = [tf.reshape(tf.transpose(part), [-1]) for part in parts]
    batch, steps, _ = tf.unstack(tf.shape(inputs))
    zeros = tf.zeros([batch, 1, self.units], inputs.dtype)
    outputs, *_ = tf.raw_ops.CudnnRNNV3(
      input=inputs,
      input_h=zeros,
      input_c=zeros,
      # cuDNN has separate biases of input and state.
      params=tf.concat([*flat, tf.zeros_like(bias), bias], axis=0),
      sequence_lengths=tf.fill([batch], steps),
      rnn_mode='lstm',
      is_training=True,
      time_major=False,
    )
    return outputs


class LoopedLSTM(tf.keras.layers.LSTM):
  """LSTM from [batch, time, inputs] to [batch, time, units], without masks."""

  def call(
    self,
    inputs: tf.Tensor,
    mask: Any = None,
    training: Any = None,
    initial_state: Any = None,
  ) -> tf.Tensor:
    _refuse_mask_and_state(self, mask, initial_state)
    by_time = tf.transpose(inputs, [1, 0, 2])
    projected = tf.tensordot(by_time, self.cell.kernel, 1) + self.cell.bias
    outputs = _recur(projected, self.cell.recurrent_kernel)
    return tf.transpose(outputs, [1, 0, 2])


def _refuse_mask_and_state(layer: Any, mask: Any, initial_state: Any) -> None:
  if mask is not None or initial_state is not None:
    name = type(layer).__name__
    raise ValueError(f'{name} supports neither a mask nor an initial state.')


@tf.custom_gradient
def _recur(projected: tf.Tensor, recurrent: tf.Tensor) -> Any:
  """Computes outputs [time, batch, units].

  Args:
    projected: Input times weights plus bias [time, batch, 4 units], gates in
      Keras' order: input, forget, candidate, output.
    recurrent: Recurrent weights [units, 4 units].
  """
  hs, cs, gates = _forward(projected, recurrent)

  def gradient(d_hs: tf.Tensor) -> Any:
    d_projected = _backward(d_hs, recurrent, cs, gates)
    units = tf.shape(recurrent)[0]
    d_recurrent = tf.matmul(
      tf.reshape(_earlier(hs), [-1, units]),
      tf.reshape(d_projected, [-1, 4 * units]),
      transpose_a=True,
    )
    return d_projected, d_recurrent

  return hs, gradient


def _forward(projected: tf.Tensor, recurrent: tf.Tensor) -> Any:
  """Computes outputs, states (same shape) and gates [time, batch, 4 units]."""
  steps = tf.shape(projected)[0]
  zeros = tf.zeros(
    [tf.shape(projected)[1], tf.shape(recurrent)[0]], projected.dtype
  )

  def step(t: Any, h: Any, c: tf.Tensor, hs: Any, cs: Any, gates: Any) -> Any:
    i, f, g, o = tf.split(projected[t] + tf.matmul(h, recurrent), 4, axis=1)
    i, f, g, o = tf.sigmoid(i), tf.sigmoid(f), tf.tanh(g), tf.sigmoid(o)
    c = f * c + i * g
    h = o * tf.tanh(c)
    gate = tf.concat([i, f, g, o], axis=1)
    return t + 1, h, c, hs.write(t, h), cs.write(t, c), gates.write(t, gate)

  arrays = [tf.TensorArray(projected.dtype, size=steps) for _ in range(3)]
  _, _, _, *arrays = tf.while_loop(
    lambda t, *_: t < steps, step, (0, zeros, zeros, *arrays)
  )
  return [array.stack() for array in arrays]


def _backward(
  d_hs: tf.Tensor, recurrent: tf.Tensor, cs: tf.Tensor, gates: tf.Tensor
) -> tf.Tensor:
  """Computes the gradient of the projected input, given that of the outputs."""
  steps = tf.shape(cs)[0]
  zeros = tf.zeros_like(cs[0])
  cs_before = _earlier(cs)
  transposed = tf.transpose(recurrent)

  def step(t: Any, d_h: Any, d_c: Any, d_projected: Any) -> Any:
    i, f, g, o = tf.split(gates[t], 4, axis=1)
    tanh_c = tf.tanh(cs[t])
    d_h = d_h + d_hs[t]
    d_c = d_c + d_h * o * (1 - tanh_c**2)
    d = tf.concat(
      [
        d_c * g * i * (1 - i),
        d_c * cs_before[t] * f * (1 - f),
        d_c * i * (1 - g**2),
        d_h * tanh_c * o * (1 - o),
      ],
      axis=1,
    )
    d_h = tf.matmul(d, transposed)
    return t - 1, d_h, d_c * f, d_projected.write(t, d)

  array = tf.TensorArray(cs.dtype, size=steps)
  *_, array = tf.while_loop(
    lambda t, *_: t >= 0, step, (steps - 1, zeros, zeros, array)
  )
  return array.stack()


def _earlier(states: tf.Tensor) -> tf.Tensor:
  """Returns each step's previous state; zeros for the first step."""
  return tf.concat([tf.zeros_like(states[:1]), states[:-1]], axis=0)
