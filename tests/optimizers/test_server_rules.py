"""FedAvgM, FedAdagrad, FedAdam, FedYogi, FedAMS against the papers."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import optimizers

from . import rules
from . import running

# Signs change, sizes vary, and after the large round v is above Delta^2 in some
# coordinates and below in others, so that Yogi leaves Adam.
DELTAS = [
  [1.0, -0.5, 0.02],
  [-0.5, 0.3, 0.01],
  [0.05, 2.0, -0.5],
  [2.0, -0.1, 0.3],
  [0.1, 0.1, 0.0],
]
ETA, BETA_1, BETA_2, TAU = 0.1, 0.8, 0.9, 0.05
RULES = {
  'adagrad': rules.adagrad_rule,
  'adam': rules.adam_rule,
  'yogi': rules.yogi_rule,
}


def build(name, **more):
  arguments = dict(learning_rate=ETA, beta_1=BETA_1, epsilon=TAU)
  if name != 'adagrad':
    arguments['beta_2'] = BETA_2
  return optimizers.server(name, **(arguments | more))


def paper(name, **more):
  settings = dict(v_start=TAU**2) | more
  return rules.fedopt(DELTAS, ETA, BETA_1, BETA_2, TAU, RULES[name], **settings)


def check(optimizer, expected):
  np.testing.assert_allclose(
    running.run_server(optimizer, DELTAS), expected, rtol=2e-5, atol=1e-6
  )


@pytest.mark.parametrize('momentum', [0.0, 0.9])
def test_sgd_is_fedavg_and_fedavgm(momentum):
  optimizer = optimizers.server('sgd', learning_rate=ETA, momentum=momentum)
  check(optimizer, rules.fedavgm(DELTAS, ETA, momentum))


@pytest.mark.parametrize('name', RULES)
def test_paper_variant(name):
  check(build(name), paper(name))


@pytest.mark.parametrize('name', RULES)
def test_reference_variant(name):
  expected = paper(name, v_start=0.0, corrects=name != 'adagrad')
  check(build(name, variant='reference'), expected)


@pytest.mark.parametrize('name', RULES)
def test_second_moment_of_the_momentum(name):
  expected = paper(name, squares='momentum')
  check(build(name, second_moment='momentum'), expected)


@pytest.mark.parametrize('name', ['adam', 'yogi'])
def test_switches_alone(name):
  check(build(name, bias_correction=True), paper(name, corrects=True))
  check(build(name, initial_accumulator=0.3), paper(name, v_start=0.3))
  check(
    build(name, variant='reference', bias_correction=False),
    paper(name, v_start=0.0),
  )


def test_default_beta_1_of_adagrad_is_zero():
  optimizer = optimizers.server('adagrad', learning_rate=ETA, epsilon=TAU)
  expected = rules.fedopt(
    DELTAS, ETA, 0.0, None, TAU, rules.adagrad_rule, v_start=TAU**2
  )
  check(optimizer, expected)


@pytest.mark.parametrize('variant', ['paper', 'amsgrad', 'reference'])
def test_ams(variant):
  check(
    build('ams', variant=variant),
    rules.fedams(DELTAS, ETA, BETA_1, BETA_2, TAU, variant),
  )


def test_inputs_tell_every_rule_from_its_neighbours():
  paths = {
    **{name: paper(name) for name in RULES},
    **{
      f'{name} {key}': paper(name, **more)
      for name in ('adam', 'yogi')
      for key, more in {
        'momentum': dict(squares='momentum'),
        'corrected': dict(corrects=True),
        'from zero': dict(v_start=0.0),
        'inside the root': dict(root=lambda v, tau: np.sqrt(v + tau)),
      }.items()
    },
    **{
      f'ams {variant}': rules.fedams(DELTAS, ETA, BETA_1, BETA_2, TAU, variant)
      for variant in ('paper', 'amsgrad', 'reference')
    },
  }
  names = list(paths)
  for i, one in enumerate(names):
    for other in names[i + 1 :]:
      assert running.differs(paths[one], paths[other]), (one, other)


@pytest.mark.parametrize(
  'name,peer',
  [
    (
      'adam',
      lambda: tff.learning.optimizers.build_adam(ETA, BETA_1, BETA_2, TAU),
    ),
    (
      'yogi',
      lambda: tff.learning.optimizers.build_yogi(
        ETA, BETA_1, BETA_2, TAU, initial_preconditioner_value=0.0
      ),
    ),
  ],
)
def test_reference_variant_equals_tff(name, peer):
  np.testing.assert_allclose(
    running.run_server(build(name, variant='reference'), DELTAS),
    running.run_server(peer(), DELTAS),
    rtol=1e-6,
    atol=1e-6,
  )


@pytest.mark.parametrize(
  'name,peer',
  [
    ('adam', lambda: tf.keras.optimizers.Adam(ETA, BETA_1, BETA_2, TAU)),
    (
      'adagrad',
      lambda: tf.keras.optimizers.legacy.Adagrad(
        ETA, initial_accumulator_value=0.0, epsilon=TAU
      ),
    ),
  ],
)
def test_reference_variant_equals_keras(name, peer):
  more = {'beta_1': 0.0} if name == 'adagrad' else {}
  keras, variable = peer(), tf.Variable(rules.START.astype(np.float32))
  path = []
  for delta in DELTAS:
    keras.apply_gradients([(-tf.constant(delta, tf.float32), variable)])
    path.append(variable.numpy())
  ours = running.run_server(build(name, variant='reference', **more), DELTAS)
  np.testing.assert_allclose(ours, path, rtol=2e-6, atol=2e-6)


def test_tffs_adagrad_has_epsilon_inside_the_root():
  """The departure that the documentation warns of is real."""
  theirs = running.run_server(
    tff.learning.optimizers.build_adagrad(ETA, 0.0, TAU), DELTAS
  )
  ours = running.run_server(
    build('adagrad', variant='reference', beta_1=0.0), DELTAS
  )
  assert running.differs(ours, theirs)
  # By 1 / sqrt(epsilon) where v is small: 3 times at 0.1, 32 at 0.001.
  for epsilon in (0.1, 0.001):
    steps = []
    for optimizer in (
      build('adagrad', variant='reference', beta_1=0.0, epsilon=epsilon),
      tff.learning.optimizers.build_adagrad(ETA, 0.0, epsilon),
    ):
      path = running.run_server(optimizer, [[3e-5, 3e-5, 3e-5]])
      steps.append(path[0][2] - rules.START[2])
    assert steps[0] / steps[1] == pytest.approx(epsilon**-0.5, rel=0.05)


@pytest.mark.parametrize('name', ['adagrad', 'adam', 'yogi', 'ams'])
def test_formula_names_what_was_resolved(name):
  text = build(name, initial_accumulator=0.3).formula
  assert 'from 0.3' in text and f'epsilon = {TAU:g}' in text
  assert 'm^2' in build(name, second_moment='momentum').formula
  assert '1 - beta_1^t' in build(name, bias_correction=True).formula
  assert '1 - beta_1^t' not in build(name, bias_correction=False).formula
