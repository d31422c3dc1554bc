"""TFF's own training programs run on this project's contexts."""

import asyncio
import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32), y=tf.TensorSpec([None, 1], tf.float32)
)


def _model_fn():
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([2]),
        tf.keras.layers.Dense(1, kernel_initializer='zeros'),
      ]
    ),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=_SPEC,
  )


def _clients(round_number=None):
  del round_number
  rng = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=rng.normal(size=(8, 2)).astype(np.float32),
        y=rng.normal(size=(8, 1)).astype(np.float32),
      )
    ).batch(4)
    for _ in range(3)
  ]


def _process():
  return tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn, client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1)
  )


def _losses(values):
  return [float(v['client_work']['train']['loss']) for v in values]


def test_run_training_process(tmp_path):
  context = runtime.create_in_process_context()
  metrics = tff.program.MemoryReleaseManager()
  with tff.framework.get_context_stack().install(context):
    process = _process()

    def run(total_rounds):
      # TFF asks the thread for its event loop, which asyncio.run() takes away.
      asyncio.set_event_loop(asyncio.new_event_loop())
      return tff.simulation.run_training_process(
        process,
        _clients,
        total_rounds,
        program_state_manager=tff.program.FileProgramStateManager(tmp_path),
        metrics_managers=[metrics],
      )

    run(2)
    run(4)  # Goes on from the file.
  context.close()
  releases = metrics.values()
  assert list(releases) == [1, 2, 3, 4]
  losses = _losses(releases.values())
  assert losses == sorted(losses, reverse=True) and losses[-1] < losses[0]


@pytest.fixture(name='default_context')
def _default_context():
  """Restores TFF's default context after a test that sets it."""
  before = tff.framework.get_context_stack().current
  yield
  tff.framework.set_default_context(before)


@tff.tensorflow.computation(np.str_)
def _dataset_of(client_id):
  def example(i):
    x = tf.fill([2], tf.cast(i, tf.float32) / 10)
    return collections.OrderedDict(x=x, y=tf.reshape(x[0], [1]))

  length = tf.cast(tf.strings.length(client_id), tf.int64)
  return tf.data.Dataset.range(4 + length).map(example).batch(4)


def _train(rounds, folder, **managers):
  """Runs TFF's training program with a method of this project."""
  process = tff.simulation.compose_dataset_computation_with_learning_process(
    _dataset_of, _fedadam()
  )
  asyncio.run(
    tff.learning.programs.train_model(
      train_process=process,
      train_data_source=tff.program.ClientIdDataSource(['a', 'bb', 'ccc']),
      train_per_round_clients=3,
      train_total_rounds=rounds,
      program_state_manager=tff.program.FileProgramStateManager(folder),
      evaluation_manager=None,
      evaluation_periodicity=1,
      **managers,
    )
  )


def _fedadam():
  return algorithms.build(
    'fedadam', _model_fn, client_learning_rate=0.1, server_learning_rate=0.1
  )


def _losses_without_a_program(rounds):
  context = runtime.create_in_process_context()
  losses = []
  with tff.framework.get_context_stack().install(context):
    process = _fedadam()
    state = process.initialize()
    data = [_dataset_of(client) for client in ('a', 'bb', 'ccc')]
    for _ in range(rounds):
      output = process.next(state, data)
      state = output.state
      losses.append(float(output.metrics['client_work']['train']['loss']))
  context.close()
  return losses


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['in_process', 'native'])
def test_train_model_in_the_default_context(name, tmp_path, default_context):
  context = getattr(runtime, f'set_{name}_context')(asynchronous=True)
  assert isinstance(context, tff.program.FederatedContext)
  memory = tff.program.MemoryReleaseManager()
  every_other = tff.program.MemoryReleaseManager()
  late = tff.program.MemoryReleaseManager()
  losses_only = tff.program.MemoryReleaseManager()
  models = tff.program.MemoryReleaseManager()
  metrics = tff.program.GroupingReleaseManager(
    [
      memory,
      tff.program.PeriodicReleaseManager(every_other, 2),
      tff.program.DelayedReleaseManager(late, 3),
      tff.program.FilteringReleaseManager(
        losses_only, lambda path: path[-1] == 'loss'
      ),
      tff.program.LoggingReleaseManager(),
      tff.program.CSVFileReleaseManager(tmp_path / 'csv', key_fieldname='r'),
      tff.program.TensorBoardReleaseManager(tmp_path / 'tensorboard'),
    ]
  )
  for rounds in (2, 4):  # The second goes on from the file.
    _train(
      rounds,
      tmp_path / 'state',
      train_metrics_manager=metrics,
      model_output_manager=models,
    )
  context.close()
  assert list(memory.values()) == [1, 2, 3, 4]
  assert len(every_other.values()) == len(late.values()) == 2
  assert len((tmp_path / 'csv').read_text().splitlines()) == 5
  assert list((tmp_path / 'tensorboard').iterdir())
  assert list(models.values()) == [
    'training_checkpoint_round_2',
    'training_checkpoint_round_4',
  ]
  losses = [float(v['model_metrics']['loss']) for v in memory.values().values()]
  np.testing.assert_allclose(losses, _losses_without_a_program(4), rtol=1e-5)
  assert losses == [
    float(v['model_metrics']['loss']) for v in losses_only.values().values()
  ]


def test_failing_client_ends_the_program(default_context):
  context = runtime.set_in_process_context(asynchronous=True)

  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 10 // x

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def compute(values):
    return tff.federated_sum(tff.federated_map(divide, values))

  async def program():
    return await tff.program.materialize_value(compute([1, 0]))

  with pytest.raises(runtime.ClientFailure, match='Client 1 of 2'):
    asyncio.run(program())
  context.close()
