"""Examples that are drawn anew for every evaluation."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tff_adaptive import errors
from tff_adaptive.flags import parsing
from tff_adaptive.training import validation


@pytest.fixture(name='datasets', scope='module')
def datasets_fixture():
  return tasks.create('stackoverflow_tag', data='synthetic').datasets


def drawn(datasets, number, seed=0, num_examples=30):
  sample = validation.Drawn(
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
    validation.Drawn(datasets, num_examples=3, seed=0, cache_bytes=100)


def test_no_examples(datasets):
  empty = datasets.test_data.take(0)

  class Nothing:
    test_data = empty
    eval_preprocess_fn = None

  with pytest.raises(errors.RunError, match='no examples'):
    validation.Drawn(Nothing, num_examples=3, seed=0, cache_bytes=100)


def test_the_flag():
  parse = parsing.Flags().parse
  usual = parse(['--task=stackoverflow_tag']).settings
  assert 'validation_sample' not in usual.identity
  other = parse(
    ['--task=stackoverflow_tag', '--validation_sample=drawn']
  ).settings
  assert other.identity['validation_sample'] == 'drawn'
  assert other.name != usual.name
  with pytest.raises(errors.SettingsError, match='would be ignored'):
    parse(['--validation_sample=drawn', '--num_validation_examples=-1'])


def test_which_one_a_run_has(datasets):
  parse = parsing.Flags().parse
  settings = parse(
    ['--task=stackoverflow_tag', '--num_validation_examples=20']
  ).settings
  split = validation.build(settings, datasets)
  assert split(1) is split(2)
  settings = parse(
    [
      '--task=stackoverflow_tag',
      '--num_validation_examples=20',
      '--validation_sample=drawn',
    ]
  ).settings
  assert isinstance(validation.build(settings, datasets), validation.Drawn)
  assert tf.nest.flatten(split(1))[0].shape[0] <= 20
