"""This project, tff.learning and a plain loop, for benchmarks/runtime.py."""

import keras_models
import tensorflow as tf
import tensorflow_federated as tff
import workload

from tff_adaptive import algorithms
from tff_adaptive import runtime


def _network(options):
  layer = keras_models.lstm_layer
  if options.contender.startswith('tff'):
    layer = lambda: tf.keras.layers.LSTM(256, return_sequences=True)
  return keras_models.network(options, layer)


def _batch_spec(options):
  x, y = workload.arrays(options, 0)
  return (
    tf.TensorSpec([None, *x.shape[1:]], x.dtype),
    tf.TensorSpec([None, *y.shape[1:]], y.dtype),
  )


def _model_fn(options):
  spec = _batch_spec(options)

  def model_fn():
    return tff.learning.models.from_keras_model(
      _network(options),
      loss=keras_models.loss(options),
      input_spec=spec,
      metrics=[keras_models.metric(options)],
    )

  return model_fn


def _datasets(options):
  """Builds a function that returns a round's client datasets."""

  def make(client):
    data = tf.data.Dataset.from_tensor_slices(workload.arrays(options, client))
    if options.shuffle:
      data = data.shuffle(options.examples)
    return data.batch(options.batch_size)

  fixed = [make(c) for c in range(options.clients)]
  if options.shuffle:
    return lambda: [make(c) for c in range(options.clients)]
  return lambda: fixed


def _mean_loss(options, model) -> float:
  loss_fn = keras_models.loss(options)
  losses = []
  for client in range(options.clients):
    x, y = workload.arrays(options, client)
    losses.append(float(loss_fn(y, model(x, training=False))))
  return sum(losses) / len(losses)


def _federated(options, process):
  data = _datasets(options)
  start = tff.learning.models.ModelWeights(
    trainable=workload.start_weights(options), non_trainable=[]
  )
  holder = [process.set_model_weights(process.initialize(), start)]

  def run():
    holder[0] = process.next(holder[0], data()).state

  def loss():
    model = _network(options)
    model.set_weights(process.get_model_weights(holder[0]).trainable)
    return _mean_loss(options, model)

  return run, loss


def _tff_process(options, iterator: bool):
  loop = tff.learning.LoopImplementation
  return tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn(options),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(
      workload.CLIENT_RATE
    ),
    server_optimizer_fn=tff.learning.optimizers.build_adam(
      workload.SERVER_RATE,
      beta_2=workload.SERVER_BETA_2,
      epsilon=workload.SERVER_EPSILON,
    ),
    loop_implementation=(
      loop.DATASET_ITERATOR if iterator else loop.DATASET_REDUCE
    ),
  )


def _fedadam(options):
  return algorithms.build(
    'fedadam',
    _model_fn(options),
    client_learning_rate=workload.CLIENT_RATE,
    server_learning_rate=workload.SERVER_RATE,
    server_adaptivity=workload.SERVER_EPSILON,
    beta_2=workload.SERVER_BETA_2,
    variant='reference',
  )


def _plain(options):
  model = _network(options)
  model.set_weights(workload.start_weights(options))
  loss_fn = keras_models.loss(options)

  @tf.function(input_signature=_batch_spec(options))
  def step(x, y):
    with tf.GradientTape() as tape:
      loss = loss_fn(y, model(x, training=True))
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
      # An embedding's gradient is sparse.
      dense = tf.convert_to_tensor(gradient)
      variable.assign_sub(workload.CLIENT_RATE * dense)
    return loss

  batches = [
    tuple(tf.constant(a[i : i + options.batch_size]) for a in client)
    for client in (workload.arrays(options, c) for c in range(options.clients))
    for i in range(0, options.examples, options.batch_size)
  ]

  def run():
    for x, y in batches:
      last = step(x, y)
    last.numpy()  # Waits for a GPU.

  return run, lambda: _mean_loss(options, model)


def make(options):
  name = options.contender
  if name == 'plain':
    tf.config.experimental.enable_tensor_float_32_execution(False)
    return _plain(options)
  if name in ('tff_reduce', 'tff_iterator'):
    runtime.set_native_context()
    return _federated(options, _tff_process(options, name == 'tff_iterator'))
  tf.config.threading.set_intra_op_parallelism_threads(1)
  runtime.set_in_process_context(
    max_concurrent_clients=options.threads,
    devices=options.devices and options.devices.split(','),
    vectorize_clients=options.vectorize_clients,
    jit_compile=options.jit_compile,
  )
  if name == 'tff_in_process':
    return _federated(options, _tff_process(options, iterator=False))
  return _federated(options, _fedadam(options))


def _device_peak() -> int:
  """Adds up the most bytes that TensorFlow had on each GPU."""
  return sum(
    tf.config.experimental.get_memory_info(gpu.name.partition('device:')[2])[
      'peak'
    ]
    for gpu in tf.config.list_logical_devices('GPU')
  )


if __name__ == '__main__':
  parsed = workload.parse()
  workload.serve(parsed, make, _device_peak)
