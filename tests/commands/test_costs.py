"""What methods cost a client, for every name."""

import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.algorithms import building
from tff_adaptive.lab.commands import costs
from tff_adaptive.lab.commands import measured_costs

FEATURES, HIDDEN, CLASSES = 300, 40, 3
SIZE = 4 * (FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES)
# SM3 keeps one number per row and column of a matrix, a vector whole.
SM3 = 4 * (FEATURES + HIDDEN + HIDDEN + HIDDEN + CLASSES + CLASSES)
# The last layer, which stays with clients.
LAST = 4 * (HIDDEN * CLASSES + CLASSES) / SIZE
# The part of matrices in all weights.
MATRICES = 4 * (FEATURES * HIDDEN + HIDDEN * CLASSES) / SIZE

# Down, up, optimizer, context, kept in units of d; gradients.
EXPECTED = {
  'fedavg': (1, 1, 0, 0, 0, 1),
  'fedavgm': (1, 1, 0, 0, 0, 1),
  'fedadagrad': (1, 1, 0, 0, 0, 1),
  'fedadam': (1, 1, 0, 0, 0, 1),
  'fedyogi': (1, 1, 0, 0, 0, 1),
  'fedams': (1, 1, 0, 0, 0, 1),
  'fedprox': (1, 1, 0, 0, 0, 1),
  # The previous weights, and the gradient there.
  'delta_sgd': (1, 1, 1, 0, 0, 2),
  'fedsps': (1, 1, 0, 0, 0, 1),
  'feddecsps': (1, 1, 0, 0, 0, 1),
  'fedsps_normalized': (1, 1, 0, 0, 0, 1),
  'fedsps_global': (1, 1, 1, 0, 0, 1),
  # c down, its change up; c_i stays where it is.
  'scaffold': (2, 2, 0, 1, 1, 1),
  'moon': (1, 1, 0, 1, 1, 1),
  # B^2 down and A^2 up.
  'local_adaalter': (2, 2, 2, 0, 0, 1),
  # m, v and v-hat down, m and v up.
  'local_amsgrad': (4, 3, 3, 0, 0, 1),
  # Model, momentum and mean gradient; update and gradient.
  'mime': (3, 2, 3, 0, 0, 3),
  'mimelite': (2, 2, 1, 0, 0, 2),
  'direct_joint': (2, 1, 1, 0, 0, 1),
  'joint_zero_init': (1, 1, 1, 0, 0, 1),
  'fedada2': (1, 1, SM3 / SIZE, 0, 0, 1),
  'fedada2_blended': (1, 1, 3 + SM3 / SIZE, 0, 0, 1),
  'fedexp': (1, 1, 0, 0, 0, 1),
  'fednova': (1, 1, 0, 0, 0, 1),
  # The direction down.
  'fedcm': (2, 1, 1, 0, 0, 1),
  # The linear term, and lambda_i.
  'feddyn': (1, 1, 0, 1, 1, 1),
  'fedsam': (1, 1, 0, 0, 0, 2),
  # How far off gradients are taken, and the model received.
  'fedlesam': (1, 1, 0, 1, 1, 1),
  # Matrices have a momentum, other variables two moments.
  'fedmuon': (2 + MATRICES, 1 + MATRICES, 3 - MATRICES, 0, 0, 1),
  # m, v and the direction.
  'fedadamw': (2, 1, 3, 0, 0, 1),
  # Five signs in a byte.
  'fedcams': (1, 1 / 20, 0, 0, 1, 1),
  # The moments stay where they are.
  'diloco': (1, 1, 2, 0, 2, 1),
  'muloco': (1, 1, 2 - MATRICES, 0, 2 - MATRICES, 1),
  'bi2clip': (1, 1, 0, 0, 0, 1),
  # m, v, its maximum and the sum of gradients.
  'fadamgc': (2, 2, 4, 1, 1, 1),
  'fedhyper': (1, 1, 0, 0, 0, 1),
  'fedlion': (2, 2, 1, 0, 0, 1),
  'fedper': (1 - LAST, 1 - LAST, 0, 0, LAST, 1),
  # Positions and values of one entry in 64.
  'fedef21': (1, 1 / 32, 0, 0, 1, 1),
}


# A server with control variates, and clients with preconditioners.
_FAST = ('scaffold', 'fedada2')


def model_fn():
  model = tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((FEATURES,)),
      tf.keras.layers.Dense(HIDDEN),
      tf.keras.layers.Dense(CLASSES),
    ]
  )
  return tff.learning.models.from_keras_model(
    model,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    input_spec=(
      tf.TensorSpec([None, FEATURES], tf.float32),
      tf.TensorSpec([None], tf.int32),
    ),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )


def test_every_method_is_expected():
  # The model here has no normalisation to keep.
  assert {*EXPECTED, 'fedbn'} == set(algorithms.names())
  assert set(measured_costs.PUBLISHED) <= set(EXPECTED)


@pytest.mark.parametrize('name', tiers.exhaustive_but(_FAST, EXPECTED))
def test_costs_in_units_of_the_model(name):
  components = building.build_components(algorithms.resolve(name))
  measured = measured_costs.of_process(components.compose(model_fn), components)
  assert measured.model == SIZE
  found = [
    size / measured.model
    for size in (
      measured.down,
      measured.up,
      measured.optimizer_state,
      measured.context,
      measured.kept,
    )
  ]
  *expected, gradients = EXPECTED[name]
  for value, wanted in zip(found, expected, strict=True):
    # Settings down, metrics and counts up: a few numbers.
    assert 0 <= value - wanted < 0.01
  assert measured.gradients == gradients
  published = measured_costs.PUBLISHED.get(name)
  if published is not None:
    traffic, memory, gradients = published
    assert round(measured.traffic) == traffic
    assert measured.gradients == gradients
    # MimeLite's third d is no state of ours; SM3 needs hardly any.
    below = {'mimelite': 1, 'fedada2': 1}.get(name, 0)
    assert round(measured.memory) == memory - below


def test_a_gradient_that_is_reused_counts_once():
  configuration = algorithms.resolve('delta_sgd', smoothness_batch='successive')
  components = building.build_components(configuration)
  process = components.compose(model_fn)
  assert measured_costs.of_process(process, components).gradients == 1


@pytest.mark.parametrize(
  'arguments, words',
  [
    (['--methods=fedavg,adam'], "got 'adam'"),
    (['--methods=fedavg', '--algorithm=moon'], 'omit it'),
    (['--task=nothing'], '--task must be one of'),
    (['--algorithm=centralized'], 'has no clients'),
  ],
)
def test_complaints(arguments, words):
  with pytest.raises(errors.SettingsError, match=words):
    costs.main(arguments)


def test_the_command(capsys):
  assert costs.main(['--data=synthetic', '--methods=direct_joint,fedbn']) == 0
  head, row, other = capsys.readouterr().out.splitlines()[-3:]
  assert head.startswith('method') and len(head) == len(row)
  assert row.split()[6:8] == ['3.001', '3'] and row.split()[-2:] == ['1', '1']
  assert other.split() == ['fedbn', 'not', 'for', 'this', 'model']


@pytest.mark.parametrize(
  'words', [['--dp_clip_norm=1'], ['--dp_clip_norm=1', '--methods=fedavg']]
)
def test_hyperparameters_of_no_method_are_refused(words):
  with pytest.raises(errors.SettingsError, match='--dp_clip_norm=1 would be'):
    costs.main(words)
