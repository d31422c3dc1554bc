"""TFF's programs on a Ray cluster."""

import asyncio
import collections
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime


@pytest.mark.ray
def test_wrong_arguments_and_addresses_are_told():
  with pytest.raises(ValueError, match='`retries` must be at least 0'):
    runtime.create_ray_context(retries=-1)
  with pytest.raises(ValueError, match="'auto' or host:port"):
    runtime.create_ray_context('somewhere')
  start = time.monotonic()
  with pytest.raises(runtime.WorkerFailure, match=r'127\.0\.0\.1:1 '):
    runtime.create_ray_context('127.0.0.1:1')
  assert time.monotonic() - start < 10


@pytest.mark.ray
def test_a_cluster_is_started_where_there_is_none(monkeypatch, capsys):
  from tff_adaptive.runtime.cluster import connection  # pylint: disable=g-import-not-at-top

  asked = []

  def init(address, **_):
    asked.append(address)
    if address == 'auto':
      raise ConnectionError('Could not find any running Ray instance.')

  monkeypatch.delenv('RAY_ADDRESS', raising=False)
  monkeypatch.setattr(connection.ray, 'is_initialized', lambda: False)
  monkeypatch.setattr(connection.ray, 'init', init)
  assert connection.connect('auto')
  assert asked == ['auto', 'local']
  assert 'Starting a Ray cluster' in capsys.readouterr().err


@pytest.fixture(name='context')
def _context(ray_nodes):
  context = runtime.set_ray_context(ray_nodes.address, asynchronous=True)
  yield context
  context.close()


_SEQUENCE = tff.SequenceType(np.int64)


@tff.tensorflow.computation(_SEQUENCE)
def _sum(dataset):
  return dataset.reduce(np.int64(0), lambda total, x: total + x)


@tff.federated_computation(tff.FederatedType(_SEQUENCE, tff.CLIENTS))
def _sums(datasets):
  return tff.federated_sum(tff.federated_map(_sum, datasets))


def _model_fn():
  number = tf.TensorSpec([None, 1], tf.float32)
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([1]),
        tf.keras.layers.Dense(1, kernel_initializer='zeros'),
      ]
    ),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=collections.OrderedDict(x=number, y=number),
  )


@pytest.mark.exhaustive
def test_programs_run_and_can_be_cancelled(context, tmp_path):
  del context
  for client in range(4):
    (tmp_path / str(client)).write_text('\n'.join(['1.0', '2.0', '3.0']))

  # Clients' files are read where the clients train.
  @tff.tensorflow.computation(np.str_)
  def data_of(client_id):
    path = tf.strings.join([f'{tmp_path}/', client_id])
    return (
      tf.data.TextLineDataset(path)
      .map(lambda line: tf.strings.to_number([line]))
      .map(lambda x: collections.OrderedDict(x=x, y=2.0 * x))
      .batch(2)
    )

  process = algorithms.build('fedadam', _model_fn, client_learning_rate=0.1)
  compose = tff.simulation.compose_dataset_computation_with_learning_process
  metrics = tff.program.MemoryReleaseManager()

  async def program():
    await tff.learning.programs.train_model(
      train_process=compose(data_of, process),
      train_data_source=tff.program.ClientIdDataSource(list('0123')),
      train_per_round_clients=4,
      train_total_rounds=3,
      program_state_manager=tff.program.FileProgramStateManager(
        tmp_path / 'state'
      ),
      model_output_manager=tff.program.MemoryReleaseManager(),
      train_metrics_manager=metrics,
      evaluation_manager=None,
      evaluation_periodicity=1,
    )
    endless = _sums([tf.data.Dataset.range(5).repeat()] * 2)
    task = asyncio.ensure_future(tff.program.materialize_value(endless))
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task
    # Two at once.
    values = await asyncio.gather(
      *(
        tff.program.materialize_value(_sums([tf.data.Dataset.range(n)] * 3))
        for n in (2, 3)
      )
    )
    assert values == [3, 9]

  asyncio.run(program())
  losses = [
    float(value['model_metrics']['loss'])
    for value in metrics.values().values()
    if 'model_metrics' in value
  ]
  assert len(losses) == 3 and losses == sorted(losses, reverse=True)
