"""Your own Keras model and data that are in memory, without a task.

  python -m examples.own_model_and_data --rounds=30

Twelve sensors measure a wave, each with an offset of its own; the model learns
to tell the next value from the last eight. Put your arrays in place of
`measurements` and your layers in place of `build_keras_model`.
"""

import argparse
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime

_WINDOW = 8


def measurements(num_clients: int = 12) -> Mapping[str, np.ndarray]:
  """Simulates a series for each client, float32 [200]."""
  rng = np.random.default_rng(0)
  time = np.arange(200)
  return {
    f'sensor_{i}': (
      np.sin(time / 5 + rng.uniform(0, 6)) + rng.normal(0, 0.1, 200)
    ).astype(np.float32)
    for i in range(num_clients)
  }


def dataset(series: np.ndarray) -> tf.data.Dataset:
  """Builds batches of (the last values, the next value), shuffled."""
  windows = np.lib.stride_tricks.sliding_window_view(series, _WINDOW + 1)
  data = tf.data.Dataset.from_tensor_slices(
    (windows[:, :-1].copy(), windows[:, -1:].copy())
  )
  return data.shuffle(len(windows), seed=0).batch(16)


def build_keras_model() -> tf.keras.Model:
  """Builds a Keras model whose state is its trainable weights."""
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((_WINDOW,)),
      tf.keras.layers.Dense(16, activation='tanh'),
      tf.keras.layers.Dense(1),
    ]
  )


def main(arguments: Sequence[str] | None = None) -> float:
  """Trains; returns the error on a client that took no part.

  Args:
    arguments: Of the command line; those of this process unless given.
  """
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=30)
  parser.add_argument('--clients_per_round', type=int, default=4)
  options = parser.parse_args(arguments)

  runtime.set_in_process_context()
  series = measurements()
  held_out = series.pop('sensor_11')
  spec = dataset(held_out).element_spec

  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      build_keras_model(),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=spec,
    )

  process = algorithms.build(
    'fedadam',
    model_fn,
    client_optimizer='delta_sgd',
    server_learning_rate=0.02,
  )
  state = process.initialize()
  rng = np.random.default_rng(1)
  for round_number in range(1, options.rounds + 1):
    cohort = rng.choice(list(series), options.clients_per_round, replace=False)
    output = process.next(state, [dataset(series[c]) for c in cohort])
    state = output.state
    if round_number % 10 == 0:
      loss = output.metrics['client_work']['train']['loss']
      print(f'round {round_number}: training loss {loss:.4f}')

  # A Keras model made before the process would no longer be usable.
  keras_model = build_keras_model()
  weights = process.get_model_weights(state)
  keras_model.set_weights(list(weights.trainable))
  keras_model.compile(loss='mse')
  error = float(keras_model.evaluate(dataset(held_out), verbose=0))
  print(f'mean squared error on a sensor never seen: {error:.4f}')
  return error


if __name__ == '__main__':
  main()
