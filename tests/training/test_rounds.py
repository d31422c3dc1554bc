"""Processes as the loop drives them, with and without client state."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive import algorithms
from tff_adaptive import processes
from tff_adaptive import runtime
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.loop import rounds


@pytest.fixture(autouse=True, scope='module')
def in_process():
  before = tff.framework.get_context_stack().current
  runtime.set_in_process_context()
  yield
  tff.framework.set_default_context(before)


def test_columns_of_metrics():
  metrics = collections.OrderedDict(
    distributor=(),
    client_work=collections.OrderedDict(
      train=collections.OrderedDict(loss=np.float32(1), num_examples=4),
      clients=collections.OrderedDict(count=np.int32(3), rejected=np.int32(1)),
      step_size=collections.OrderedDict(mean=np.float32(0.5)),
    ),
    aggregator=collections.OrderedDict(clip=2.0, names=['a'], per=[1.0, 2.0]),
    finalizer=collections.OrderedDict(update_norm=0.25, update_non_finite=0),
  )
  assert rounds.columns_of(metrics) == {
    'train/loss': 1,
    'train/num_examples': 4,
    'clients/count': 3,
    'clients/rejected': 1,
    'step_size/mean': 0.5,
    'aggregator/clip': 2.0,
    'update/norm': 0.25,
    'update/non_finite': 0,
  }


def test_training_starts_at_the_given_weights():
  task = helpers.task()
  process = algorithms.build('fedavg', task.model_fn)
  initial = initial_weights.draw(task.model_fn, 0)
  learning = helpers.rounds_of(process, initial)
  for given, kept in zip(
    initial.trainable, learning.model_weights().trainable, strict=True
  ):
    np.testing.assert_array_equal(given, kept)


def counting_process(model_fn):
  """Federated averaging whose clients count the rounds they took part in."""
  plain = algorithms.build('fedavg', model_fn)
  client_state_type = tff.to_type(
    collections.OrderedDict(rounds=np.int32, trace=(np.float32, [2]))
  )

  @tff.tensorflow.computation
  def fresh():
    return collections.OrderedDict(
      rounds=tf.constant(0), trace=tf.zeros([2], tf.float32)
    )

  @tff.tensorflow.computation(client_state_type)
  def count(memory):
    return collections.OrderedDict(
      rounds=memory['rounds'] + 1, trace=memory['trace'] + [1.0, 2.0]
    )

  state_type, data_type = plain.next.type_signature.parameter

  @tff.federated_computation(
    state_type, tff.FederatedType(client_state_type, tff.CLIENTS), data_type
  )
  def next_fn(state, memories, data):
    output = plain.next(state, data)
    return processes.StatefulOutput(
      output.state, tff.federated_map(count, memories), output.metrics
    )

  return processes.StatefulLearningProcess(
    plain.initialize,
    fresh,
    next_fn,
    plain.get_model_weights,
    plain.set_model_weights,
    plain.get_hparams,
    plain.set_hparams,
  )


def counts(learning):
  found = learning._kept.of([f'client_{i}' for i in range(6)])
  counted = [int(tf.nest.flatten(state)[0]) for state in found]
  return {i: count for i, count in enumerate(counted) if count}


def test_client_states_are_kept_by_client(tmp_path):
  task = helpers.task()
  data = task.datasets.train_data
  process = counting_process(task.model_fn)
  initial = initial_weights.draw(task.model_fn, 0)

  def build():
    return helpers.rounds_of(
      process,
      initial,
      store=lambda fresh: client_states.ClientStates(
        fresh, tmp_path / 'client_states.sqlite'
      ),
    )

  def run(learning, *clients):
    ids = [f'client_{i}' for i in clients]
    datasets = [
      helpers.preprocess(data.create_tf_dataset_for_client(i)) for i in ids
    ]
    return learning.run(ids, datasets)

  learning = build()
  keeper = checkpoints.Checkpoints(tmp_path / 'none')
  keeper.save(learning.program_state, 0)
  row = run(learning, 0, 2)
  assert row['train/num_examples'] == 11
  run(learning, 2, 3)
  assert counts(learning) == {0: 1, 2: 2, 3: 1}
  (state,) = learning._kept.of(['client_2'])
  np.testing.assert_array_equal(tf.nest.flatten(state)[1], [2, 4])

  snapshot = learning.snapshot()
  run(learning, 0, 1)
  assert len(counts(learning)) == 4
  learning.roll_back(snapshot)
  assert counts(learning) == {0: 1, 2: 2, 3: 1}

  keeper.save(learning.program_state, 2)
  again = build()
  found = keeper.load_latest(again.program_state, again.restore)
  assert found.round_number == 2
  for one in (learning, again):
    run(one, 3, 1)
  assert counts(again) == counts(learning)
  assert counts(again)[3] == 2
  for a, b in zip(
    learning.model_weights().trainable,
    again.model_weights().trainable,
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)
