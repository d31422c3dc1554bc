"""Clients that take each local step together compute what each does alone."""

import contextlib
import functools
import logging

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive import runtime
from tff_adaptive import vectorizing
from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime.engine import lockstep
from tff_adaptive.runtime.engine import resources

from . import linear

# Several batches with a smaller last one, one batch, part of one, and none.
_SIZES = (23, 10, 4, 31, 0, 17)
_BATCH = 10
_SPEC = (tf.TensorSpec([None, 6, 6, 1]), tf.TensorSpec([None], tf.int32))
_RATES = {
  name: {'client_learning_rate': 0.05}
  for name in ('fednova', 'feddyn', 'scaffold')
}
_NEED_MORE = {'fedbn'}
# Accumulators that start at zero divide a gradient near zero by itself, which
# amplifies its rounding.
_TOLERANCES = {'joint_zero_init': 1e-4}


def _layers(layers, entrance):
  """Convolution, pooling, a regularized kernel and dropout."""
  return [
    entrance,
    layers.Conv2D(3, 3, activation='relu', kernel_regularizer='l2'),
    layers.MaxPool2D(),
    layers.Conv2D(4, 2, padding='same', activation='relu'),
    layers.Flatten(),
    layers.Dropout(0.3),
    layers.Dense(4),
  ]


def _keras_2():
  layers = tf.keras.layers
  return tf.keras.Sequential(_layers(layers, layers.InputLayer((6, 6, 1))))


def _keras_3():
  import keras  # pylint: disable=g-import-not-at-top

  layers = keras.layers
  return keras.Sequential(_layers(layers, layers.Input((6, 6, 1))))


def model_fn(version, reduction='sum_over_batch_size'):
  if version == 2:
    build, kind = _keras_2, tf.keras
  else:
    import keras as kind  # pylint: disable=g-import-not-at-top

    build = _keras_3
  return models.model_fn(
    build,
    input_spec=_SPEC,
    loss=kind.losses.SparseCategoricalCrossentropy(
      from_logits=True, reduction=reduction
    ),
    metrics=[
      kind.metrics.SparseCategoricalAccuracy,
      lambda: kind.metrics.SparseTopKCategoricalAccuracy(2, name='top_2'),
    ],
  )


def clients(sizes=_SIZES):
  rng = np.random.default_rng(0)
  return [
    (
      rng.normal(size=(n, 6, 6, 1)).astype(np.float32),
      rng.integers(0, 4, n).astype(np.int32),
    )
    for n in sizes
  ]


def as_rows(arrays):
  return rows_lib.RowBatches(tf.nest.map_structure(tf.constant, arrays), _BATCH)


def _as_dataset(arrays):
  return tf.data.Dataset.from_tensor_slices(arrays).batch(_BATCH)


def _run(process, vectorize, data, rounds=3, **context):
  """All numbers of some rounds, from weights that are always the same."""
  runtime.set_in_process_context(vectorize_clients=vectorize, **context)
  rng = np.random.default_rng(1)
  state = process.initialize()
  weights = tf.nest.map_structure(
    lambda w: rng.normal(0, 0.3, np.shape(w)).astype(np.float32),
    process.get_model_weights(state),
  )
  state = process.set_model_weights(state, weights)
  kept = []
  if hasattr(process, 'initialize_client_state'):
    kept = [[process.initialize_client_state() for _ in data]]
  for _ in range(rounds):
    output = process.next(state, *kept, data)
    state = output.state
    if kept:
      kept = [output.client_states]
  leaves = tf.nest.flatten((state, output.metrics, kept))
  return [np.asarray(leaf) for leaf in leaves]


def _check_equal(ours, theirs, tolerance=1e-5):
  for a, b in zip(ours, theirs, strict=True):
    if a.dtype.kind == 'f':
      scale = np.abs(b).max(initial=1e-6)
      np.testing.assert_allclose(a / scale, b / scale, atol=tolerance)
    else:
      np.testing.assert_array_equal(a, b)


@pytest.fixture(autouse=True)
def messages_of_the_runtime(caplog):
  caplog.set_level(logging.INFO, 'tff_adaptive.runtime')


@pytest.mark.parametrize(
  'method, version',
  tiers.exhaustive_but(
    [
      ('delta_sgd', 3),
      ('fedada2_blended', 2),
      ('fedsps_global', 2),
      ('mime', 3),
      ('moon', 2),
      ('scaffold', 3),
    ],
    [
      (method, version)
      for method in sorted(set(algorithms.names()) - _NEED_MORE)
      for version in (2, 3)
    ],
  ),
)
def test_clients_together_compute_what_each_does_alone(method, version, caplog):
  process = algorithms.build(
    method, model_fn(version), **_RATES.get(method, {})
  )
  data = [as_rows(arrays) for arrays in clients()]
  alone = _run(process, 'false', data)
  together = _run(process, 'true', data)
  _check_equal(together, alone, _TOLERANCES.get(method, 1e-5))
  assert 'one at a time' not in caplog.text


@pytest.mark.parametrize(
  'method',
  tiers.exhaustive_but(
    ['delta_sgd', 'scaffold'], sorted(set(algorithms.names()) - _NEED_MORE)
  ),
)
def test_compiled_clients_compute_the_same(method, caplog):
  process = algorithms.build(method, model_fn(3), **_RATES.get(method, {}))
  # With as many rows as needed, and a few more.
  data = [_as_dataset(arrays) for arrays in clients()]
  alone = _run(process, 'false', data)
  compiled = _run(process, 'true', data, jit_compile='true')
  _check_equal(compiled, alone, _TOLERANCES.get(method, 1e-5))
  assert 'without XLA' not in caplog.text


@pytest.mark.parametrize('for_xla', [False, True])
@pytest.mark.parametrize('rows', [4, 5])
def test_pooling_sends_gradients_to_the_first_of_equals(rows, for_xla):
  """Bit for bit as TensorFlow's operation does, most windows having ties."""
  rng = np.random.default_rng(0)
  images = tf.constant(rng.integers(0, 3, (3, 2, rows, 6, 5)), tf.float32)
  weights = tf.constant(rng.normal(size=(3, 2, rows // 2, 3, 5)), tf.float32)

  def gradient(own, factors):
    with tf.GradientTape() as tape:
      tape.watch(own)
      pooled = tf.nn.max_pool2d(own, 2, 2, 'VALID') * factors
    return tape.gradient(pooled, own)

  @tf.function(autograph=False, jit_compile=for_xla)
  def together(*tensors):
    return vectorizing.over_clients(3, gradient, *tensors)

  alone = [gradient(*own).numpy() for own in zip(images, weights)]
  with vectorizing.for_xla() if for_xla else contextlib.nullcontext():
    np.testing.assert_array_equal(together(images, weights), alone)


def test_other_convolutions_do_not_keep_clients_apart(caplog):
  def build():
    layers = tf.keras.layers
    return tf.keras.Sequential(
      [
        layers.InputLayer((6, 6, 1)),
        layers.Conv2D(4, 3),
        layers.Conv2D(4, 2, groups=2),
        layers.Conv2DTranspose(3, 2),
        layers.Conv2DTranspose(2, 2, strides=2),
        layers.Flatten(),
        layers.Dense(4),
      ]
    )

  loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  process = algorithms.build(
    'fedavg', models.model_fn(build, input_spec=_SPEC, loss=loss)
  )
  data = [as_rows(own) for own in clients()]
  together = _run(process, 'true', data, rounds=1)
  assert 'one at a time' not in caplog.text
  _check_equal(together, _run(process, 'false', data, rounds=1))


def test_data_may_be_datasets_or_lists_and_losses_sums():
  process = algorithms.build(
    'fedavg', model_fn(2, 'sum'), client_learning_rate=0.01
  )
  arrays = clients()
  alone = _run(process, 'false', [as_rows(own) for own in arrays])
  lists = [list(_as_dataset(own)) for own in arrays]
  for data in ([_as_dataset(own) for own in arrays], lists):
    _check_equal(_run(process, 'true', data), alone)


def test_tffs_aggregators_take_clients_that_train_together(caplog):
  """Clipping has conditions of TFF, which run client by client."""
  process = algorithms.build('fedavg', model_fn(2), aggregator='robust')
  data = [_as_dataset(arrays) for arrays in clients()]
  _check_equal(_run(process, 'true', data), _run(process, 'false', data))
  assert 'one at a time' not in caplog.text


class RunningMean(tff.aggregators.WeightedAggregationFactory):
  """A mean that each client moves by its share: what it reads is a sum."""

  def create(self, value_type, weight_type):
    specs = tff.types.type_to_tf_tensor_specs(value_type)

    @tff.tensorflow.computation
    def zero():
      zeros = tf.nest.map_structure(lambda s: tf.zeros(s.shape, s.dtype), specs)
      return 0.0, zeros

    total = zero.type_signature.result
    sent_type = tff.to_type((weight_type, value_type))

    @tff.tensorflow.computation(total, sent_type)
    def accumulate(before, sent):
      (weights, mean), (weight, value) = before, sent
      weights += weight
      moved = tf.nest.map_structure(
        lambda m, v: m + (v - m) * weight / weights, mean, value
      )
      return weights, moved

    @tff.tensorflow.computation(total, total)
    def merge(one, other):
      del other
      return one

    @tff.tensorflow.computation(total)
    def report(so_far):
      return so_far[1]

    @tff.federated_computation
    def initialize():
      return tff.federated_value((), tff.SERVER)

    @tff.federated_computation(
      initialize.type_signature.result,
      tff.FederatedType(value_type, tff.CLIENTS),
      tff.FederatedType(weight_type, tff.CLIENTS),
    )
    def next_fn(state, value, weight):
      mean = tff.federated_aggregate(
        tff.federated_zip((weight, value)), zero(), accumulate, merge, report
      )
      return tff.templates.MeasuredProcessOutput(
        state, mean, tff.federated_value((), tff.SERVER)
      )

    return tff.templates.AggregationProcess(initialize, next_fn)


def test_a_running_mean_reads_the_weights_that_came_before():
  build = functools.partial(algorithms.build, 'fedavg', model_fn(2))
  running = build(model_aggregator=RunningMean())
  data = [as_rows(own) for own in clients((23, 10, 4, 31))]
  expected = _run(build(), 'true', data, rounds=1)
  _check_equal(_run(running, 'true', data, rounds=1)[:6], expected[:6])


def test_rows_of_common_tensors_are_copied_for_a_gpu(monkeypatch):
  process = algorithms.build('fedadam', model_fn(2))
  one = tf.nest.map_structure(lambda *parts: np.concatenate(parts), *clients())
  common = tf.nest.map_structure(tf.constant, one)
  ends = np.cumsum(_SIZES)
  data = [
    rows_lib.RowBatches(common, _BATCH, int(end - size), int(end))
    for size, end in zip(_SIZES, ends)
  ]
  alone = _run(process, 'false', data)
  monkeypatch.setattr(resources.Resources, 'on_gpu', True)
  for choice in ('true', 'false'):
    _check_equal(_run(process, 'true', data, jit_compile=choice), alone)


@pytest.mark.parametrize(
  'threads, devices, received_bytes, sizes',
  [
    (2, 1, 1 << 20, [10, 10]),
    (2, 1, 1 << 10, [20]),  # Threads do not speed up the smallest models.
    (1, 2, 1 << 10, [10, 10]),
    (1, 1, 64 << 20, [7, 7, 6]),  # Their memory would be 10 GiB.
    (1, 1, 1 << 40, [1] * 20),
  ],
)
def test_groups_keep_to_threads_devices_and_memory(
  threads, devices, received_bytes, sizes
):
  whole = lockstep.Rows([], [0] * 20, [*range(20)], 5)
  found = lockstep.groups(range(20), whole, threads, devices, received_bytes)
  assert [len(group) for group in found] == sizes
  # Those with the most examples first.
  assert [i for group in found for i in group] == [*range(19, -1, -1)]


def test_bits_do_not_depend_on_threads():
  process = algorithms.build('fedadam', model_fn(2))
  data = [as_rows(own) for own in clients((7, 31, 12, 9, 26, 3, 18, 40, 5))]
  one, *others = (
    _run(process, 'true', data, max_concurrent_clients=n) for n in (1, 2, 4)
  )
  for other in others:
    for a, b in zip(one, other, strict=True):
      np.testing.assert_array_equal(a, b)


def test_a_client_that_diverges_is_left_out_alone():
  arrays = clients()
  arrays[1][0][3] = np.nan
  process = algorithms.build('fedadam', model_fn(2))
  data = [as_rows(own) for own in arrays]
  alone = _run(process, 'false', data, rounds=1)
  _check_equal(_run(process, 'true', data, rounds=1), alone)


def test_a_delay_in_epochs_takes_clients_without_examples(caplog):
  process = algorithms.build(
    'fedada2', model_fn(2), delay=2, delay_unit='epochs', local_epochs=2
  )
  data = [as_rows(own) for own in clients()]
  _check_equal(_run(process, 'true', data), _run(process, 'false', data))
  assert 'one at a time' not in caplog.text


def test_a_client_that_fails_is_named():
  arrays = clients()
  arrays[3][1][7] = 9  # There are four classes.
  process = algorithms.build('fedadam', model_fn(2))
  data = [as_rows(own) for own in arrays]
  with pytest.raises(runtime.ClientFailure, match='Client 3 of 6') as caught:
    # A GPU computes what is not finite instead.
    _run(process, 'true', data, rounds=1, devices=['CPU:0'])
  assert caught.value.client_index == 3


def test_a_client_whose_data_cannot_be_read_is_named():
  process = algorithms.build('fedadam', model_fn(2))
  data = [_as_dataset(own) for own in clients()]

  def read(x, y):
    with tf.control_dependencies([tf.debugging.Assert(False, ['no file'])]):
      return tf.identity(x), y

  data[2] = data[2].map(read)
  with pytest.raises(runtime.ClientFailure, match=r'Client 2 of 6.*no file'):
    _run(process, 'true', data, rounds=1)


def test_what_cannot_train_together_trains_alone_and_says_why(caplog):
  process = algorithms.build('fedadam', linear.functional_model())
  runtime.set_in_process_context(vectorize_clients='true')
  together, _ = linear.run(process, 2)
  runtime.set_in_process_context(vectorize_clients='false')
  alone, _ = linear.run(process, 2)
  np.testing.assert_array_equal(together, alone)
  assert 'FunctionalModel is one number for a batch' in caplog.text


def test_computations_of_others_run_one_client_at_a_time():
  process = tff.learning.algorithms.build_unweighted_fed_avg(
    linear.model_fn, tff.learning.optimizers.build_sgdm(0.05)
  )
  runtime.set_in_process_context(vectorize_clients='true')
  together, _ = linear.run(process, 2)
  runtime.set_in_process_context(vectorize_clients='false')
  alone, _ = linear.run(process, 2)
  np.testing.assert_array_equal(together, alone)


def test_one_irregular_cohort_is_none_of_the_next_ones(caplog):
  process = algorithms.build('fedavg', model_fn(2))
  regular = [as_rows(own) for own in clients()]
  irregular = [list(_as_dataset(own)) * 2 for own in clients()]

  def weights(data):
    output = process.next(process.initialize(), data)
    return np.concatenate(
      [np.ravel(w) for w in process.get_model_weights(output.state).trainable]
    )

  runtime.set_in_process_context(vectorize_clients='false')
  alone = weights(regular)
  runtime.set_in_process_context(vectorize_clients='true')
  first = weights(regular)
  assert (first != alone).any()  # It rounds otherwise.
  for _ in range(2):
    weights(irregular)
  assert caplog.text.count('one at a time') == 1
  np.testing.assert_array_equal(weights(regular), first)


def test_xla_is_not_blamed_for_a_client_that_fails(monkeypatch, caplog):
  arrays = clients()
  arrays[3][1][7] = 9  # There are four classes.
  process = algorithms.build('fedavg', model_fn(2))

  def refuse(*_):
    raise tf.errors.InternalError(None, None, 'no memory')

  monkeypatch.setattr(lockstep.Together, 'function', lambda *_: refuse)
  data = [as_rows(own) for own in arrays]
  with pytest.raises(runtime.ClientFailure, match='Client 3 of 6'):
    _run(process, 'true', data, 1, jit_compile='true', devices=['CPU:0'])
  assert 'without XLA' not in caplog.text


def test_clients_draw_numbers_of_their_own():
  process = algorithms.build('fedavg', linear.model_fn)

  @tff.tensorflow.computation
  def draw():
    return tf.random.uniform([])

  @tff.federated_computation(*_types_of(process))
  def drawn_beside(state, data):
    return process.next(state, data), tff.federated_eval(draw, tff.CLIENTS)

  runtime.set_in_process_context(vectorize_clients='true')
  data = linear.datasets(linear.CLIENTS)
  _, drawn = drawn_beside(process.initialize(), data)
  assert len(set(map(float, drawn))) == len(linear.CLIENTS) > 1


def _types_of(process):
  return list(process.next.type_signature.parameter)


def test_values_of_different_shapes_are_taken_one_client_at_a_time(caplog):
  process = algorithms.build('fedavg', linear.model_fn)
  numbers = tff.TensorType(np.float32, [None])

  @tff.tensorflow.computation(numbers)
  def add_up(values):
    return tf.reduce_sum(values)

  own_type = tff.FederatedType(numbers, tff.CLIENTS)

  @tff.federated_computation(*_types_of(process), own_type)
  def total_beside(state, data, own):
    total = tff.federated_sum(tff.federated_map(add_up, own))
    return process.next(state, data), total

  runtime.set_in_process_context(vectorize_clients='true')
  data = linear.datasets(linear.CLIENTS)
  own = [np.ones(i + 1, np.float32) for i in range(len(data))]
  _, total = total_beside(process.initialize(), data, own)
  assert total == sum(map(len, own))
  assert 'clients have values of different shapes' in caplog.text


@pytest.mark.parametrize('jit_compile', ['true', 'false'])
def test_a_cohort_without_examples_ends_nothing(caplog, jit_compile):
  process = algorithms.build('fedavg', linear.model_fn)
  runtime.set_in_process_context(
    vectorize_clients='true', jit_compile=jit_compile
  )
  data = linear.datasets(linear.CLIENTS)
  state = process.next(process.initialize(), [d.take(0) for d in data]).state
  assert 'no client of the cohort has examples' in caplog.text
  caplog.clear()
  process.next(state, data)
  assert 'one at a time' not in caplog.text


def test_an_unknown_choice_is_refused():
  with pytest.raises(ValueError, match="'auto', 'true' or 'false', got 'yes'"):
    runtime.create_in_process_context(vectorize_clients='yes')
