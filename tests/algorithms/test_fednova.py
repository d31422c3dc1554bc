"""FedNova against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE = 0.2
ROUNDS = [(0, 1), (1, 2), (0, 1, 2)]
# All have one step a round, and more or fewer examples.


def norm(steps, rho=0.0, mu=0.0):
  """|a_i|_1 of the paper's formulas."""
  if rho:
    return (steps - rho * (1 - rho**steps) / (1 - rho)) / (1 - rho)
  if mu:
    return (1 - (1 - RATE * mu) ** steps) / (RATE * mu)
  return steps


def fednova(rho=0.0, mu=0.0, eta=1.0, tau=None):
  """`tau` makes another tau_eff of |a_i|_1 and K_i."""
  x, path = dense.START, []
  for cohort in ROUNDS:
    steps = [len(dense.CLIENTS[i]) for i in cohort]
    norms = [norm(k, rho, mu) for k in steps]
    updates = [
      dense.sgd(x, dense.CLIENTS[i], RATE, momentum=rho, mu=mu) - x
      for i in cohort
    ]
    mean = dense.average([u / a for u, a in zip(updates, norms)], cohort)
    effective = dense.average(steps if mu else norms, cohort)
    if tau is not None:
      effective = tau(cohort, norms, steps)
    x = x + eta * effective * mean
    path.append(x)
  return path


@pytest.mark.parametrize(
  'settings, rule',
  [
    ({}, {}),
    pytest.param(
      {'client_momentum': 0.6}, {'rho': 0.6}, marks=pytest.mark.slow
    ),
    pytest.param(
      {'proximal_strength': 1.5, 'server_learning_rate': 0.5},
      {'mu': 1.5, 'eta': 0.5},
      marks=pytest.mark.exhaustive,
    ),
  ],
  ids=['plain', 'momentum', 'proximal'],
)
def test_rounds(settings, rule):
  process = algorithms.build(
    'fednova', dense.model(), client_learning_rate=RATE, **settings
  )
  path, _, _ = dense.run(process, ROUNDS)
  expected = fednova(**rule)
  dense.close(path, expected)
  rate = {'momentum': rule.get('rho', 0.0), 'mu': rule.get('mu', 0.0)}
  assert dense.differ(expected, dense.fedavg(ROUNDS, RATE, **rate))


def test_inputs_tell_fednova_from_its_neighbours():
  sums = lambda cohort, norms, steps: dense.average(norms, cohort)
  assert dense.differ(fednova(mu=1.5), fednova(mu=1.5, tau=sums))
  steps = lambda cohort, norms, steps: dense.average(steps, cohort)
  assert dense.differ(fednova(rho=0.6), fednova(rho=0.6, tau=steps))
  even = lambda cohort, norms, steps: np.mean(norms)
  assert dense.differ(fednova(), fednova(tau=even))


@pytest.mark.exhaustive
def test_a_warm_up_and_a_schedule_count_as_less_of_a_step():
  process = algorithms.build(
    'fednova',
    dense.model(),
    client_learning_rate=RATE,
    client_warmup_steps=2,
    client_lr_schedule='exp_decay',
    client_lr_decay_steps=1,
    client_lr_decay_rate=0.5,
  )
  path, _, _ = dense.run(process, ROUNDS)
  x, expected = dense.START, []
  for number, cohort in enumerate(ROUNDS):
    rate, shares = RATE * 0.5**number, [0.5, 1.0, 1.0]
    norms = [sum(shares[: len(dense.CLIENTS[i])]) for i in cohort]
    updates = [
      dense.sgd(x, dense.CLIENTS[i], rate, shares=shares) - x for i in cohort
    ]
    mean = dense.average([u / a for u, a in zip(updates, norms)], cohort)
    x = x + dense.average(norms, cohort) * mean
    expected.append(x)
  dense.close(path, expected)


def test_what_does_not_go_together_is_refused():
  with pytest.raises(parameters.ParameterError, match='cannot be combined'):
    algorithms.check('fednova', client_momentum=0.5, proximal_strength=0.1)
  with pytest.raises(parameters.ParameterError, match='numbers of local steps'):
    algorithms.check('fednova', dp_clip_norm=1.0, dp_clients_per_round=2)
