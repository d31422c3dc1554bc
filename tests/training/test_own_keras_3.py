"""Runs whose model is one of Keras 3, with all that a run does with a model."""

import numpy as np
import pytest
import tensorflow as tf

from tests import recorded
from tff_adaptive import adapters
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import parameters
from tff_adaptive import training
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training import keras_files

pytestmark = pytest.mark.usefixtures('undrawn')

_MODULE = """
import keras


def net(input_shape, num_classes):
  return keras.Sequential(
    [
      keras.layers.Input(input_shape),
      keras.layers.Dense(8, activation='relu'),
      keras.layers.Dropout(0.2),
      keras.layers.Dense(num_classes),
    ]
  )


def unbuilt(num_classes):
  return keras.Sequential([keras.layers.Dense(num_classes)])
"""


@pytest.fixture(name='settings')
def _settings(tmp_path, monkeypatch):
  """Makes settings of a run with the module's model."""
  pytest.importorskip('keras')
  (tmp_path / 'own_keras_3.py').write_text(_MODULE)
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)

  def settings(name, **more):
    usual = dict(task='table', data='synthetic', model='own_keras_3:net')
    usual |= dict(algorithm='fedavg', client_learning_rate=0.1, total_rounds=1)
    usual |= dict(clients_per_round=3, rounds_per_eval=1)
    usual |= dict(root_output_dir=str(tmp_path), experiment_name=name)
    return training.settings(**(usual | more))

  return settings


def run(settings):
  return training.run(settings, say=lambda _: None).rows


def test_a_given_model_is_copied_and_never_changed():
  keras = pytest.importorskip('keras')
  given = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(2)])
  before = [w.copy() for w in given.get_weights()]
  spec = (tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32))
  made = models.model_fn(given, input_spec=spec, loss='mse')()
  made.trainable_variables[0].assign_add(tf.ones([3, 2]))
  copied = keras_files.model_of(made, 'It')
  np.testing.assert_array_equal(copied.get_weights()[0], before[0] + 1.0)
  np.testing.assert_array_equal(given.get_weights()[0], before[0])


def test_a_given_model_is_copied_with_what_it_has_adapted():
  keras = pytest.importorskip('keras')
  scaled = keras.layers.Normalization()
  scaled.adapt(np.array([[10.0, 20.0], [30.0, 60.0]], np.float32))
  given = keras.Sequential([keras.layers.Input((2,)), scaled])
  given.class_names = ['no', 'yes']
  copied = models._copied(given)
  x = np.array([[20.0, 40.0], [30.0, 60.0]], np.float32)
  np.testing.assert_allclose(copied(x), [[0, 0], [1, 1]], atol=1e-5)
  assert copied.class_names == ['no', 'yes']
  words = keras.layers.StringLookup()
  words.adapt(np.array(['a', 'b', 'a']))
  text = keras.layers.Input((), dtype='string')
  assert models._copied(keras.Model(text, words(text))) is None


def test_a_given_model_that_keras_cannot_copy_is_not_exported():
  keras = pytest.importorskip('keras')

  class Own(keras.Model):
    def __init__(self, width):
      super().__init__()
      self.layer = keras.layers.Dense(width)

    def call(self, x):
      return self.layer(x)

  given = Own(2)
  given(np.zeros((1, 3), np.float32))
  spec = (tf.TensorSpec([None, 3]), tf.TensorSpec([None], tf.int32))
  made = models.model_fn(given, input_spec=spec, loss='mse')()
  with pytest.raises(errors.SettingsError, match='a function that builds it'):
    keras_files.model_of(made, 'It')


@pytest.mark.exhaustive
def test_a_run_and_what_follows(settings, tmp_path):
  keras = pytest.importorskip('keras')
  first = settings(
    'first', freeze='dense/bias', evaluate_clients='2', finetune_epochs=1
  )
  rows = run(first)
  assert float(rows[-1]['train/loss']) > 0
  assert {'per_client/loss/mean', 'per_client_tuned/loss/mean'} <= {*rows[-1]}
  model_fn = experiment.create_task(first).model_fn
  assert models.variable_names(model_fn) == [
    'dense/kernel',
    'dense_1/kernel',
    'dense_1/bias',
  ]
  target = tmp_path / 'exported'
  own = {'model': 'own_keras_3:net'}
  told = export.export(first.folder, target, **own)
  assert told['keras'] == ['model.keras', 'model.weights.h5']
  saved = keras.models.load_model(target / 'model.keras')
  x = np.random.default_rng(0).normal(size=[5, 4]).astype(np.float32)
  serve = tf.saved_model.load(str(target / 'saved_model')).signatures
  [outputs] = serve[told['signature']](rows=tf.constant(x, tf.float64)).values()
  columns = told['columns']
  scaled = (x - [c['shift'] for c in columns]) / [c['scale'] for c in columns]
  np.testing.assert_allclose(
    outputs, saved(scaled.astype(np.float32)), rtol=1e-4, atol=1e-5
  )
  plain = experiment.create_task(settings('plain')).model_fn
  drawn = initial_weights.draw(plain, first.seed)
  for place in (target, target / 'model.keras', target / 'model.weights.h5'):
    loaded = initial_weights.load(plain, place)
    for weight, variable in zip(loaded.trainable, saved.trainable_weights):
      np.testing.assert_array_equal(weight, variable.numpy())
  assert not np.array_equal(loaded.trainable[0], drawn.trainable[0])
  np.testing.assert_array_equal(loaded.trainable[1], drawn.trainable[1])
  # Adapters on what was trained: no more than they is trained and sent.
  second = settings(
    'second',
    lora_rank=2,
    lora_rule='ffa',
    lora_targets='dense/kernel',
    lora_also_train='dense_1/bias',
    initial_weights=str(target),
  )
  rows = run(second)
  assert int(rows[-1]['bytes_up']) < int(
    recorded.rows(first.folder)[-1]['bytes_up']
  )
  made = experiment.create_task(second).model_fn
  assert models.variable_names(made) == ['dense/kernel/b', 'dense_1/bias']
  assert isinstance(made(), adapters.AdaptedModel)
  export.export(second.folder, tmp_path / 'merged', **own)
  merged = keras.models.load_model(tmp_path / 'merged' / 'model.keras')
  moved = [
    np.abs(a - b).max() > 0
    for a, b in zip(merged.get_weights(), saved.get_weights(), strict=True)
  ]
  assert moved == [True, False, False, True]
  low = merged.get_weights()[0] - saved.get_weights()[0]
  assert np.linalg.matrix_rank(low, tol=1e-5) <= 2


@pytest.mark.exhaustive
def test_what_is_refused(settings, monkeypatch):
  for more, words in (
    ({'model': 'own_keras_3:unbuilt'}, 'got no shape yet'),
    ({'lora_rank': 2, 'lora_targets': 'x'}, '--lora_targets=x matches none of'),
    ({'lora_rank': 2, 'lora_targets': 'dense/bias'}, 'no dense or attention'),
  ):
    with pytest.raises(errors.SettingsError, match=words):
      experiment.create_task(settings('none', **more))
  for more, words in (
    ({'lora_rule': 'ffa'}, 'would be ignored without .lora_rank'),
    (
      {'lora_rank': 2, 'lora_rule': 'fedex', 'dp_clip_norm': 1.0},
      'fedex corrects the mean',
    ),
  ):
    with pytest.raises(parameters.ParameterError, match=words):
      settings('none', **more)
  with pytest.raises(errors.SettingsError, match='Use the rule lora'):
    made = settings('none', lora_rank=2, lora_rule='fedex', algorithm='fednova')
    experiment.build(made, experiment.create_task(made))
  keras = pytest.importorskip('keras')
  monkeypatch.setattr(keras.config, 'backend', lambda: 'jax')
  with pytest.raises(errors.SettingsError, match="the backend 'jax'"):
    experiment.create_task(settings('none'))
