"""Learning rates that depend on the round."""

import numpy as np
import pytest

from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.optimizers import schedules

from . import linear

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.05


@pytest.mark.parametrize(
  'schedule,rates',
  [
    pytest.param(
      dict(
        client_lr_schedule='exp_decay',
        client_lr_decay_steps=2,
        client_lr_decay_rate=0.25,
      ),
      [1.0, 0.5, 0.25],
      marks=pytest.mark.exhaustive,
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


@pytest.mark.parametrize(
  'name,more,expected',
  [
    ('exp_decay', {}, lambda q: 0.25**q),
    ('inv_lin_decay', {}, lambda q: 1 / (1 + 0.25 * q)),
    ('inv_sqrt_decay', {}, lambda q: 1 / np.sqrt(1 + 0.25 * q)),
    # Of eight rounds the fifth and sixth at a quarter, then a sixteenth.
    ('step_decay', {}, lambda q: 0.25 ** ((q >= 0.5) + (q >= 0.75))),
    (
      'exp_decay',
      dict(lr_staircase=True, lr_decay_steps=3),
      lambda q: 0.25 ** np.floor(q),
    ),
  ],
)
@pytest.mark.parametrize('warmup', [0, 4])
def test_rates_by_round(name, more, expected, warmup):
  steps = more.get('lr_decay_steps', 8)
  settings = dict(lr_decay_steps=8, lr_decay_rate=0.25, lr_warmup_steps=warmup)
  described = schedules.Schedule(lr_schedule=name, **(settings | more))
  schedule = described.build(0.4)
  for r in range(12):
    before = 0 if name == 'step_decay' else warmup  # Of all rounds.
    rate = expected((r - before) / steps)
    if r < warmup:
      rate = (r + 1) / warmup
    assert float(schedule(r)) == pytest.approx(0.4 * rate, rel=1e-5), r


def test_step_decay_goes_by_tenths_unless_told():
  described = schedules.Schedule(lr_schedule='step_decay', lr_decay_steps=8)
  schedule = described.build(1.0)
  rates = [float(schedule(r)) for r in range(8)]
  np.testing.assert_allclose(rates, [1] * 4 + [0.1] * 2 + [0.01] * 2, rtol=1e-5)


def test_clients_begin_with_the_base_rate_of_their_schedule():
  described = schedules.Schedule(lr_schedule='linear', lr_decay_steps=4)
  process = processes.compose(
    linear.model_fn,
    optimizers.client('sgd', learning_rate=0.1),
    optimizers.server('sgd'),
    schedule=described.build(0.5),
  )
  hparams = process.get_hparams(process.initialize())
  assert float(hparams['client_work']['learning_rate']) == 0.5


def test_unknown_schedule():
  with pytest.raises(parameters.ParameterError, match="'wsd_sqrt', got 'sine"):
    schedules.Schedule(lr_schedule='sine')


@pytest.mark.parametrize(
  'name, more, left',
  [
    ('cosine', {}, lambda p: (1 + np.cos(np.pi * p)) / 2),
    ('linear', {}, lambda p: 1 - p),
    ('wsd', {'lr_stable_steps': 3}, lambda p: 1 - p),
    ('wsd_sqrt', {'lr_stable_steps': 3}, lambda p: 1 - np.sqrt(p)),
  ],
)
def test_schedules_that_end_at_a_minimum(name, more, left):
  described = schedules.Schedule(
    lr_schedule=name,
    lr_decay_steps=4,
    lr_warmup_steps=2,
    lr_minimum=0.1,
    **more,
  )
  schedule = described.build(0.4)
  for t in range(12):
    p = np.clip((t - 2 - more.get('lr_stable_steps', 0)) / 4, 0, 1)
    rate = (t + 1) / 2 if t < 2 else 0.1 + 0.9 * left(p)
    assert float(schedule(t)) == pytest.approx(0.4 * rate, rel=1e-5), t


def test_warmup_stable_and_decay():
  described = schedules.Schedule(
    lr_schedule='wsd',
    lr_decay_steps=3,
    lr_warmup_steps=2,
    lr_stable_steps=5,
    lr_minimum=0.1,
  )
  schedule = described.build(1.0)
  rates = [float(schedule(r)) for r in range(10)]
  np.testing.assert_allclose(rates, [0.5, *[1] * 7, 0.7, 0.4], rtol=1e-5)
  with pytest.raises(parameters.ParameterError, match='lr_stable_steps'):
    schedules.Schedule(lr_schedule='wsd', lr_decay_steps=3)
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    schedules.Schedule(
      lr_schedule='cosine', lr_decay_steps=3, lr_stable_steps=1
    )
