"""What is measured of the step sizes that clients choose."""

import numpy as np
import pytest

from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')


@pytest.mark.exhaustive
def test_step_size_figures():
  process = algorithms.build(
    'fedsps', linear.model_fn, gamma_b=0.15, record_step_sizes=True
  )
  overflowing = [([1.0], [1e30])]
  output = process.next(
    process.initialize(), linear.datasets([*linear.CLIENTS, [], overflowing])
  )
  metrics = output.metrics['client_work']
  steps = []
  for batches in linear.CLIENTS:
    w, own = linear.START, []
    for batch in batches:
      g = linear.gradient(w, batch)
      own.append(min(linear.loss(w, batch) / (0.5 * g**2), 0.15))
      w = w - own[-1] * g
    steps.append(own)
  everything = np.concatenate(steps)
  expected = dict(
    mean=everything.mean(),
    min=everything.min(),
    max=everything.max(),
    between_clients=np.std([np.mean(own) for own in steps]),
    within_clients=np.mean([np.std(own) for own in steps]),
    at_bound=np.mean(everything == 0.15),
  )
  assert list(metrics['step_size']) == list(expected)
  np.testing.assert_allclose(
    list(metrics['step_size'].values()),
    list(expected.values()),
    rtol=1e-4,
    atol=1e-6,
  )
  assert metrics['clients'] == dict(count=5, empty=1, rejected=1, steps=7)
  # A row a client, as `step_sizes.RECORD` says.
  nothing = 6 * [float('nan')]
  expected = [
    [1, len(s), np.mean(s), min(s), max(s), s[-1], np.std(s), np.mean(bound)]
    for s, bound in ((s, np.array(s) == 0.15) for s in steps)
  ]
  expected += [[0, 0, *nothing], [0, 1, *nothing]]
  records = metrics['step_size_of_clients']
  # The step of the client that overflowed is no number; it met no bound.
  np.testing.assert_allclose(records[:4], expected[:4], rtol=1e-4, atol=1e-6)
  np.testing.assert_allclose(records[4, :3], expected[4][:3])


def test_clients_of_one_step_size_do_not_differ():
  process = algorithms.build(
    'fedsps_global', linear.model_fn, gamma_b=0.3, record_step_sizes=True
  )
  clients = linear.datasets([[([1.0], [1e3])]] * 10)
  figures = process.next(process.initialize(), clients).metrics['client_work']
  assert figures['step_size']['mean'] == pytest.approx(0.3)
  assert figures['step_size']['between_clients'] < 1e-7


def test_step_sizes_are_recorded_only_where_there_are_any():
  algorithms.check('fedprox', client_optimizer='polyak', record_step_sizes=True)
  with pytest.raises(parameters.ParameterError, match='record_step_sizes'):
    algorithms.check('fedavg', record_step_sizes=True)
  with pytest.raises(ValueError, match='with adaptive step sizes'):
    processes.build_client_work(
      linear.model_fn, optimizers.client('sgd'), record_step_sizes=True
    )
  with pytest.raises(parameters.ParameterError, match='give one of them'):
    algorithms.check(
      'delta_sgd',
      record_step_sizes=True,
      dp_clip_norm=1.0,
      dp_noise_multiplier=1.0,
      dp_clients_per_round=10,
    )
