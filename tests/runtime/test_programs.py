"""TFF's own training programs run on the in-process contexts."""

import asyncio
import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import runtime

_SPEC = collections.OrderedDict(
  x=tf.TensorSpec([None, 2], tf.float32),
  y=tf.TensorSpec([None, 1], tf.float32),
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


def test_train_model(tmp_path):
  @tff.tensorflow.computation(np.str_)
  def make_dataset(client_id):
    def example(i):
      x = tf.fill([2], tf.cast(i, tf.float32) / 10)
      return collections.OrderedDict(x=x, y=tf.reshape(x[0], [1]))

    length = tf.cast(tf.strings.length(client_id), tf.int64)
    return tf.data.Dataset.range(4 + length).map(example).batch(4)

  context = runtime.create_in_process_context(asynchronous=True)
  process = tff.simulation.compose_dataset_computation_with_learning_process(
    make_dataset, _process()
  )
  metrics = tff.program.MemoryReleaseManager()
  output = tff.program.MemoryReleaseManager()
  with tff.framework.get_context_stack().install(
    tff.program.NativeFederatedContext(context)
  ):
    asyncio.run(
      tff.learning.programs.train_model(
        train_process=process,
        train_data_source=tff.program.ClientIdDataSource(['a', 'bb']),
        train_per_round_clients=2,
        train_total_rounds=4,
        program_state_manager=tff.program.FileProgramStateManager(tmp_path),
        model_output_manager=output,
        train_metrics_manager=metrics,
        evaluation_manager=None,
        evaluation_periodicity=1,
      )
    )
  context.close()
  assert list(metrics.values()) == [1, 2, 3, 4]
  assert output.values()
