"""Batches from arrays: the rows of a task's own pipeline, in another order."""

import collections

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import preprocessing
from tests import tiers
from tff_adaptive import errors
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets as data

# Digits and the quadratic have no files; the others' stand-ins are small.
_TASKS = tiers.every_task()


def clients_of(task, seed=3, **options):
  options = {'cache_bytes': 2**30, 'as_lists': True, **options}
  return batches.training_clients(task.datasets, seed=seed, **options)


def leaves(found):
  """A client's batches as lists of NumPy arrays."""
  return [[np.asarray(x) for x in tf.nest.flatten(batch)] for batch in found]


def rows(found):
  """Every row of a client's batches, as bytes, sorted."""
  return sorted(
    b''.join(x[i].tobytes() for x in batch)
    for batch in leaves(found)
    for i in range(len(batch[0]))
  )


@pytest.mark.parametrize('name', _TASKS)
def test_the_rows_are_those_of_the_pipeline(name):
  options = dict(tasks.info(name).small_options)
  if name.startswith('cifar'):
    options['distort'] = False
  if name == 'gld23k':
    pytest.skip('its training images are cropped at random')
  task = tasks.create(name, data='synthetic', **options)
  clients = clients_of(task)
  assert isinstance(clients, batches.ClientBatches)
  for client in clients.client_ids[:2]:
    raw = task.datasets.train_data.create_tf_dataset_for_client(client)
    expected = list(task.datasets.train_preprocess_fn(raw))
    found = clients.for_client(client, 1)
    assert rows(found) == rows(expected)
    assert [len(b[0]) for b in leaves(found)] == [
      len(b[0]) for b in leaves(expected)
    ]
    assert tf.nest.map_structure(
      lambda x: x.dtype, found[0]
    ) == tf.nest.map_structure(lambda x: x.dtype, expected[0])


@pytest.mark.parametrize('name', _TASKS)
def test_lists_and_datasets_are_the_same(name):
  task = tasks.create(name, data='synthetic', **tasks.info(name).small_options)
  listed = clients_of(task)
  streamed = clients_of(task, as_lists=False)
  cohort = listed.client_ids[:2]
  one, two = listed.for_round(2, cohort), streamed.for_round(2, cohort)
  for as_list, as_dataset in zip(one.batches, two.batches, strict=True):
    assert not isinstance(as_list, tf.data.Dataset)
    assert isinstance(as_dataset, tf.data.Dataset)
    pairs = zip(leaves(as_list), leaves(as_dataset), strict=True)
    for a, b in (pair for both in pairs for pair in zip(*both, strict=True)):
      np.testing.assert_array_equal(a, b)
  # What runtimes hold the data against.
  spec = task.datasets.element_type_structure
  tf.nest.map_structure(
    lambda s, d: s.is_compatible_with(d) or pytest.fail(f'{s} {d}'),
    spec,
    two.batches[0].element_spec,
  )


def test_rounds_clients_and_seeds_draw_differently_and_repeatably():
  task = tasks.create('digits')
  one, two = clients_of(task), clients_of(task)
  a, b = one.client_ids[:2]

  def order(clients, client, number):
    return [x[1].tolist() for x in leaves(clients.for_client(client, number))]

  two.for_round(5, [b, a])  # What was asked for before changes nothing.
  assert order(one, a, 1) == order(two, a, 1)
  assert order(one, a, 1) != order(one, a, 2)
  assert order(one, a, 1) != order(clients_of(task, seed=4), a, 1)


_RECIPE = preprocessing.Recipe(batch_size=2)


@pytest.mark.parametrize(
  'options,count,expected',
  [
    ({}, 5, [5]),
    ({'epochs': 3}, 5, [5, 5, 5]),
    ({'max_elements': 3}, 5, [3]),
    ({'epochs': 2, 'max_elements': 8}, 5, [5, 3]),
    ({'first': 4, 'epochs': 2}, 5, [4, 4]),
    ({}, 0, []),
  ],
)
def test_orders(options, count, expected):
  recipe = preprocessing.Recipe(batch_size=2, **options)
  order = recipe.order(count, [1, 2])
  assert len(order) == sum(expected)
  allowed = range(min(count, options.get('first', count)))
  begin = 0
  for size in expected:
    part = order[begin : begin + size]
    assert len(set(part)) == size and set(part) <= set(allowed)
    begin += size
  if expected[:1] == [5]:
    assert order[:5].tolist() != [0, 1, 2, 3, 4]
  plain = preprocessing.Recipe(batch_size=2, shuffle=False, **options)
  assert plain.order(count, [1, 2])[:1].tolist() == [0][:count]


def _task(clients, recipe=_RECIPE):
  train = tff.simulation.datasets.TestClientData(clients)

  def preprocess(dataset, seed=None):
    del seed
    return dataset.batch(recipe.batch_size)

  preprocess.recipe = recipe
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, None, preprocess, preprocess
  )
  return collections.namedtuple('Task', 'datasets')(datasets)


def _examples(count):
  return collections.OrderedDict(x=np.arange(float(count)))


def test_a_client_that_cannot_be_read_is_named_and_has_nothing():
  def prepare(examples):
    if examples['x'].shape[0] == 3:
      raise ValueError('a word that nobody knows')
    return examples

  recipe = preprocessing.Recipe(batch_size=2, prepare_fn=prepare)
  task = _task({'a': _examples(2), 'b': _examples(3)}, recipe)
  clients = clients_of(task)
  found = clients.for_round(1, ['b', 'a'])
  assert found.batches[0] == [] and len(found.batches[1]) == 1
  assert "client 'b'" in found.failures['b']
  assert 'a word that nobody knows' in found.failures['b']
  with pytest.raises(errors.RunError, match="client 'b'"):
    clients.for_round(1, ['b'])


def test_too_large_a_cohort_is_streamed(monkeypatch):
  monkeypatch.setattr(batches, '_COHORT_BYTES', 5 * 8)
  task = _task({'a': _examples(3), 'b': _examples(3)})
  small = clients_of(task).for_round(1, ['a'])
  large = clients_of(task).for_round(1, ['a', 'b'])
  assert not isinstance(small.batches[0], tf.data.Dataset)
  assert isinstance(large.batches[0], tf.data.Dataset)
  assert leaves(small.batches[0])[0][0].tolist() == (
    leaves(large.batches[0])[0][0].tolist()
  )


@pytest.mark.parametrize('cohort', ['abc', 'ca', 'ad'])
def test_augmented_batches_depend_on_client_round_and_place_alone(cohort):
  def augment(batch, seed):
    noise = tf.random.stateless_uniform(tf.shape(batch['x']), seed)
    return {'x': batch['x'] + tf.cast(noise, batch['x'].dtype)}

  recipe = preprocessing.Recipe(batch_size=3, epochs=2, augment_fn=augment)
  sizes = {'a': 4, 'b': 2, 'c': 5, 'd': 0}
  task = _task({name: _examples(n) for name, n in sizes.items()}, recipe)
  found = clients_of(task).for_round(1, list(cohort)).batches
  streamed = clients_of(task, as_lists=False)
  for name, own in zip(cohort, found, strict=True):
    alone = leaves(streamed.for_client(name, 1))
    assert [len(x) for (x,) in alone] == [
      min(3, 2 * sizes[name] - begin) for begin in range(0, 2 * sizes[name], 3)
    ]
    for (a,), (b,) in zip(leaves(own), alone, strict=True):
      np.testing.assert_array_equal(a, b)
  assert isinstance(found[0], tf.data.Dataset) == ('d' in cohort)


def test_rows_are_kept_within_the_budget():
  task = _task({'a': _examples(4), 'b': _examples(4)})
  clients = clients_of(task, cache_bytes=4 * 8 + 7)
  for client in ('a', 'b', 'a'):
    clients.for_client(client, 1)
    assert clients.cache.currsize == 4 * 8


class _Counting:
  """Clients that say what was asked of them."""

  prepared_ahead = True

  def __init__(self):
    self.asked = []

  def for_round(self, number, cohort):
    self.asked.append((number, list(cohort)))
    if number == 3:
      raise errors.RunError('nothing can be read')
    return data.CohortData([number], {})


def test_the_next_round_is_prepared_and_errors_come_in_their_round():
  counting = _Counting()
  clients = data.Prefetcher(
    counting, lambda number: [f'c{number}'], last_round=4
  )
  assert clients.for_round(1, ['c1']).batches == [1]
  assert clients.for_round(2, ['c2']).batches == [2]
  with pytest.raises(errors.RunError, match='nothing'):
    clients.for_round(3, ['c3'])
  assert clients.for_round(4, ['c4']).batches == [4]
  assert counting.asked == [(n, [f'c{n}']) for n in (1, 2, 3, 4)]


def test_an_unforeseen_round_is_prepared_when_it_is_asked_for():
  counting = _Counting()
  clients = data.Prefetcher(
    counting, lambda number: [f'c{number}'], last_round=9
  )
  clients.for_round(1, ['c1'])
  assert clients.for_round(7, ['other']).batches == [7]
  assert (7, ['other']) in counting.asked
  foreign = _Counting()
  foreign.prepared_ahead = False
  data.Prefetcher(foreign, lambda number: ['c'], last_round=9).for_round(
    1, ['c']
  )
  assert foreign.asked == [(1, ['c'])]
