"""Mixed precision: a step in 16 bits against NumPy, and runs with the flag."""

import json

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import recorded
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import runtime
from tff_adaptive import training
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.training import reuse

pytestmark = pytest.mark.usefixtures('undrawn')

RATE = 0.1
KINDS = {'bfloat16': ml_dtypes.bfloat16, 'float16': np.float16}


def truncated(value):
  """The bfloat16 next to 0, which some processors round products to."""
  return (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def step(w, x, y, kind, rounded=None):
  """A step on the squared error of one example, layers in `kind`."""

  def product(a, b):
    exact = np.float32(kind(a)) * np.float32(kind(b))
    return np.float32((rounded or kind)(exact))

  prediction = product(x, w)
  gradient = product(x, 2 * (prediction - np.float32(y)))
  return np.float32(w) - np.float32(RATE) * gradient


def move(dtype, batches, vectorize='auto', rounds=1):
  """The change of a linear model's weight after some rounds."""
  model_fn = linear.model_fn
  if dtype is not None:
    model_fn = models.in_mixed_precision(model_fn, dtype)
  process = algorithms.build('fedavg', model_fn, client_learning_rate=RATE)
  context = runtime.create_in_process_context(vectorize_clients=vectorize)
  with tff.framework.get_context_stack().install(context):
    state = process.initialize()
    for _ in range(rounds):
      state = process.next(state, linear.datasets(batches)).state
    weights = process.get_model_weights(state).trainable
    assert [w.dtype for w in weights] == [np.float32]
    return linear.weight_of(process, state) - linear.START


@pytest.mark.parametrize('vectorize', ['true', 'false'])
@pytest.mark.parametrize('dtype', KINDS)
def test_a_step_is_in_16_bits_and_the_weight_in_32(dtype, vectorize):
  x, y = 1.2345678, 0.3
  expected = [step(linear.START, x, y, KINDS[dtype]) - linear.START]
  if dtype == 'bfloat16':
    other = step(linear.START, x, y, KINDS[dtype], truncated)
    expected.append(other - linear.START)
  found = move(dtype, [[([x], [y])]], vectorize)
  assert any(found == pytest.approx(value, rel=1e-6) for value in expected)
  assert found != pytest.approx(
    step(linear.START, x, y, np.float32) - linear.START, rel=1e-4
  )
  # Steps far below the precision of 0.5 in 16 bits add up.
  small = [[([1e-3], [0.6])]]
  many = move(dtype, small, vectorize, rounds=20)
  assert many == pytest.approx(20 * move(dtype, small, vectorize), rel=0.05)


@pytest.mark.parametrize('vectorize', ['true', 'false'])
def test_small_gradients_are_no_zeros_in_float16(vectorize):
  x = 2.0**-10
  y = x * linear.START - 2.0**-16  # The gradient is 2^-25.
  assert step(linear.START, x, y, np.float16) == linear.START
  process_move = move('float16', [[([x], [y])]], vectorize)
  expected = np.float32(linear.START) - np.float32(RATE * 2.0**-25)
  assert process_move == pytest.approx(expected - linear.START, abs=1e-8)


def test_labels_beyond_256_stay_apart():
  """A bfloat16 has 8 bits: 257 would be 256, were the output not cast."""

  def build():
    return tf.keras.Sequential(
      [tf.keras.layers.Dense(300, use_bias=False, input_shape=(1,))]
    )

  spec = (tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1], tf.int32))
  made = models.in_mixed_precision(
    models.model_fn(
      build,
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
      input_spec=spec,
    ),
    'bfloat16',
  )()
  kernel = np.zeros([1, 300], np.float32)
  kernel[0, 257] = 5.0
  made.trainable_variables[0].assign(kernel)
  output = made.forward_pass((tf.ones([1, 1]), tf.constant([[257]])))
  assert output.predictions.dtype == tf.float32
  assert float(output.loss) == pytest.approx(
    np.log(299 + np.exp(5.0)) - 5.0, rel=1e-5
  )


def run(folder, **given):
  settings = training.settings(
    task='digits',
    digits_num_clients=4,
    max_elements_per_client=20,
    total_rounds=2,
    root_output_dir=str(folder),
    clients_per_round=3,
    **given,
  )
  training.run(settings, say=lambda _: None)
  hparams = json.loads((settings.folder / 'hparams.json').read_text())[
    'settings'
  ]
  rows = recorded.rows(settings.folder)
  return (
    settings.folder,
    hparams,
    [float(r['test/loss']) for r in rows if r['test/loss']],
  )


def test_the_flag_is_part_of_a_run(tmp_path):
  """Another folder, rounds and evaluator; the same initial weights."""
  reuse.clear()
  plain, _, losses = run(tmp_path)
  mixed, hparams, close = run(tmp_path, mixed_precision='bfloat16')
  assert plain != mixed and hparams['mixed_precision'] == 'bfloat16'
  assert close == pytest.approx(losses, rel=0.01) and close != losses
  export.export(mixed, tmp_path / 'exported')
  exported = tf.saved_model.load(tmp_path / 'exported' / 'saved_model')
  graph = exported.signatures['serving_default'].graph
  kinds = {
    tensor.dtype for op in graph.get_operations() for tensor in op.outputs
  }
  assert tf.float32 in kinds and tf.bfloat16 not in kinds


def test_a_model_out_of_reach_is_refused():
  built = tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))])
  model_fn = models.in_mixed_precision(
    lambda: tff.learning.models.from_keras_model(
      built, loss=tf.keras.losses.MeanSquaredError(), input_spec=linear.SPEC
    ),
    'bfloat16',
  )
  with pytest.raises(errors.SettingsError, match="dtype='mixed_bfloat16'"):
    model_fn()


def test_weights_of_16_bits_are_refused():
  """Moments of Adam would not move, and sums over a cohort round."""

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [tf.keras.layers.Dense(1, input_shape=(2,), dtype='bfloat16')]
      ),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(
        tf.TensorSpec([None, 2], tf.float32),
        tf.TensorSpec([None, 1], tf.float32),
      ),
    )

  with pytest.raises(TypeError, match=r'are bfloat16: .*mixed_precision'):
    algorithms.build('fedavg', model_fn)
