"""Every method's defaults learn the embedded task."""

import statistics

import pytest

from tff_adaptive import training
from tff_adaptive.algorithms import methods

_SEEDS = (0, 1, 2)
# Its steps shrink from the first on, as its paper's theory has them
# (docs/step_sizes.md).
_SLOW_LEARNERS = {'feddecsps'}


@pytest.mark.parametrize(
  'name, changed',
  [
    ('fedadamw', {'client_learning_rate': 0.001}),
    ('fedams', {'server_learning_rate': 0.03}),
    ('fedcams', {'server_learning_rate': 0.1}),
    ('feddyn', {'proximal_strength': 0.1}),
    ('fedexp', {'average_last_two': True}),
    ('fedsps_global', {'gamma_b': 0.3}),
    ('mime', {'client_learning_rate': 0.02}),
    ('mimelite', {'client_learning_rate': 0.01}),
    ('scaffold', {'client_learning_rate': 0.02}),
  ],
)
def test_defaults_that_the_builders_do_not_have(name, changed):
  values = training.settings(algorithm=name).hyperparameters
  assert {key: values[key] for key in changed} == changed


def _accuracy(folder, name):
  """Returns the mean over seeds of the accuracy after the default rounds."""
  found = []
  for seed in _SEEDS:
    settings = training.settings(
      algorithm=name,
      rounds_per_eval=200,
      seed=seed,
      root_output_dir=str(folder),
    )
    last = training.run(settings, say=lambda _: None).rows[-1]
    found.append(float(last['validation/sparse_categorical_accuracy']))
  return statistics.mean(found)


@pytest.fixture(name='reference', scope='module')
def reference_fixture(tmp_path_factory):
  return _accuracy(tmp_path_factory.mktemp('reference'), 'fedavg')


@pytest.mark.slow
@pytest.mark.parametrize('name', [*methods.table()])
def test_defaults_learn_the_embedded_task(tmp_path, reference, name):
  share = 0.8 if name in _SLOW_LEARNERS else 0.9
  assert _accuracy(tmp_path, name) >= share * reference
