"""Every method's defaults learn the embedded task."""

import collections
import csv
import pathlib
import statistics

import pytest

from tff_adaptive import training
from tff_adaptive.algorithms import methods

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Its server's model lacks the clients' own last layers (results/defaults).
_BELOW = {'fedper': 0.85}
_LEARNERS = [name for name in methods.table() if name != 'fedbn']


@pytest.mark.parametrize(
  'name, changed',
  [
    ('fedadamw', {'client_learning_rate': 0.001}),
    ('fedada2_blended', {'server_learning_rate': 0.03}),
    ('fedams', {'server_learning_rate': 0.03}),
    ('fedcams', {'server_learning_rate': 0.1}),
    ('feddecsps', {'count': 'round'}),
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


def _recorded():
  """Returns accuracies over the last tenth of the rounds, a seed each."""
  found = collections.defaultdict(dict)
  with open(_ROOT / 'results' / 'defaults' / 'results.csv') as file:
    for row in csv.DictReader(file):
      assert (row['status'], row['rounds']) == ('finished', '200'), row
      found[row['setting']][int(row['seed'])] = float(row['validation/metric'])
  return found


def test_defaults_that_were_recorded():
  found = _recorded()
  assert {*found} == {*_LEARNERS}
  means = {name: statistics.mean(of.values()) for name, of in found.items()}
  for name, accuracies in found.items():
    assert len(accuracies) == 3, name
    assert means[name] >= _BELOW.get(name, 0.9) * means['fedavg'], name


@pytest.mark.slow
@pytest.mark.parametrize('name', _LEARNERS)
def test_what_was_recorded_again(tmp_path, name):
  settings = training.settings(algorithm=name, root_output_dir=str(tmp_path))
  rows = training.run(settings, say=lambda _: None, pictures=False).rows
  last = [
    float(row['validation/sparse_categorical_accuracy'])
    for row in rows[-20:]
    if row['validation/sparse_categorical_accuracy']
  ]
  assert abs(statistics.mean(last) - _recorded()[name][0]) < 0.05
