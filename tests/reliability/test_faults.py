"""Clients whose data or updates cannot be used: counted, named, left out."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import helpers
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import client_failures
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.data import remote_data

_POISON = 99.0


def _examples(value, count):
  examples = helpers.examples(0, count)
  if value is not None:
    examples['x'][0, 0] = value
  return examples


_CLIENTS = {
  'sound': _examples(None, 9),
  'single': _examples(None, 1),
  'empty': _examples(None, 0),
  'nan': _examples(np.nan, 5),
  'infinite': _examples(np.inf, 6),
  'raising': _examples(_POISON, 7),
}


def _preprocess(dataset, seed=None):
  del seed

  def check(batch):
    poisoned = tf.reduce_any(tf.equal(batch['x'], _POISON))
    with tf.control_dependencies(
      [tf.debugging.Assert(tf.logical_not(poisoned), ['a poisoned example'])]
    ):
      return tf.nest.map_structure(tf.identity, batch)

  return dataset.batch(4).map(check)


class _Unreadable(data.ClientDatasets):
  """One client's file is damaged."""

  def _raw(self, client_id):
    if client_id == 'single':
      raise tf.errors.DataLossError(None, None, 'corrupted record at 12')
    return super()._raw(client_id)


@pytest.fixture(name='build', scope='module')
def build_fixture(in_process_context):
  """Makes a guard over rounds that start afresh; the process is built once."""
  del in_process_context
  task = helpers.task(
    train_data=tff.simulation.datasets.TestClientData(_CLIENTS),
    train_preprocess_fn=_preprocess,
  )
  process = algorithms.build(
    'fedavg',
    task.model_fn,
    client_optimizer='sgd',
    client_learning_rate=0.1,
    server_learning_rate=1.0,
  )
  initial = initial_weights.draw(task.model_fn, 0)

  def build(most=None, kind=data.ClientDatasets, client_learning_rate=0.1):
    learning = helpers.rounds_of(process, initial)
    hparams = process.get_hparams(learning.state)
    hparams['client_work']['learning_rate'] = client_learning_rate
    learning.state = process.set_hparams(learning.state, hparams)
    said = []
    guard = client_failures.ClientFailureHandler(
      learning, kind(task.datasets, seed=0), most=most, say=said.append
    )
    return guard, learning, said

  return build


def _run(guard, *cohort):
  return guard.run(1, cohort, guard.read(1, cohort))


def test_each_kind_is_counted_and_named(build):
  guard, learning, said = build()
  row = _run(guard, *_CLIENTS)
  counts = {k: int(v) for k, v in row.items() if k.startswith('clients/')}
  assert counts == {
    'clients/count': 6,
    'clients/empty': 1,
    'clients/rejected': 2,
    'clients/failed': 1,
    'clients/steps': counts['clients/steps'],
  }
  assert row['train/num_examples'] == 9 + 1
  text = '\n'.join(said)
  assert "1 of 6 clients raise an error; they were excluded: 'raising'" in (
    text
  )
  assert 'a poisoned example' in text
  assert "the data of 'nan', 'infinite' are not finite" in text
  assert "1 of 6 clients have no data: 'empty'" in text
  # What is left is the round of those two.
  other, alone, _ = build()
  _run(other, 'sound', 'single')
  for a, b in zip(
    learning.model_weights().trainable,
    alone.model_weights().trainable,
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


def test_cohort_in_which_all_are_rejected_changes_nothing(build):
  guard, learning, said = build()
  before = learning.model_weights()
  for _ in range(5):
    row = _run(guard, 'nan', 'infinite')
    assert row['clients/rejected'] == row['clients/count'] == 2
    assert row['train/num_examples'] == 0
    # A mean of nothing, which is not 0.
    assert 'train/loss' not in row
  after = learning.model_weights()
  np.testing.assert_array_equal(before.trainable[0], after.trainable[0])
  assert sum('not finite and were excluded' in s for s in said) == 3
  guard.sum_up()
  assert '5 rounds excluded clients with updates that are not' in said[-2]
  assert '5 rounds had an update that is not finite' in said[-1]


def test_cohort_in_which_all_data_fail_ends_the_run(build):
  guard, _, _ = build()
  with pytest.raises(
    errors.RunError, match=r"Every client.*'raising', .*poiso"
  ):
    _run(guard, 'raising')


def test_data_that_cannot_be_read(build):
  guard, _, said = build(kind=_Unreadable)
  row = _run(guard, 'sound', 'single', 'raising')
  assert row['clients/failed'] == 2 and row['clients/empty'] == 0
  assert row['train/num_examples'] == 9
  assert "'single', 'raising' ('single': The data of client" in said[0]
  assert 'corrupted record at 12' in said[0]
  with pytest.raises(errors.RunError, match='corrupted record at 12'):
    guard.read(2, ['single'])


class _Elsewhere:
  """Rounds whose clients read their data themselves, as on a cluster."""

  pooled = False

  def __init__(self, learning):
    self._learning = learning

  def run(self, cohort, datasets):
    loaded = []
    for index, batches in enumerate(datasets):
      try:
        loaded.append(list(batches))
      except errors.RunError as e:
        raise runtime.ClientFailure(f'On a machine: {e}', index) from e
    return self._learning.run(cohort, loaded)


def test_data_that_cannot_be_read_where_clients_train(build):
  here, learning, said = build(
    kind=lambda datasets, seed: remote_data.RemoteClients(
      _Unreadable(datasets, seed=seed), {}, source=None
    )
  )
  guard = client_failures.ClientFailureHandler(
    _Elsewhere(learning), here._clients, most=None, say=said.append
  )
  row = _run(guard, 'sound', 'single')
  assert row['clients/failed'] == 1 and row['clients/empty'] == 0
  assert row['train/num_examples'] == 9
  assert "excluded: 'single' ('single': The data of client" in said[0]
  assert 'corrupted record at 12' in said[0]


class _Failing:
  """Rounds whose first client fails, whatever its data."""

  pooled = False

  def run(self, cohort, datasets):
    raise runtime.ClientFailure('its own code', 0)


def test_a_client_that_fails_without_data_ends_the_run(build):
  here, _, said = build()
  guard = client_failures.ClientFailureHandler(
    _Failing(), here._clients, most=None, say=said.append
  )
  with pytest.raises(runtime.ClientFailure, match='its own code'):
    _run(guard, 'sound', 'single')


def test_more_than_the_limit_ends_the_run(build):
  guard, _, _ = build(most=2)
  assert _run(guard, 'sound', 'nan', 'raising')['clients/failed'] == 1
  with pytest.raises(errors.RunError, match=r'3 of 4 clients.*clients=2'):
    _run(guard, 'sound', 'nan', 'infinite', 'raising')


def test_diverging_rates_are_counted(build):
  guard, learning, said = build(client_learning_rate=3e38)
  counts = collections.Counter()
  for _ in range(10):
    counts.update(_run(guard, 'sound', 'single'))
  assert counts['clients/rejected'] + counts['update/non_finite'] > 0
  weights = learning.model_weights().trainable
  assert all(np.isfinite(w).all() for w in weights)
  assert any('not finite' in sentence for sentence in said)
