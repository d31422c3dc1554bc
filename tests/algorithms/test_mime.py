"""MIME and MimeLite against NumPy and against tff.learning's MimeLite."""

import itertools

import numpy as np
import pytest
import tensorflow_federated as tff

from tests import tiers
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.client_drift import mime as mime_lib

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, MOMENTUM, ETA = 0.05, 0.8, 0.7


def full_gradient(x, batches):
  sizes = [len(b[0]) for b in batches]
  return np.average([linear.gradient(x, b) for b in batches], weights=sizes)


def mime(rounds, corrects, weight=linear.num_examples, clients=None):
  clients = linear.CLIENTS if clients is None else clients
  x, m, path = linear.START, 0.0, []
  weights = [weight(batches) for batches in clients]
  for _ in range(rounds):
    mean = np.average([full_gradient(x, b) for b in clients], weights=weights)

    def local(start, batches, m=m, mean=mean):
      w = start
      for batch in batches:
        g = linear.gradient(w, batch)
        if corrects:
          g = g - linear.gradient(start, batch) + mean
        w = w - RATE * (MOMENTUM * m + g)  # m stays as received.
      return w

    x = x + ETA * linear.round_update(x, local, clients, weight)
    m = MOMENTUM * m + mean
    path.append(x)
  return path


def build(name, **more):
  return algorithms.build(
    name,
    linear.model_fn,
    client_learning_rate=RATE,
    client_momentum=MOMENTUM,
    server_learning_rate=ETA,
    **more,
  )


@pytest.mark.parametrize(
  'name, weighting',
  tiers.exhaustive_but(
    [('mime', 'examples'), ('mimelite', 'uniform')],
    itertools.product(['mime', 'mimelite'], ['examples', 'uniform']),
  ),
)
def test_rounds(name, weighting):
  weights, metrics = linear.run(build(name, client_weighting=weighting), 3)
  weight = linear.num_examples if weighting == 'examples' else lambda _: 1
  expected = mime(3, name == 'mime', weight)
  np.testing.assert_allclose(weights, expected, rtol=1e-4)
  assert not np.allclose(expected, mime(3, name != 'mime', weight), rtol=1e-3)
  # Neither the full gradient nor the correction counts into the metrics.
  assert metrics['client_work']['train']['num_examples'] == 11


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'base',
  [
    lambda: tff.learning.optimizers.build_sgdm(RATE, MOMENTUM),
    lambda: tff.learning.optimizers.build_adam(RATE, epsilon=0.1),
  ],
)
def test_mimelite_is_that_of_tff_learning(base):
  theirs = tff.learning.algorithms.build_weighted_mime_lite(
    linear.model_fn, base(), tff.learning.optimizers.build_sgdm(ETA)
  )
  ours = algorithms.build(
    'mimelite',
    linear.model_fn,
    client_optimizer=base(),
    server_learning_rate=ETA,
  )
  np.testing.assert_allclose(
    linear.run(ours, 3)[0], linear.run(theirs, 3)[0], rtol=1e-5
  )


@pytest.mark.exhaustive
@pytest.mark.parametrize('name', ['mime', 'mimelite'])
def test_a_client_without_finite_gradient_spoils_nothing(name):
  nan, empty = [([float('nan')], [1.0])], []
  alone, _ = linear.run(build(name), 2)
  weights, metrics = linear.run(build(name), 2, [*linear.CLIENTS, nan, empty])
  np.testing.assert_allclose(weights, alone, rtol=1e-5)
  assert metrics['client_work']['clients']['rejected'] == 1


@pytest.mark.exhaustive
def test_adam_counts_the_received_steps_and_one():
  """Three local steps of a round all correct as the first step does."""
  process = algorithms.build(
    'mimelite',
    linear.model_fn,
    client_optimizer='adam',
    client_learning_rate=RATE,
    client_adaptivity=0.5,
  )
  weights, _ = linear.run(process, 1, linear.CLIENTS[:1])
  w = linear.START
  for batch in linear.CLIENTS[0]:
    g = linear.gradient(w, batch)
    w = w - RATE * g / (abs(g) + 0.5)  # Corrected m is g, corrected v is g^2.
  np.testing.assert_allclose(weights[0], w, rtol=1e-5)


def test_only_the_correction_needs_an_exchange_of_its_own():
  rule = tff.learning.optimizers.build_sgdm(RATE)
  exchanges = [
    options().additions(methods.Chosen(rule, None))['exchange']
    for options in (mime_lib.Mime, mime_lib.MimeLite)
  ]
  assert [e.full_gradient_pass for e in exchanges] == ['before', 'after']


def test_base_optimizers_that_need_the_batch_are_refused():
  with pytest.raises(parameters.ParameterError, match='adagrad, adam, sgd'):
    algorithms.build('mime', linear.model_fn, client_optimizer='polyak')
  with pytest.raises(ValueError, match='only gradients'):
    algorithms.build(
      'mime', linear.model_fn, client_optimizer=optimizers.client('delta_sgd')
    )
