"""What a model is evaluated on: set apart, drawn anew, or test data."""

import numpy as np
import pytest

import tasks
from tasks import client_data
from tests import runs
from tff_adaptive import errors
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.evaluation import validation

pytestmark = pytest.mark.usefixtures('undrawn')


@pytest.fixture(name='datasets', scope='module')
def datasets_fixture():
  return tasks.create('stackoverflow_tag', data='synthetic').datasets


def digits(*words):
  """Settings and the task of a small run, split as they say."""
  settings = runs.parse('--task=digits', '--data=synthetic', *words)
  return settings, experiment.create_task(settings)


def evaluated(settings, task, number=1):
  """The images that the model is validated on and tested on, as bytes."""
  splits = validation.build(settings, task.datasets)
  return [
    [image.tobytes() for x, _ in batches for image in np.asarray(x)]
    for batches in (splits.validation(number), splits.test())
  ]


def everything(task):
  return sorted(
    e['pixels'].tobytes() for e in task.datasets.test_data.as_numpy_iterator()
  )


@pytest.mark.parametrize('share, count', [(None, 40), (0.25, 20), (0.7, 56)])
def test_examples_are_set_apart_from_the_test_split(share, count):
  words = [] if share is None else [f'--validation_share={share}']
  settings, task = digits(*words)
  chosen, tested = evaluated(settings, task)
  assert len(chosen) + len(tested) == 80
  assert abs(len(chosen) - count) <= 1
  assert sorted(chosen + tested) == everything(task)
  # The same in every run of a seed, another one with another seed.
  assert evaluated(settings, task) == [chosen, tested]
  other, _ = digits('--seed=1', *words)
  assert evaluated(other, task)[0] != chosen
  # Both are a sample of all of it.
  labels = validation.build(settings, task.datasets).validation(1)
  assert len(np.unique(np.concatenate([y for _, y in labels]))) == 10


def test_examples_drawn_anew_are_never_those_of_the_test():
  settings, task = digits(
    '--validation_sample=resampled', '--num_validation_examples=10'
  )
  first, tested = evaluated(settings, task)
  second, _ = evaluated(settings, task, 2)
  assert len(first) == len(second) == 10 and first != second
  assert len(tested) == 40
  assert not {*first, *second} & {*tested}


@pytest.mark.parametrize('name', ['digits', 'emnist_character'])
def test_clients_are_held_out_of_training(name):
  words = [f'--task={name}', '--data=synthetic', '--validation_split=clients']
  settings = runs.parse(*words)
  whole = tasks.create(name, data='synthetic').datasets.train_data
  datasets = experiment.create_task(settings).datasets
  left, held_out = datasets.train_data, datasets.validation_data
  ids = {*whole.client_ids}
  assert len(held_out.client_ids) == max(round(0.1 * len(ids)), 1)
  assert {*left.client_ids} | {*held_out.client_ids} == ids
  assert not {*left.client_ids} & {*held_out.client_ids}
  client = left.client_ids[0]
  for a, b in zip(
    left.create_tf_dataset_for_client(client).as_numpy_iterator(),
    whole.create_tf_dataset_for_client(client).as_numpy_iterator(),
    strict=True,
  ):
    np.testing.assert_array_equal(a['pixels'], b['pixels'])
  count = sum(
    len(list(held_out.create_tf_dataset_for_client(c)))
    for c in held_out.client_ids
  )
  splits = validation.build(settings, datasets)
  assert sum(len(y) for _, y in splits.validation(0)) == count
  assert sum(len(y) for _, y in splits.test()) == len(
    list(data.raw_test_split(datasets))
  )


def test_the_examples_of_clients_held_out_come_in_turn():
  _, task = digits('--validation_split=clients', '--validation_share=0.2')
  held_out = task.datasets.validation_data
  first = [
    next(held_out.create_tf_dataset_for_client(c).as_numpy_iterator())['label']
    for c in held_out.client_ids
  ]
  chained = client_data.interleaved(held_out).take(len(first))
  assert [e['label'] for e in chained.as_numpy_iterator()] == first


def test_the_data_s_own_validation_split(tmp_path):
  for split, count in (('train', 40), ('test', 8), ('validation', 6)):
    rows = '\n'.join(f'{i},{i % 2},c{i % 4}' for i in range(count))
    (tmp_path / f'{split}.csv').write_text(f'x,label,client\n{rows}\n')
  settings = runs.parse('--task=table', f'--table_path={tmp_path}')
  task = experiment.create_task(settings)
  assert list(map(len, evaluated(settings, task))) == [6, 8]
  assert "data's own split" in validation.describe(settings, task.datasets)


def test_clients_are_left_to_train_on():
  with pytest.raises(errors.SettingsError, match='leaves none for training'):
    digits('--validation_split=clients', '--validation_share=0.99')


def test_the_protocol_of_the_papers():
  settings, task = digits('--validation_split=test')
  chosen, tested = evaluated(settings, task)
  assert chosen == tested and sorted(tested) == everything(task)
  # Runs of earlier versions have no other; they go on.
  assert 'validation_split' not in settings.identity
  assert 'as in the papers' in validation.describe(settings, task.datasets)


@pytest.mark.parametrize(
  'words, split, share',
  [
    ([], 'examples', 0.5),
    (['--task=quadratic'], 'test', None),
    (['--validation_split=clients'], 'clients', 0.1),
    (['--validation_share=0.3'], 'examples', 0.3),
    (['--preset=reddi2021/emnist_character/fedadam'], 'test', None),
    (
      [
        '--preset=reddi2021/emnist_character/fedadam',
        '--validation_split=examples',
      ],
      'examples',
      0.5,
    ),
  ],
)
def test_what_is_set_apart_unless_told(words, split, share):
  settings = runs.parse(*words)
  found = (settings.validation_split, settings.validation_share)
  assert found == (split, share)
  assert settings.identity.get('validation_split', 'test') == split


def test_a_share_of_nothing_is_refused():
  words = ['--validation_split=test', '--validation_share=0.5']
  with pytest.raises(errors.SettingsError, match='holds nothing out'):
    runs.parse(*words)


def drawn(datasets, number, seed=0, num_examples=30):
  sample = validation.resampled(
    datasets, num_examples=num_examples, seed=seed, cache_bytes=2**20
  )
  batches = [b for b, _ in sample(number).as_numpy_iterator()]
  return np.concatenate(batches)


def test_every_evaluation_draws_its_own(datasets):
  first = drawn(datasets, 3)
  assert len(first) == 30
  np.testing.assert_array_equal(first, drawn(datasets, 3))
  for other in (drawn(datasets, 4), drawn(datasets, 3, seed=1)):
    assert not np.array_equal(first, other)


def test_they_come_from_the_whole_split_without_repetition(datasets):
  everything = np.concatenate(
    [
      b
      for b, _ in datasets.eval_preprocess_fn(
        datasets.test_data
      ).as_numpy_iterator()
    ]
  )
  # More than there are: all of them, in another order.
  again = drawn(datasets, 1, num_examples=10**6)
  assert again.shape == everything.shape
  assert not np.array_equal(again, everything)
  np.testing.assert_allclose(
    np.sort(again, axis=0), np.sort(everything, axis=0)
  )


def test_a_split_that_does_not_fit_is_refused(datasets):
  with pytest.raises(errors.SettingsError, match='cache_mib=0'):
    validation.resampled(datasets, num_examples=3, seed=0, cache_bytes=100)


def test_no_examples(datasets):
  empty = datasets.test_data.take(0)

  class Nothing:
    test_data = empty
    eval_preprocess_fn = None

  with pytest.raises(errors.RunError, match='no examples'):
    validation.resampled(Nothing, num_examples=3, seed=0, cache_bytes=100)


def test_the_flag():
  tags, resampled = '--task=stackoverflow_tag', '--validation_sample=resampled'
  usual, other = runs.parse(tags), runs.parse(tags, resampled)
  assert 'validation_sample' not in usual.identity
  assert other.identity['validation_sample'] == 'resampled'
  assert other.name != usual.name
  with pytest.raises(errors.SettingsError, match='would be ignored'):
    runs.parse(resampled, '--num_validation_examples=-1')
