"""FedLion against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import training

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ETA, BETA_1, BETA_2, DECAY = 0.1, 0.8, 0.6, 0.7, 0.2
ROUNDS = [(0, 1), (0, 2), (1, 2)]


def lion(x, m, client, beta_1=BETA_1, beta_2=BETA_2):
  for batch in client:
    g = dense.gradient(x, batch)
    c = beta_1 * m + (1 - beta_1) * g
    x = x - RATE * (np.sign(c) + DECAY * x)
    m = beta_2 * m + (1 - beta_2) * g
  return x, m


def fedlion(first='mean', **betas):
  """`first` tells with which momentum a client begins."""
  x, path, mean, own = dense.START, [], np.zeros(8), {}
  for cohort in ROUNDS:
    starts = {
      'mean': lambda _, mean=mean: mean,
      'fresh': lambda _: np.zeros(8),
      'own': lambda i: own.get(i, np.zeros(8)),
    }
    ends = [
      lion(x, starts[first](i), dense.CLIENTS[i], **betas) for i in cohort
    ]
    own.update((i, m) for i, (_, m) in zip(cohort, ends))
    x = x + ETA * (dense.average([e for e, _ in ends], cohort) - x)
    mean = dense.average([m for _, m in ends], cohort)
    path.append(x)
  return path


def build(**more):
  return algorithms.build(
    'fedlion',
    dense.model(),
    client_learning_rate=RATE,
    client_beta_1=BETA_1,
    client_beta_2=BETA_2,
    weight_decay=DECAY,
    server_learning_rate=ETA,
    **more,
  )


def test_rounds():
  path, _, _ = dense.run(build(), ROUNDS)
  expected = fedlion()
  dense.close(path, expected)
  for first in ('fresh', 'own'):
    neighbour = fedlion(first)
    np.testing.assert_array_equal(neighbour[0], expected[0])
    assert dense.differ(expected, neighbour)
  assert dense.differ(expected, fedlion(beta_1=BETA_2, beta_2=BETA_1))


@pytest.mark.parametrize(
  'given, saves',
  [
    pytest.param(given, not given, marks=pytest.mark.exhaustive)
    for given in ({}, {'client_warmup_steps': 2}, {'aggregator_clipping': True})
  ],
)
def test_bytes_up_count_integers_where_updates_are(tmp_path, given, saves):
  def run(name, **more):
    settings = training.settings(
      algorithm='fedlion',
      total_rounds=1,
      root_output_dir=str(tmp_path),
      experiment_name=name,
      **given,
      **more,
    )
    return training.run(settings, say=lambda _: None)

  row, full = run('integers').rows[-1], run('full', weight_decay=0.1).rows[-1]
  saved = int(full['bytes_up']) - int(row['bytes_up'])
  if not saves:
    # The bits of a client's update are counted beside it.
    assert saved == -4
    return
  steps = int(row['clients/steps']) // int(row['clients/count'])
  count = 13_706  # Weights of the model of digits.
  bits = np.ceil(np.log2(2 * steps + 1))
  assert saved == 4 * count - np.ceil(count * bits / 8) - 4
