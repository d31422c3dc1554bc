"""Computations that any TFF runtime runs; each returns a nested structure."""

import collections

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
import tree

from tests.runtime import computations

_LOOP = tff.learning.LoopImplementation


def _keras_model():
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer([4]),
      tf.keras.layers.Dense(3, kernel_initializer='zeros'),
    ]
  )


def _loss():
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def _model_fn():
  return tff.learning.models.from_keras_model(
    _keras_model(),
    loss=_loss(),
    input_spec=computations.SPEC,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
  )


def _sgd():
  return tff.learning.optimizers.build_sgdm(0.1)


def _two_rounds(process, data=None):
  state = process.initialize()
  metrics = []
  for _ in range(2):
    output = process.next(state, data or computations.clients())
    state = output.state
    metrics.append(output.metrics)
  return state, metrics


def _fed_avg(**keywords):
  return _two_rounds(
    tff.learning.algorithms.build_weighted_fed_avg(
      _model_fn, client_optimizer_fn=_sgd(), **keywords
    )
  )


def fed_avg_reduce():
  return _fed_avg(
    server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
    loop_implementation=_LOOP.DATASET_REDUCE,
  )


def fed_avg_iterator():
  return _fed_avg(loop_implementation=_LOOP.DATASET_ITERATOR)


def fed_avg_robust():
  return _fed_avg(model_aggregator=tff.learning.robust_aggregator())


def fed_avg_compressed():
  return _fed_avg(model_aggregator=tff.learning.compression_aggregator())


def fed_avg_private():
  # Without noise, which no two runs share.
  return _two_rounds(
    tff.learning.algorithms.build_unweighted_fed_avg(
      _model_fn,
      client_optimizer_fn=_sgd(),
      model_aggregator=tff.learning.dp_aggregator(0.0, 4),
    )
  )


def fed_sgd():
  return _two_rounds(tff.learning.algorithms.build_fed_sgd(_model_fn))


def fed_prox():
  return _two_rounds(
    tff.learning.algorithms.build_weighted_fed_prox(
      _model_fn, proximal_strength=0.1, client_optimizer_fn=_sgd()
    )
  )


def mime_lite():
  return _two_rounds(
    tff.learning.algorithms.build_weighted_mime_lite(
      _model_fn, base_optimizer=tff.learning.optimizers.build_sgdm(0.1, 0.9)
    )
  )


def k_means():
  return _two_rounds(
    tff.learning.algorithms.build_fed_kmeans(
      num_clusters=2, data_shape=(4,), random_seed=(1, 2)
    ),
    [
      d.unbatch().map(lambda example: example['x'])
      for d in computations.clients()
    ],
  )


def reconstruction():
  def model_fn():
    model = _keras_model()
    weights = model.trainable_variables
    build = (
      tff.learning.models.ReconstructionModel.from_keras_model_and_variables
    )
    return build(
      keras_model=model,
      global_trainable_variables=weights[:1],
      global_non_trainable_variables=[],
      local_trainable_variables=weights[1:],
      local_non_trainable_variables=[],
      input_spec=computations.SPEC,
    )

  def metrics_fn():
    return [tf.keras.metrics.SparseCategoricalAccuracy()]

  split = tff.learning.models.ReconstructionModel.simple_dataset_split_fn
  return _two_rounds(
    tff.learning.algorithms.build_fed_recon(
      model_fn,
      loss_fn=_loss,
      metrics_fn=metrics_fn,
      client_optimizer_fn=_sgd(),
      dataset_split_fn=split,
    )
  )


def evaluation():
  process = tff.learning.algorithms.build_fed_eval(_model_fn)
  return process.next(process.initialize(), computations.clients())


def personalization():
  def strategy():
    @tf.function
    def personalize(model, train_data, test_data, context=None):
      del context

      def step(count, batch):
        with tf.GradientTape() as tape:
          output = model.forward_pass(batch)
        variables = model.trainable_variables
        for variable, gradient in zip(
          variables, tape.gradient(output.loss, variables)
        ):
          variable.assign_sub(0.1 * gradient)
        return count + 1

      steps = train_data.batch(4).reduce(0, step)
      loss = test_data.batch(4).reduce(
        0.0,
        lambda total, batch: (
          total + model.forward_pass(batch, training=False).loss
        ),
      )
      return collections.OrderedDict(steps=steps, loss=loss)

    return personalize

  def baseline(model, data):
    del model
    return collections.OrderedDict(
      batches=data.batch(2).reduce(0, lambda count, _: count + 1)
    )

  compute = tff.learning.algorithms.build_personalization_eval_computation(
    _model_fn,
    collections.OrderedDict(sgd=strategy),
    baseline_evaluate_fn=baseline,
  )
  data = [
    collections.OrderedDict(train_data=d.unbatch(), test_data=d.unbatch())
    for d in computations.clients()
  ]
  weights = tff.learning.models.ModelWeights.from_model(_model_fn())
  # TFF samples clients, in no particular order: it depends on which of them
  # are merged first, hence on how a cohort is cut into shares.
  sample = compute(weights, data)
  order = np.argsort(sample['sgd']['loss'])
  return tree.map_structure(lambda values: values[order], sample)


def dataset_computation():
  @tff.tensorflow.computation(np.str_)
  def make(client_id):
    def example(i):
      x = tf.fill([4], tf.cast(i, tf.float32) / 10)
      return collections.OrderedDict(x=x, y=tf.reshape(i % 3, [1]))

    size = tf.cast(tf.strings.length(client_id), tf.int64)
    # A seeded shuffle, a number of examples that differs, a short last batch.
    return tf.data.Dataset.range(5 + size).map(example).shuffle(9, 1).batch(4)

  process = tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn, client_optimizer_fn=_sgd()
  )
  composed = tff.simulation.compose_dataset_computation_with_iterative_process(
    make, process
  )
  return _two_rounds(composed, ['a', 'bb', 'cccc'])


def select():
  rows = tff.TensorType(np.float32, [5, 2])

  @tff.tensorflow.computation(rows, np.int32)
  def take(value, key):
    return collections.OrderedDict(key=key, row=tf.gather(value, key))

  @tff.tensorflow.computation(tff.SequenceType(take.type_signature.result))
  def total(slices):
    return slices.reduce(
      tf.zeros([2]),
      lambda sum_, s: sum_ + s['row'] * tf.cast(s['key'], tf.float32),
    )

  @tff.federated_computation(
    tff.FederatedType(tff.TensorType(np.int32, [2]), tff.CLIENTS),
    tff.FederatedType(rows, tff.SERVER),
    tff.FederatedType(np.int32, tff.SERVER),
  )
  def compute(keys, value, max_key):
    slices = tff.federated_select(keys, max_key, value, take)
    totals = tff.federated_map(total, slices)
    return totals, tff.federated_sum(totals)

  return compute(
    [[0, 1], [2, 3], [4, 4]], np.arange(10, dtype=np.float32).reshape(5, 2), 5
  )


def client_sequences():
  @tff.tensorflow.computation(tff.SequenceType(np.int64))
  def double(dataset):
    return dataset.map(lambda x: 2 * x)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.int64), tff.CLIENTS)
  )
  def compute(data):
    return tff.federated_map(double, data)

  results = compute([tf.data.Dataset.range(3), [7, 8]])
  return [list(r.as_numpy_iterator()) for r in results]


def lookup_tables():
  @tff.tensorflow.computation(tff.SequenceType(np.str_))
  def encode(words):
    table = tf.lookup.StaticVocabularyTable(
      tf.lookup.KeyValueTensorInitializer(
        ['a', 'b'], tf.constant([0, 1], tf.int64)
      ),
      num_oov_buckets=1,
    )
    return words.reduce(
      tf.constant(0, tf.int64), lambda sum_, w: 10 * sum_ + table.lookup(w)
    )

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(np.str_), tff.CLIENTS)
  )
  def compute(words):
    codes = tff.federated_map(encode, words)
    return codes, tff.federated_sum(codes)

  return compute([['a', 'b', 'c'], ['b'], []])


def means_and_extremes():
  number = tff.FederatedType(np.float32, tff.CLIENTS)

  @tff.federated_computation(number, number)
  def compute(value, weight):
    return (
      tff.federated_mean(value, weight),
      tff.federated_mean(value),
      tff.federated_min(value),
      tff.federated_max(value),
      weight,
    )

  return compute([1.0, 2.0, 4.0], [1.0, 1.0, 2.0])


def placed_values():
  @tff.tensorflow.computation
  def one():
    return tf.constant(1)

  @tff.federated_computation(tff.FederatedType(np.float32, tff.CLIENTS))
  def compute(value):
    ones = tff.federated_eval(one, tff.CLIENTS)
    three = tff.federated_value(3, tff.SERVER)
    return (
      ones,
      tff.federated_sum(ones),
      tff.federated_eval(one, tff.SERVER),
      tff.federated_value(3, tff.CLIENTS),
      tff.federated_broadcast(three),
      three,
      value,
    )

  return compute([1.0, 2.0])


def two_dependent_aggregations():
  number = tff.FederatedType(np.float32, tff.CLIENTS)

  @tff.tensorflow.computation(np.float32, np.float32)
  def squared_distance(value, mean):
    return (value - mean) ** 2

  @tff.federated_computation(number)
  def variance(value):
    mean = tff.federated_broadcast(tff.federated_mean(value))
    distances = tff.federated_map(squared_distance, (value, mean))
    return tff.federated_mean(distances), distances

  return variance([1.0, 2.0, 6.0])


def strings_and_dtypes():
  @tff.tensorflow.computation(tff.TensorType(np.str_, [2]), np.bool_)
  def compute(words, flag):
    return (
      words,
      tf.strings.join([words[0], words[1]]),
      flag,
      tf.constant(2.0, tf.float64),
      tf.constant([1, 2], tf.uint8),
      collections.OrderedDict(b=tf.zeros([0, 3]), a=()),
    )

  return compute(np.array(['ab', 'c']), True)


# Processes of tff.learning, which take longest to trace.
LEARNING = [
  *(fed_avg_reduce, fed_avg_iterator, fed_avg_robust, fed_avg_compressed),
  *(fed_avg_private, fed_sgd, fed_prox, mime_lite, reconstruction, evaluation),
  personalization,
]
ALL = [
  *(fed_avg_reduce, fed_avg_iterator, fed_avg_robust, fed_avg_compressed),
  *(fed_avg_private, fed_sgd, fed_prox, mime_lite, k_means, reconstruction),
  *(evaluation, personalization, dataset_computation, select, client_sequences),
  *(lookup_tables, means_and_extremes, placed_values),
  *(two_dependent_aggregations, strings_and_dtypes),
]
