"""SM3 against Algorithms 3 and 4 of FedAda2, and what it keeps."""

import numpy as np
import pytest
import tensorflow as tf

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.optimizers import protocol

from . import rules
from . import running

SHAPES = [(), (3,), (2, 3), (2, 3, 4), (2, 1, 3, 2)]


def gradients(shape, steps=6):
  numbers = np.random.RandomState(7)
  return [numbers.randn(*shape) * scale for scale in (1, 0.1, 3, 1, 0.5, 2)][
    :steps
  ]


def run(optimizer, given, sizes=None):
  x = tf.zeros(np.shape(given[0]))
  state = optimizer.initialize(tf.TensorSpec(x.shape, x.dtype))
  path = []
  for k, g in enumerate(given):
    batch = protocol.Batch(
      tf.constant(0.0),
      lambda w: w,
      tf.constant(sizes[k] if sizes else 1, tf.int64),
      tf.constant(sum(sizes) if sizes else 1, tf.int64),
    )
    g = tf.constant(g, tf.float32)
    state, x = protocol.take_step(optimizer, state, x, g, batch)
    path.append(x.numpy())
  return path, state


@pytest.mark.parametrize('shape', SHAPES)
@pytest.mark.parametrize('form', ['I', 'II'])
@pytest.mark.parametrize('z', [1, 2])
def test_adagrad(shape, form, z):
  optimizer = optimizers.client(
    'sm3_adagrad', learning_rate=0.1, epsilon=0.01, form=form, delay=z
  )
  path, _ = run(optimizer, gradients(shape))
  expected = rules.sm3(gradients(shape), shape, 0.1, 0.01, z, form)
  np.testing.assert_allclose(path, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('shape', [(3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize('form', ['I', 'II'])
@pytest.mark.parametrize('z', [1, 3])
def test_adam(shape, form, z):
  settings = dict(beta_1=0.8, beta_2=0.9)
  optimizer = optimizers.client(
    'sm3_adam', learning_rate=0.1, epsilon=0.01, form=form, delay=z, **settings
  )
  path, _ = run(optimizer, gradients(shape))
  expected = rules.sm3(gradients(shape), shape, 0.1, 0.01, z, form, **settings)
  np.testing.assert_allclose(path, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('form', ['I', 'II'])
@pytest.mark.parametrize('name', ['sm3_adagrad', 'sm3_adam'])
def test_a_start_of_its_own(name, form):
  """Algorithm 5: the optimizer drawn decides where its v starts."""
  shape = (2, 3)
  settings = dict(beta_1=0.8, beta_2=0.9) if name == 'sm3_adam' else {}
  optimizer = optimizers.client(
    name,
    learning_rate=0.1,
    epsilon=0.01,
    form=form,
    initial_accumulator=0.3,
    **settings,
  )
  path, _ = run(optimizer, gradients(shape))
  rule = lambda start: rules.sm3(
    gradients(shape), shape, 0.1, 0.01, 1, form, **settings, start=start
  )
  np.testing.assert_allclose(path, rule(0.3), rtol=1e-4, atol=1e-6)
  assert running.differs(rule(0.3), rule(0.0))


def test_inputs_tell_the_forms_and_delays_apart():
  shape = (2, 3)
  settings = [
    dict(z=z, form=form, beta_1=b, beta_2=b)
    for z in (1, 2)
    for form in ('I', 'II')
    for b in (None, 0.9)
  ]
  paths = [
    rules.sm3(gradients(shape), shape, 0.1, 0.01, **one) for one in settings
  ]
  for i, one in enumerate(paths):
    for other in paths[i + 1 :]:
      assert running.differs(one, other)


def test_a_matrix_keeps_its_sides_and_nothing_of_its_size():
  specs = (
    tf.TensorSpec([30, 40]),
    tf.TensorSpec([5, 6, 7, 8]),
    tf.TensorSpec([9]),
    tf.TensorSpec([]),
  )
  state = optimizers.client('sm3_adagrad').initialize(specs)
  kept = sum(tf.size(t).numpy() for t in tf.nest.flatten(state))
  scalars = 3  # Learning rate, epsilon, step.
  assert kept == (30 + 40) + (5 + 6 + 7 + 8) + 9 + 1 + scalars
  after = optimizers.client('sm3_adagrad').next(
    state, *(tf.nest.map_structure(lambda s: tf.ones(s.shape), specs),) * 2
  )[0]
  assert sum(tf.size(t).numpy() for t in tf.nest.flatten(after)) == kept


@pytest.mark.parametrize('name', ['adagrad', 'adam', 'sm3_adagrad', 'sm3_adam'])
def test_delay_in_epochs(name):
  """Two steps an epoch, three epochs, renewed in epochs 0 and 2."""
  optimizer = optimizers.client(
    name, delay=2, delay_unit='epochs', local_epochs=3, learning_rate=0.1
  )
  given = gradients((2, 3))
  _, state = run(optimizer, given, sizes=[4, 2] * 3)
  every = optimizers.client(name, learning_rate=0.1)
  # Renewal is all that epochs decide: hand the same g^2 to an undelayed one.
  _, undelayed = run(every, [given[k] for k in (0, 1, 4, 5)])
  tf.nest.map_structure(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
    state['preconditioner'],
    undelayed['preconditioner'],
  )


def test_delay_in_epochs_needs_their_number():
  for name in ('adagrad', 'adam', 'sm3_adagrad', 'sm3_adam'):
    for half in (dict(delay_unit='epochs'), dict(local_epochs=2)):
      with pytest.raises(parameters.ParameterError, match='local_epochs'):
        optimizers.client(name, **half)


@pytest.mark.parametrize('name', ['adam', 'sm3_adam'])
def test_small_steps_are_not_taken_but_counted_into_m(name):
  optimizer = optimizers.client(name, min_step_norm=1e6, learning_rate=0.1)
  path, state = run(optimizer, gradients((2, 3)))
  assert np.all(np.array(path) == 0)
  _, free = run(optimizers.client(name, learning_rate=0.1), gradients((2, 3)))
  np.testing.assert_allclose(state['m'], free['m'], rtol=1e-6)
  taken, _ = run(
    optimizers.client(name, min_step_norm=1e-3, learning_rate=0.1),
    gradients((2, 3)),
  )
  assert np.all(np.any(np.array(taken) != 0, axis=(1, 2)))
