"""Models of Keras 3 are trained like those of Keras 2."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import programs
from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive import runtime

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 4, 4, 1], tf.float32),
  y=tf.TensorSpec([None], tf.int32),
)


def keras_3():
  """The module that `import keras` gives, if it is Keras 3."""
  keras = pytest.importorskip('keras')
  if keras.__version__.startswith('2.'):
    pytest.skip('`import keras` gives Keras 2 here')
  return keras


def network(keras):
  """Convolution, batch normalisation and two layers of dropout."""
  layers = keras.layers
  return keras.Sequential(
    [
      layers.InputLayer((4, 4, 1)),
      layers.Conv2D(2, 3, activation='tanh'),
      layers.BatchNormalization(),
      layers.Flatten(),
      layers.Dropout(0.5),
      layers.Dense(4, activation='tanh', kernel_regularizer='l2'),
      layers.Dropout(0.2),
      layers.Dense(3),
    ]
  )


def dense(keras):
  """One layer of dropout and two that are dense."""
  layers = keras.layers
  return keras.Sequential(
    [
      layers.InputLayer((4, 4, 1)),
      layers.Flatten(),
      layers.Dropout(0.5),
      layers.Dense(4, activation='tanh'),
      layers.Dense(3),
    ]
  )


def build(name, keras, model, **hyperparameters):
  return algorithms.build(
    name,
    model,
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy],
    input_spec=_SPEC,
    **hyperparameters,
  )


def client(seed):
  x = tf.random.stateless_normal([10, 4, 4, 1], [seed, 0])
  y = tf.random.stateless_uniform([10], [seed, 1], 0, 3, tf.int32)
  data = collections.OrderedDict(x=x, y=y)
  return tf.data.Dataset.from_tensor_slices(data).batch(5)


def rounds(process, weights, clients=(0, 1)):
  """Two rounds: the weights after them, and what they measured."""
  state = process.set_model_weights(process.initialize(), weights)
  data = [client(seed) for seed in clients]
  kept = []
  if algorithms.is_stateful(process):
    kept = [process.initialize_client_state() for _ in clients]
  for _ in range(2):
    output = process.next(state, *([kept] if kept else []), data)
    state = output.state
    kept = list(output.client_states) if kept else []
  trained = process.get_model_weights(state)
  return trained, output.metrics['client_work']['train']


# A method of each kind: a second gradient, statistics, kept layers, a pass
# over the data, a mix of optimizers.
_OF_A_KIND = (
  *('delta_sgd', 'fedadam', 'fedsps_global', 'fedbn', 'mime'),
  'fedada2_blended',
)


@pytest.mark.parametrize(
  'name, network',
  tiers.exhaustive_but(
    [('fedadam', network)],
    [
      *((name, network) for name in algorithms.names()),
      ('moon', dense),
      ('scaffold', dense),
    ],
    slow=[(n, network) for n in algorithms.names() if n not in _OF_A_KIND],
  ),
)
def test_the_same_rounds_as_keras_2(in_process_context, name, network):
  """Also with dropout, whose masks are the same, and a regularizer."""
  keras = keras_3()
  more = {'population': 4} if name in ('scaffold', 'fadamgc') else {}
  given = network(keras)
  process = build(name, keras, given, **more)
  start = process.get_model_weights(process.initialize())
  for ours, theirs in zip(start.trainable, given.trainable_weights):
    np.testing.assert_array_equal(ours, theirs.numpy())
  trained, metrics = rounds(process, start)
  other = build(name, tf.keras, lambda: network(tf.keras), **more)
  expected, expected_metrics = rounds(other, start)
  # Adaptive rules divide by what is nearly zero.
  for weights, others in zip(trained.trainable, expected.trainable):
    np.testing.assert_allclose(weights, others, rtol=2e-4, atol=2e-4)
  assert list(metrics) == list(expected_metrics)
  for key, value in metrics.items():
    np.testing.assert_allclose(value, expected_metrics[key], rtol=1e-4)
  moved = [np.abs(a - b).max() for a, b in zip(trained.trainable, start[0])]
  assert max(moved) > 1e-3
  # The moving averages are not aggregated, as with Keras 2.
  for weights, others in zip(trained.non_trainable, start.non_trainable):
    np.testing.assert_array_equal(weights, others)
  # And the model that was given is as it was.
  for ours, theirs in zip(start.trainable, given.trainable_weights):
    np.testing.assert_array_equal(ours, theirs.numpy())


@pytest.mark.exhaustive
@pytest.mark.parametrize('kind', ['in_process', 'native', 'ray'])
def test_masks_depend_on_no_order_of_clients_and_on_no_runtime(
  in_process_context, request, kind
):
  keras = keras_3()
  process = build('fedavg', keras, network(keras), client_learning_rate=0.1)
  start = process.get_model_weights(process.initialize())
  first, _ = rounds(process, start)
  if kind == 'in_process':
    context, cohort = in_process_context, (1, 0)
  elif kind == 'native':
    context, cohort = runtime.create_native_context(), (0, 1)
  else:
    address = request.getfixturevalue('ray_nodes').address
    context, cohort = runtime.create_ray_context(address), (0, 1)
  with tff.framework.get_context_stack().install(context):
    there, _ = rounds(process, start, cohort)
  if context is not in_process_context:
    context.close()
  for a, b in zip(first.trainable, there.trainable):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def linear(keras, **options):
  layers = [keras.layers.InputLayer((4,)), keras.layers.Dense(2)]
  return keras.Sequential(layers, **options)


_LINEAR = (
  tf.TensorSpec([None, 4], tf.float32),
  tf.TensorSpec([None, 2], tf.float32),
)


def test_ways_to_give_a_model(in_process_context):
  """In a function of tff.learning's kind, compiled, with metrics by name."""
  keras = keras_3()

  def in_a_graph():
    return models.from_keras_model(
      linear(keras), loss='mse', input_spec=_LINEAR, metrics=['mae', 'accuracy']
    )

  def compiled():
    model = linear(keras)
    model.compile(loss='mse', metrics=['mae', keras.metrics.F1Score()])
    return model

  data = tf.data.Dataset.from_tensors((tf.ones([3, 4]), tf.ones([3, 2])))
  for names, process in (
    (['mae', 'accuracy'], algorithms.build('fedavg', in_a_graph)),
    (
      ['mae', 'f1_score'],
      algorithms.build('fedavg', compiled, input_spec=_LINEAR),
    ),
  ):
    measured = process.next.type_signature.result.metrics.member
    metrics = measured.client_work.train
    added = ['loss', 'num_examples', 'num_batches']
    assert tff.structure.name_list(metrics) == [*names, *added]
  output = process.next(process.initialize(), [data])
  metrics = output.metrics['client_work']['train']
  assert metrics['num_examples'] == 3 and metrics['mae'] > 0
  # Tensors that layers hold are no variables of a graph.
  scaled = keras.layers.Normalization()
  scaled.adapt(np.arange(400.0).reshape([2, 200]))
  wide = keras.Sequential(
    [keras.layers.Input((200,)), scaled, keras.layers.Dense(2)]
  )
  spec = (tf.TensorSpec([None, 200], tf.float32), _LINEAR[1])
  algorithms.build('fedavg', wide, loss='mse', input_spec=spec)
  assert np.shape(metrics['f1_score']) == (2,)
  model = models.model_fn(compiled, input_spec=_LINEAR)
  assert models.variable_names(model) == ['dense/kernel', 'dense/bias']
  model().reset_metrics()


def subclass(keras):
  class Own(keras.Model):
    def __init__(self):
      super().__init__()
      self.dense = keras.layers.Dense(2)

    def call(self, x):
      return self.dense(x)

  return Own()


class Module:
  """As PyTorch's class is found."""

  __module__ = 'torch.nn.modules.module'


class Net(Module):
  pass


def refused(words, model, **arguments):
  arguments = {'input_spec': _LINEAR, 'loss': 'mse'} | arguments
  arguments = {k: v for k, v in arguments.items() if v is not None}
  with pytest.raises(TypeError) as raised:
    algorithms.build('fedavg', model, **arguments)
  message = str(raised.value)
  assert '\n' not in message and words in message, message


def test_models_that_cannot_be_trained(monkeypatch):
  keras = keras_3()
  refused('Own has not been built and has no weights', subclass(keras))
  refused('Own has not been built', lambda: subclass(keras))
  refused('Net is a PyTorch module (torch.nn.Module)', Net())
  refused('Net is a PyTorch module', Net)
  refused('a Keras 2 (tf.keras) model, which cannot be', linear(tf.keras))
  refused('A Keras model was expected', lambda: 'model')
  refused('A Keras model was expected', 'model')
  for model in (linear(keras), lambda: linear(keras)):
    refused('give loss=, metrics= and inp', model, input_spec=None, loss=None)
    refused('a Keras model and `input_spec`', model, input_spec=None)
    refused(
      '`input_spec` must hold the tf.TensorSpecs of `x` and `y`',
      model,
      input_spec={'x': 1},
    )
    refused('`loss` must be a loss of Keras', model, loss=3)
    refused("`loss` must be a Keras 3 loss, got 'x'", model, loss='x')
    refused(
      "`metrics` must name Keras 3 metrics, got 'x'", model, metrics=['x']
    )
    refused('`metrics` must have metrics of Keras', model, metrics=[3])
    refused('`metrics` must be a list', model, metrics='mse')

  class Noise(keras.layers.Layer):
    def call(self, x):
      return x + keras.random.normal(keras.ops.shape(x))

  refused(
    'without a seed generator',
    keras.Sequential(
      [keras.layers.Input((4,)), Noise(), *linear(keras).layers]
    ),
  )
  built = subclass(keras)
  built(np.ones([1, 4]))
  algorithms.build('fedavg', built, loss='mse', input_spec=_LINEAR)
  monkeypatch.setattr(keras.config, 'backend', lambda: 'jax')
  refused("Keras 3 model with the backend 'jax'", built)
  refused('start Python with KERAS_BACKEND=tensorflow', lambda: built)


def model_fn(keras_model):
  return tff.learning.models.from_keras_model(
    keras_model, loss=tf.keras.losses.MeanSquaredError(), input_spec=_LINEAR
  )


@pytest.mark.parametrize(
  'make, name', [(linear, 'sequential.Sequential'), (subclass, 'Own')]
)
def test_what_tff_knows_nothing_of(make, name):
  keras = keras_3()
  with pytest.raises(TypeError) as raised:
    algorithms.build('fedavg', lambda: model_fn(make(keras)))
  message = str(raised.value)
  assert '\n' not in message
  for part in (name, 'Keras 3', 'use tff_adaptive.models.from_keras_model'):
    assert part in message
  assert raised.value.__cause__ is not None


def test_an_attribute_that_keras_3_lacks():
  """What from_keras_model does where TensorFlow itself is on Keras 3."""
  model = linear(keras_3())
  with pytest.raises(TypeError, match='Keras 3, of which'):
    algorithms.build('fedavg', lambda: model._is_compiled)


def test_other_mistakes_are_told_as_they_are():
  with pytest.raises(AttributeError, match='no attribute'):
    algorithms.build('fedavg', lambda: tf.keras.Sequential().no_such_thing)
  with pytest.raises(TypeError, match='Expected'):
    algorithms.build('fedavg', lambda: model_fn('model'))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'code',
  [
    'from tff_adaptive.processes import compose',
    'import tasks; tasks.create("digits")',
    'import sys, main; sys.exit(main.main(["--dry_run"]))',
  ],
)
def test_tensorflow_on_keras_3(tmp_path, code):
  keras_3()
  text = programs.logged(
    *(tmp_path / 'log', '-c', code),
    code=2 if 'main' in code else 1,
    PYTHONPATH=programs.ROOT,
    TF_USE_LEGACY_KERAS=0,
  )
  assert 'main' not in code or 'Traceback' not in text
  assert 'needs Keras 2' in text
  assert 'set TF_USE_LEGACY_KERAS=1 before TensorFlow is imported' in text


def test_accuracy_of_a_subclass_follows_from_its_output():
  keras = keras_3()
  model = subclass(keras)
  model(np.zeros((1, 3), np.float32))
  labels = (tf.TensorSpec([None, 2]), tf.TensorSpec([None], tf.int32))
  for y, kind in zip(labels, ('Categorical', 'SparseCategorical')):
    spec = (tf.TensorSpec([None, 3]), y)
    found = models._named_metric('accuracy', model, spec)
    assert type(found).__name__ == f'{kind}Accuracy'
  both = (tf.TensorSpec([None, 3]), labels)
  with pytest.raises(TypeError, match='give a metric of Keras in its place'):
    models._named_metric('accuracy', model, both)


def test_outputs_in_float32_keep_what_is_noted_on_the_model():
  layers = tf.keras.layers
  given = tf.keras.Sequential(
    [layers.Input((3,)), layers.Dense(2, dtype='mixed_bfloat16')]
  )
  given.class_names = ['no', 'yes']
  made = models._with_float32_outputs(given)
  assert made is not given and made.outputs[0].dtype == tf.float32
  assert made.class_names == ['no', 'yes']


def test_processes_of_tff_draw_other_masks_each_time():
  keras = keras_3()
  model = models.model_fn(
    dense(keras),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=_SPEC,
  )()
  batch = collections.OrderedDict(x=np.ones([5, 4, 4, 1]), y=np.zeros(5))
  batch = tf.nest.map_structure(
    lambda value, spec: tf.cast(value, spec.dtype), batch, _SPEC
  )
  losses = [float(model.forward_pass(batch).loss) for _ in range(2)]
  assert losses[0] != losses[1]
