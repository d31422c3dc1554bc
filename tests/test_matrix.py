"""Every method on every task: two rounds on made-up data.

The fast suite runs a few pairs in which every method occurs, and every task but
one. `make matrix` runs them all, which takes an hour or two.
"""

import functools

import numpy as np
import pytest

import tasks
from tests import helpers
from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.processes import exchange

# Models of one layer: nothing comes before the last layer, whose input is the
# representation that MOON compares.
_ONE_LAYER = {
  *('fedprox_synthetic', 'libsvm_logistic', 'mnist_logistic', 'quadratic'),
  *('quadratics', 'stackoverflow_tag', 'zipf_tags'),
}
_NORMALISED = {
  *('ag_news', 'cifar100_image', 'cifar10_image', 'dbpedia', 'gld23k'),
}
_REFUSED = {
  'moon': (
    _ONE_LAYER,
    r'\(MOON\) needs a Keras model, .* with a layer with weights before its '
    'last one.* Got Sequential with 1 layers',
  ),
  'fedper': (_ONE_LAYER, 'all of them would stay'),
  'fedbn': ({*tasks.names()} - _NORMALISED, 'none of them would stay'),
}

# Tasks whose models others have too, and whose.
_LIKE_OTHERS = {'cifar100_image': 'cifar10_image'}
# Tasks that take longest to build have the methods that take least.
_COVERING = (
  ('fedadagrad', 'ag_news'),
  ('fedavg', 'cifar10_image'),
  ('fedyogi', 'dbpedia'),
  ('moon', 'digits'),
  # Its sums are large enough for TensorFlow to hold them in shared variables.
  ('mime', 'emnist_autoencoder'),
  ('direct_joint', 'emnist_character'),
  ('fedada2_blended', 'fmnist'),
  ('joint_zero_init', 'gld23k'),
  ('local_amsgrad', 'libsvm_logistic'),
  ('fedprox', 'mnist_character'),
  ('delta_sgd', 'mnist_lenet'),
  ('scaffold', 'mnist_logistic'),
  ('fedada2', 'quadratic'),
  ('fedams', 'shakespeare_character'),
  ('local_adaalter', 'stackoverflow_tag'),
  ('fedadam', 'stackoverflow_word'),
  ('feddecsps', 'quadratic'),
  ('fedsps', 'quadratic'),
  ('fedsps_global', 'quadratic'),
  ('fedsps_normalized', 'quadratic'),
  ('mimelite', 'quadratic'),
  ('fedexp', 'quadratic'),
  ('fednova', 'quadratic'),
  ('fedcm', 'quadratic'),
  ('feddyn', 'quadratic'),
  ('fedsam', 'quadratic'),
  ('fedlesam', 'quadratic'),
  ('fedmuon', 'libsvm_logistic'),
  ('fedadamw', 'quadratic'),
  ('fedcams', 'quadratic'),
  ('diloco', 'quadratic'),
  ('bi2clip', 'quadratic'),
  ('fadamgc', 'quadratic'),
  ('fedhyper', 'quadratic'),
  ('fedlion', 'quadratic'),
  ('fedef21', 'quadratic'),
  ('muloco', 'libsvm_logistic'),
  ('fedper', 'table'),
  ('fedbn', 'ag_news'),
  ('fedyogi', 'digits_autoencoder'),
  ('fedadam', 'fedprox_synthetic'),
  ('delta_sgd', 'hospitals'),
  ('fedadagrad', 'markov_text'),
  ('fedavg', 'quadratics'),
  ('scaffold', 'zipf_tags'),
  ('fedavgm', 'table'),
)
# A model of one weight.
_FAST = (('fedada2', 'quadratic'),)
_ALL = [(a, t) for t in tasks.names() for a in algorithms.names()]


# Pairs come task by task.
@functools.lru_cache(maxsize=1)
def _task(name):
  options = dict(tasks.info(name).small_options, batch_size=4, max_elements=8)
  task = tasks.create(name, data='synthetic', **options)
  return task, data.ClientDatasets(task.datasets, seed=0)


def _two_rounds(algorithm, task_name):
  task, clients = _task(task_name)
  process = algorithms.build(algorithm, task.model_fn)
  weights = process.get_model_weights(process.initialize())
  learning = helpers.rounds_of(process, weights)
  cohort = clients.client_ids[:2]
  for number in (1, 2):
    columns = learning.run(cohort, clients.for_round(number, cohort).batches)
    assert columns['clients/count'] == 2
    assert columns['clients/rejected'] == 0
    assert np.isfinite(columns['train/loss'])
    # Later, gradients may be zero: a Polyak step takes a parabola's client to
    # its minimum, and rates that are for other tasks saturate a classifier.
    assert number > 1 or columns['update/norm'] > 0
  moved = [
    not np.array_equal(before, after)
    for before, after in zip(
      weights.trainable, learning.model_weights().trainable, strict=True
    )
  ]
  assert any(moved)
  assert all(np.isfinite(w).all() for w in learning.model_weights().trainable)


def _run(algorithm, task_name):
  """Runs a pair, or sees it refused."""
  refused, told = _REFUSED.get(algorithm, ((), ''))
  if task_name in refused:
    with pytest.raises(exchange.UnsuitableModelError, match=told):
      _two_rounds(algorithm, task_name)
  else:
    _two_rounds(algorithm, task_name)


def test_the_covering_pairs_leave_nothing_out():
  methods, names = zip(*_COVERING, strict=True)
  assert set(methods) == set(algorithms.names())
  assert set(names) | _LIKE_OTHERS.keys() == set(tasks.names())
  assert set(names).isdisjoint(_LIKE_OTHERS)
  assert set(names) >= set(_LIKE_OTHERS.values())


@pytest.mark.parametrize(
  'algorithm, task', tiers.exhaustive_but(_FAST, _COVERING)
)
def test_two_rounds(algorithm, task, in_process_context):
  del in_process_context
  _run(algorithm, task)


@pytest.mark.parametrize('task', sorted(_ONE_LAYER))
def test_moon_is_refused_in_a_sentence(task):
  arguments = [f'--task={task}', '--algorithm=moon', '--data=synthetic']
  settings = flags.Flags().parse(arguments).settings
  with pytest.raises(
    errors.SettingsError, match=f'--algorithm=moon cannot train --task={task}. '
  ):
    train.build(settings, _task(task)[0])


@pytest.mark.slow
@pytest.mark.parametrize('algorithm, task', _ALL)
def test_two_rounds_of_all(algorithm, task, in_process_context):
  del in_process_context
  _run(algorithm, task)
