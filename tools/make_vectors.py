"""Writes results/vectors: a small problem and three rounds of every method.

python tools/make_vectors.py [METHOD ...]
"""

import collections
import functools
import json
import pathlib
import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from tff_adaptive import algorithms  # noqa: E402
from tff_adaptive import runtime  # noqa: E402

FOLDER = _ROOT / 'results' / 'vectors'
START = [[[0.5, -0.3], [0.2, 0.1], [-0.4, 0.6]], [0.3, -0.2]]
# Per client its batches of (x, y): unequal numbers of steps and of examples,
# and relations between x and y that differ from client to client.
CLIENTS = [
  [
    ([[1.0, -0.5, 0.2], [0.3, 0.8, -1.1]], [[0.6, -1.0], [1.2, 0.4]]),
    ([[-0.7, 0.4, 0.9], [1.5, 0.1, -0.3]], [[-0.2, 0.9], [0.5, -0.7]]),
    ([[0.2, -1.3, 0.6]], [[1.1, 0.3]]),
  ],
  [
    (
      [[0.9, 0.7, -0.4], [-1.2, 0.5, 0.8], [0.1, -0.6, 1.4]],
      [[-0.8, 0.5], [0.7, 1.3], [0.2, -0.9]],
    )
  ],
  [
    ([[0.4, 1.1, 0.3], [-0.5, -0.9, 0.7]], [[1.4, 0.8], [-0.6, 0.1]]),
    ([[1.3, -0.2, -0.8]], [[0.9, -1.2]]),
  ],
]
# A client that is new, one that comes back at once and one after a round.
ROUNDS = [[0, 1], [1, 2], [0, 1, 2]]
LINEAR = 'f(x) = x W + b; weights are [W, b]'
TWO_LAYERS = (
  'f(x) = z V + d, z = tanh(x W + b); weights are [W, b, V, d]; z is the '
  'representation'
)
# Numbers at which three rounds of a small problem tell rules apart, and that
# leave nothing to be drawn.
_SETTINGS: dict[str, dict[str, Any]] = {
  'fedcams': {'compressor': 'topk', 'compression_ratio': 0.4},
  'fedef21': {'compression_ratio': 0.4, 'population': 3},
  'scaffold': {'population': 3},
  'fadamgc': {'population': 3},
  'feddyn': {'population': 3, 'proximal_strength': 0.1},
  'fedada2_blended': {
    'client_mix': 'sm3_adam=1',
    'client_learning_rates': 'sm3_adam=0.1',
  },
  'bi2clip': {
    'client_clip_lower': 0.2,
    'client_clip_upper': 0.9,
    'server_clip_lower': 0.1,
    'server_clip_upper': 0.25,
  },
  'fedprox': {'proximal_strength': 0.5},
  'fedhyper': {
    'client_learning_rate': 0.3,
    'server_learning_rate': 1.2,
    'hyper_lower': 0.9,
    'hyper_upper': 1.25,
  },
  'local_amsgrad': {'client_learning_rate': 0.003},
  'moon': {'contrastive_strength': 0.5},
}
_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 3], tf.float32), y=tf.TensorSpec([None, 2], tf.float32)
)
# What a round does on a machine, and not what it computes.
_OF_THE_PROGRAM = ('seed', 'record_', 'aggregator', 'dp_')
_SECOND_LAYER = [[[0.7, -0.4], [0.3, 0.9]], [0.1, -0.1]]


def _loss(label: tf.Tensor, output: tf.Tensor) -> tf.Tensor:
  squares = tf.reduce_sum(tf.square(output - label), axis=-1)
  return 0.5 * tf.reduce_mean(squares)


class _HalfSquares(tf.keras.losses.Loss):
  """The loss for models of Keras."""

  def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
    return 0.5 * tf.reduce_sum(tf.square(y_pred - y_true), axis=-1)


@functools.cache
def _two_layers() -> Any:
  def dense(kernel: Any, bias: Any, activation: Any = None) -> Any:
    constant = tf.keras.initializers.Constant
    return tf.keras.layers.Dense(
      2, activation, True, constant(kernel), constant(bias)
    )

  def model_fn() -> tff.learning.models.VariableModel:
    model = tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer((3,)),
        dense(*START, activation='tanh'),
        dense(*_SECOND_LAYER),
      ]
    )
    return tff.learning.models.from_keras_model(
      model, loss=_HalfSquares(), input_spec=_SPEC
    )

  return model_fn


@tf.function
def _predict(weights: Any, x: tf.Tensor, training: bool) -> tf.Tensor:
  del training
  kernel, bias = weights[0]
  return tf.matmul(x, kernel) + bias


# Methods for models of two layers.
_OF_LAYERS = ('moon', 'fedper')


def _model_of(name: str) -> Any:
  if name in _OF_LAYERS:
    return _two_layers()
  model = _linear()
  if name == 'fedbn':
    # Its bias stands for the shift of a normalisation layer.
    model.variable_names = ('dense/kernel', 'normalisation/beta')
  return model


def _linear() -> tff.learning.models.FunctionalModel:
  return tff.learning.models.FunctionalModel(
    initial_weights=(tuple(np.float32(w) for w in START), ()),
    predict_on_batch_fn=_predict,
    loss_fn=lambda output, label, sample_weight=None: _loss(label, output),
    metrics_fns=tff.learning.metrics.create_functional_metric_fns(
      lambda: collections.OrderedDict(mae=tf.keras.metrics.MeanAbsoluteError())
    ),
    input_spec=_SPEC,
  )


def _dataset(batches: Any) -> tf.data.Dataset:
  def generate() -> Any:
    for x, y in batches:
      yield collections.OrderedDict(x=np.float32(x), y=np.float32(y))

  return tf.data.Dataset.from_generator(generate, output_signature=_SPEC)


def vector(name: str) -> dict[str, Any]:
  """Computes a method's vector; `runtime` must have been set.

  Args:
    name: The method.
  """
  accepted = algorithms.parameters_of(name)
  settings = dict(_SETTINGS.get(name, {}))
  if 'client_learning_rate' in accepted:
    settings.setdefault('client_learning_rate', 0.1)
  configuration = algorithms.resolve(name, **settings)
  process = algorithms.build(name, _model_of(name), **settings)
  state, kept, path = process.initialize(), {}, []
  for cohort in ROUNDS:
    data = [_dataset(CLIENTS[client]) for client in cohort]
    if algorithms.is_stateful(process):
      fresh = process.initialize_client_state()
      own = [kept.get(client, fresh) for client in cohort]
      output = process.next(state, own, data)
      kept.update(zip(cohort, output.client_states, strict=True))
    else:
      output = process.next(state, data)
    state = output.state
    weights = process.get_model_weights(state).trainable
    path.append([_rounded(w) for w in weights])
  return {
    'method': name,
    'rule': algorithms.describe(name, **settings).splitlines(),
    'hyperparameters': {
      key: value
      for key, value in configuration.values.items()
      if value is not None and not key.startswith(_OF_THE_PROGRAM)
    },
    'model': TWO_LAYERS if name in _OF_LAYERS else LINEAR,
    'loss': 'mean over a batch of |f(x) - y|^2 / 2, summed over outputs',
    'start': START + (_SECOND_LAYER if name in _OF_LAYERS else []),
    'clients': [[{'x': x, 'y': y} for x, y in batches] for batches in CLIENTS],
    'rounds': ROUNDS,
    'weights': path,
  }


def _rounded(array: np.ndarray) -> Any:
  """Returns lists of numbers with as many digits as float32 has."""
  return np.vectorize(lambda x: float(f'{x:.8g}'), otypes=[float])(
    np.float64(array)
  ).tolist()


def names() -> list[str]:
  """Lists the methods that have a vector: all that train on clients."""
  return algorithms.names()


def main(chosen: Iterable[str]) -> None:
  """Writes the vectors of these methods, or of all."""
  runtime.set_in_process_context()
  FOLDER.mkdir(parents=True, exist_ok=True)
  for name in [*chosen] or names():
    lines = [f'"{k}": {json.dumps(v)}' for k, v in vector(name).items()]
    text = '{\n' + ',\n'.join(lines) + '\n}\n'
    (FOLDER / f'{name}.json').write_text(text, encoding='utf-8')
    print(name, flush=True)


if __name__ == '__main__':
  main(sys.argv[1:])
