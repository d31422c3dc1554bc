"""What all tasks satisfy on synthetic data, what is learnt, and models."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tests import tiers
from tests.tasks import helpers
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.flags import presets

_NAMES = tiers.every_task()


@pytest.fixture(name='task', scope='module', params=_NAMES)
def _task(request):
  return _create(request.param)


def _create(name, **options):
  small = tasks.info(name).small_options
  return tasks.create(name, data='synthetic', **dict(small, **options))


def _equal(a, b):
  return all(
    np.array_equal(x, y)
    for x, y in zip(tf.nest.flatten(a), tf.nest.flatten(b), strict=True)
  )


@pytest.fixture(name='model', scope='module')
def _model(task):
  tf.keras.utils.set_random_seed(0)
  return task.model_fn()


def test_it_is_a_tff_task(task, model):
  assert isinstance(task, tff.simulation.baselines.BaselineTask)
  assert isinstance(model, tff.learning.models.VariableModel)
  assert model.trainable_variables
  # Normalisation by batches would leave weights that nobody aggregates.
  assert not model.non_trainable_variables


def test_metrics_are_told_apart_from_tffs_own(model):
  names = list(model.report_local_unfinalized_metrics())
  assert {'loss', 'num_examples', 'num_batches'} < set(names)
  assert len(names) > 3 and len(set(names)) == len(names)


def test_batches_are_what_the_model_takes(task):
  spec = task.datasets.element_type_structure
  dataset = task.datasets.get_centralized_test_data()
  for found, wanted in zip(
    tf.nest.flatten(dataset.element_spec), tf.nest.flatten(spec), strict=True
  ):
    assert found.dtype == wanted.dtype
    assert wanted.is_compatible_with(found) or found.shape.rank is None
  x, y = next(iter(dataset))
  assert x.shape.is_compatible_with(spec[0].shape)
  assert y.shape.is_compatible_with(spec[1].shape)


def test_a_seed_fixes_a_clients_batches(task):
  client_id = task.datasets.train_data.client_ids[-1]
  first, again = (
    helpers.client_batches(task, client_id, seed=(7, 8)) for _ in range(2)
  )
  assert _equal(first, again)


def test_preprocessing_can_be_traced(task):
  data = task.datasets.train_data
  raw = data.create_tf_dataset_for_client(data.client_ids[0])

  @tf.function
  def first(dataset, seed):
    dataset = task.datasets.train_preprocess_fn(dataset, seed=seed)
    return next(iter(dataset))

  seed = tf.constant([7, 8], tf.int64)
  expected = helpers.client_batches(task, data.client_ids[0], seed=(7, 8))[0]
  assert _equal(tf.nest.map_structure(np.asarray, first(raw, seed)), expected)


def test_clients_can_be_made_inside_a_graph(task):
  data = task.datasets.train_data

  @tf.function
  def count(client_id):
    dataset = task.datasets.train_preprocess_fn(
      data.serializable_dataset_fn(client_id)
    )
    return dataset.reduce(0, lambda n, _: n + 1)

  client_id = data.client_ids[0]
  assert int(count(client_id)) == len(helpers.client_batches(task, client_id))


def test_the_model_trains_and_evaluates(task, model):
  x, y = helpers.client_batches(task)[0]
  with tf.GradientTape() as tape:
    output = model.forward_pass((tf.constant(x), tf.constant(y)), training=True)
  gradients = tape.gradient(output.loss, model.trainable_variables)
  assert np.isfinite(float(output.loss))
  # Every weight has a part in the loss.
  assert all(g is not None for g in gradients)
  assert all(np.isfinite(tf.convert_to_tensor(g)).all() for g in gradients)
  evaluated = model.forward_pass(helpers.test_batches(task)[0], training=False)
  assert np.isfinite(float(evaluated.loss))


_STAND_IN = dict(data='synthetic')
_DIGITS = dict(alpha=100.0, epochs=4)
_MNIST = dict(_STAND_IN, partition='iid', num_clients=5)
_CODER = dict(_STAND_IN, only_digits=True)
_SIGMOIDS = dict(_CODER, bottleneck='sigmoid', loss='mean')
_SPEECHES = dict(_STAND_IN, sequence_length=20)
_TAGS = dict(_STAND_IN, vocab_size=60, num_tags=8)
_SMALL = dict(blocks=1, width=64, vocab_size=500, max_length=32)
_TEXTS = dict(_STAND_IN, partition='iid', **_SMALL)
# Rate, steps and more of `loss_falls`, and the task's options.
_LEARN = [
  ('digits', 0.1, 140, {}, _DIGITS),
  ('digits', 0.1, 140, {}, _DIGITS | _STAND_IN),
  ('table', 0.1, 30, {}, _STAND_IN),
  ('libsvm_logistic', 0.3, 60, {}, dict(_STAND_IN, dataset='a9a')),
  ('emnist_character', 0.05, 25, {}, _CODER),
  # Sigmoids saturate: rates are of the paper's order, 10, for the sum.
  ('emnist_autoencoder', 0.3, 20, dict(clients=2, below=0.95), _CODER),
  ('emnist_autoencoder', 3.0, 20, dict(clients=2, below=0.95), _SIGMOIDS),
  ('mnist_character', 0.1, 60, dict(below=0.95), _MNIST),
  ('fmnist', 0.1, 60, dict(below=0.95), _MNIST),
  ('mnist_logistic', 0.01, 60, dict(below=0.95), _MNIST),
  ('mnist_lenet', 0.1, 60, dict(below=0.95), _MNIST),
  ('shakespeare_character', 1.0, 25, dict(clients=2), _SPEECHES),
  ('stackoverflow_tag', 1.0, 40, {}, _TAGS),
  ('ag_news', 0.1, 60, {}, _TEXTS),
  ('dbpedia', 0.1, 60, {}, _TEXTS),
  ('quadratics', 0.2, 150, {}, {}),
  ('fedprox_synthetic', 0.1, 150, {}, {}),
  ('zipf_tags', 20.0, 150, {}, {}),
  ('markov_text', 1.0, 150, {}, {}),
  ('hospitals', 0.1, 150, {}, {}),
  ('digits_autoencoder', 1.0, 150, {}, {}),
]
_SELDOM = ('fmnist', 'mnist_logistic', 'mnist_lenet', 'dbpedia')
_SELDOM += ('shakespeare_character',)


@pytest.mark.parametrize(
  'name, rate, steps, more, options',
  tiers.exhaustive_but([c for c in _LEARN if c[0] not in _SELDOM], _LEARN),
)
def test_it_learns(name, rate, steps, more, options):
  task = tasks.create(name, **options)
  helpers.loss_falls(task, rate=rate, steps=steps, **more)


@pytest.mark.parametrize(
  'name, weights, options',
  [
    ('emnist_autoencoder', 2_837_314, {}),
    ('emnist_character', 1_206_590, dict(only_digits=False)),
    ('emnist_character', 1_199_882, dict(only_digits=True)),
    ('mnist_character', 21_840, {}),
    ('fmnist', 21_840, {}),
    ('mnist_logistic', 7_850, {}),
    ('mnist_lenet', 61_706, {}),
    ('shakespeare_character', 720 + 271_360 + 525_312 + 23_130, {}),
    ('stackoverflow_tag', 5_000_500, {}),
    ('stackoverflow_word', 960_384 + 2_055_560 + 64_416 + 970_388, {}),
  ],
)
def test_the_model_is_the_papers(name, weights, options):
  task = tasks.create(name, data='synthetic', **options)
  assert helpers.weights(task) == weights


@pytest.mark.exhaustive
@pytest.mark.parametrize('model', ['resnet18', 'resnet50'])
def test_the_papers_residual_networks_train(model):
  task = _create('cifar10_image', model=model)
  test_the_model_trains_and_evaluates(task, task.model_fn())


@pytest.mark.parametrize('name', _NAMES)
def test_the_seed_decides_clients_and_data(name):
  a, b = (_create(name, seed=3).datasets for _ in range(2))
  assert a.train_data.client_ids == b.train_data.client_ids
  client_id = a.train_data.client_ids[0]
  raw = [
    list(
      d.train_data.create_tf_dataset_for_client(client_id).as_numpy_iterator()
    )
    for d in (a, b)
  ]
  assert _equal(*raw)
  tests = [list(d.test_data.take(20).as_numpy_iterator()) for d in (a, b)]
  assert _equal(*tests)


@pytest.mark.parametrize('name', _NAMES)
def test_epochs_batches_and_limits(name):
  def rows(task):
    batches = helpers.client_batches(task)
    return [len(tf.nest.flatten(b)[0]) for b in batches]

  task = _create(name, batch_size=3)
  one = rows(task)
  assert set(one[:-1]) <= {3} and 1 <= one[-1] <= 3
  assert sum(rows(_create(name, batch_size=3, epochs=2))) == 2 * sum(one)
  if name != 'shakespeare_character':  # Its elements are speeches, not rows.
    data = task.datasets.train_data
    raw = list(data.create_tf_dataset_for_client(data.client_ids[0]))
    assert sum(one) == len(raw)
    assert sum(rows(_create(name, batch_size=3, max_elements=1))) == 1


@pytest.mark.parametrize(
  'name', [n for n in tasks.names() if tasks.info(n).files and n != 'table']
)
def test_a_missing_file_is_named(tmp_path, name):
  with pytest.raises(tasks.DataError, match='There is no f') as raised:
    tasks.create(name, cache_dir=str(tmp_path))
  first = tasks.info(name).files[0].partition(' or ')[0]
  first = first.partition('*')[0].rstrip('/')
  assert first in str(raised.value)


@pytest.mark.exhaustive
def test_the_papers_settings_can_be_made():
  parser = flags.Flags()
  made = set()
  for name in presets.names():
    settings = parser.parse([f'--preset={name}', '--data=synthetic']).settings
    options = dict(settings.task_options)
    # Of how skewed clients are there are many, and no two differ in kind.
    kind = str(
      (settings.task, {k: options[k] for k in options if k != 'alpha'})
    )
    if kind not in made:
      made.add(kind)
      tasks.create(settings.task, **options)
  assert len(made) > 15


_POOLED = [
  name
  for name in tasks.names()
  if issubclass(tasks.info(name).options, tasks.Divided) and name != 'table'
]


@pytest.mark.parametrize(
  'name', tiers.exhaustive_but(['digits', 'libsvm_logistic'], _POOLED)
)
def test_every_pool_can_be_divided_in_every_way(name):
  kinds = tasks.parameters_of(name)['partition'].choices
  if name not in ('digits', 'libsvm_logistic', 'cifar100_image'):
    kinds = ('shards', 'continuous')
  for kind in kinds:
    # Of two labels.
    two = name == 'libsvm_logistic'
    changes = {}
    if two and kind in ('classes', 'pathological', 'lognormal'):
      changes = dict(classes_per_client=1)
    elif two and kind in ('lda', 'dirichlet', 'inner_dirichlet'):
      changes = dict(alpha=1.0)
    task = _create(name, partition=kind, **changes)
    split = task.datasets.train_data.partition
    assert len(split.client_ids) >= 10 and split.sizes.min() >= 1
  sized = _create(name, partition='iid', sizes='linear')
  sizes = sized.datasets.train_data.partition.sizes
  assert sizes[-1] > 5 * sizes[0]
  if name in ('ag_news', 'dbpedia'):
    with pytest.raises(tasks.PartitionError, match='label, tokens'):
      _create(name, partition='iid', feature_skew='noise')
    return
  plain, noisy = (
    _create(name, partition='iid', feature_skew=skew).datasets.train_data
    for skew in (None, 'noise')
  )
  features = noisy.arrays[noisy.skewed]
  before = plain.arrays[noisy.skewed]
  assert features.dtype == before.dtype and (features != before).any()
