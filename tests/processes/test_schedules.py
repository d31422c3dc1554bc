"""Learning rates that depend on the round."""

import numpy as np
import pytest

from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive.optimizers import schedules

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05


@pytest.mark.parametrize(
  'schedule,rates',
  [
    (
      dict(
        client_lr_schedule='exp_decay',
        client_lr_decay_steps=2,
        client_lr_decay_rate=0.25,
      ),
      [1.0, 0.5, 0.25],
    ),
    (
      dict(
        client_lr_schedule='exp_decay',
        client_lr_decay_steps=2,
        client_lr_decay_rate=0.25,
        client_lr_staircase=True,
      ),
      [1.0, 1.0, 0.25],
    ),
    (dict(client_lr_warmup_steps=2), [0.5, 1.0, 1.0]),
  ],
)
def test_client_schedule(schedule, rates):
  process = algorithms.build(
    'fedavg', linear.model_fn, client_learning_rate=RATE, **schedule
  )
  weights, _ = linear.run(process, 3)
  w, path = linear.START, []
  for rate in rates:
    w = w + linear.round_update(w, linear.sgd(RATE * rate))
    path.append(w)
  np.testing.assert_allclose(weights, path, rtol=1e-5)


def test_server_schedule():
  process = algorithms.build(
    'fedavg',
    linear.model_fn,
    client_learning_rate=RATE,
    server_learning_rate=0.8,
    server_lr_schedule='inv_lin_decay',
    server_lr_decay_steps=1,
    server_lr_decay_rate=1.0,
  )
  weights, _ = linear.run(process, 3)
  w, path = linear.START, []
  for r in range(3):
    w = w + 0.8 / (1 + r) * linear.round_update(w, linear.sgd(RATE))
    path.append(w)
  np.testing.assert_allclose(weights, path, rtol=1e-5)


def test_unknown_schedule():
  with pytest.raises(parameters.ParameterError, match="'step_decay', got 'cos"):
    schedules.build_schedule(0.1, lr_schedule='cosine')
