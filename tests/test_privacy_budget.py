"""Differential privacy: what it costs."""

import dataclasses
import logging
import math

import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from tff_adaptive import parameters
from tff_adaptive.privacy import loss as privacy_loss
from tff_adaptive.privacy import mechanism as privacy

# ADA2, Section 6.1 and Appendix H.1.
PAPER = privacy.Budget(
  clients=400, clients_per_round=40, delta=0.0025, rounds=500
)


def variant(budget, **changes):
  return dataclasses.replace(budget, **changes)


def test_the_papers_epsilon_is_renyi_under_poisson_sampling():
  budget = variant(PAPER, sampling='poisson', accounting='rdp')
  assert budget.epsilon(1.0, 500) == pytest.approx(13.1236, abs=1e-3)
  assert budget.renyi_order(1.0) == 2.0
  # Of order 2 in closed form: T log(1 + q^2 (exp(1/sigma^2) - 1)), and the
  # conversion of Canonne, Kamath and Steinke.
  renyi = 500 * math.log1p(0.1**2 * math.expm1(1.0))
  converted = renyi + math.log1p(-1 / 2) - math.log(0.0025 * 2)
  assert budget.epsilon(1.0, 500) == pytest.approx(converted, rel=1e-6)


def test_what_an_honest_accountant_gives_for_the_papers_run():
  figures = {
    (sampling, accounting): variant(
      PAPER, sampling=sampling, accounting=accounting
    ).epsilon(1.0, 500)
    for sampling in ('fixed', 'poisson')
    for accounting in ('pld', 'rdp')
  }
  assert figures['poisson', 'pld'] == pytest.approx(11.503, abs=5e-3)
  assert figures['fixed', 'pld'] == pytest.approx(73.50, abs=0.02)
  assert figures['fixed', 'rdp'] == pytest.approx(373.66, abs=0.05)
  text = PAPER.describe(1.0)
  for value in ('13.12', '11.5', '73.5', '373.7', 'order 2', 'delta = 0.0025'):
    assert value in text


def gaussian_epsilon(shift, delta):
  """epsilon of N(0, 1) against N(shift, 1), exactly (Balle and Wang)."""

  def excess(epsilon):
    return (
      stats.norm.cdf(shift / 2 - epsilon / shift)
      - math.exp(epsilon) * stats.norm.cdf(-shift / 2 - epsilon / shift)
      - delta
    )

  return optimize.brentq(excess, 0.0, 100.0)


@pytest.mark.parametrize(
  'sampling, sensitivity', [('fixed', 2), ('poisson', 1)]
)
def test_everybody_in_every_round_is_the_gaussian_mechanism(
  sampling, sensitivity
):
  budget = privacy.Budget(
    clients=40, clients_per_round=40, delta=1e-5, rounds=100, sampling=sampling
  )
  for rounds in (1, 10, 100):
    exact = gaussian_epsilon(sensitivity * math.sqrt(rounds) / 20, 1e-5)
    epsilon = budget.epsilon(20.0, rounds)
    assert exact <= epsilon < exact * 1.01 + 1e-3
    # Renyi orders give an upper bound.
    assert variant(budget, accounting='rdp').epsilon(20.0, rounds) > exact


def test_one_round_with_a_fixed_cohort_is_amplified():
  """Against theorem 9 of Balle et al., solved for epsilon."""
  budget = privacy.Budget(
    clients=50, clients_per_round=10, delta=1e-3, rounds=1
  )
  inner = gaussian_epsilon(2 / 1.5, 1e-3 / 0.2)
  exact = math.log1p(0.2 * math.expm1(inner))
  assert exact <= budget.epsilon(1.5, 1) < exact * 1.01
  assert budget.epsilon(1.5, 1) < gaussian_epsilon(2 / 1.5, 1e-3)


def test_fixed_size_delta_is_that_of_two_distributions():
  """Numerically, from the densities that the profile is the worst of."""
  sigma, share = 1.3, 0.3
  x = np.linspace(-30, 30, 400_001)
  p = stats.norm.pdf(x, 2 / sigma)
  q = stats.norm.pdf(x)
  mixed = share * p + (1 - share) * q
  for epsilon in (0.0, 0.3, 1.0):
    up = np.maximum(mixed - math.exp(epsilon) * q, 0)
    down = np.maximum(q - math.exp(-epsilon) * mixed, 0)
    step = x[1] - x[0]
    given = privacy_loss.fixed_size_delta(
      np.array([epsilon, -epsilon]), sigma, share
    )
    assert given[0] == pytest.approx(up.sum() * step, rel=1e-4)
    assert given[1] == pytest.approx(down.sum() * step, rel=1e-4)


def test_epsilon_grows_with_rounds_and_falls_with_noise_and_clients():
  for sampling in ('fixed', 'poisson'):
    budget = variant(PAPER, sampling=sampling)
    path = [budget.epsilon(1.0, r) for r in (0, 1, 2, 50, 500)]
    assert path[0] == 0 and path == sorted(path) and path[1] < path[2]
    assert budget.epsilon(2.0, 500) < path[-1]
    assert variant(budget, clients=4000).epsilon(1.0, 500) < path[-1]
    assert budget.epsilon(0.0, 1) == math.inf


@pytest.mark.parametrize(
  'sampling, accounting',
  [('fixed', 'pld'), ('poisson', 'pld'), ('poisson', 'rdp')],
)
def test_noise_for_a_target(sampling, accounting):
  budget = variant(PAPER, sampling=sampling, accounting=accounting)
  noise = budget.noise_for(8.0)
  assert noise == round(noise, 3)
  assert budget.epsilon(noise, 500) <= 8.0
  assert budget.epsilon(noise - 0.005, 500) > 8.0


def test_the_paper_noise_is_found_again():
  budget = variant(PAPER, sampling='poisson', accounting='rdp')
  assert budget.noise_for(13.1237) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
  'changes, words',
  [
    ({'delta': 0.0}, '`dp_delta` must be above 0 and below 1, got 0'),
    ({'delta': 1.0}, 'got 1'),
    ({'clients_per_round': 401}, 'from 1 to 400, the number of clients'),
  ],
)
def test_impossible_budgets(changes, words):
  with pytest.raises(parameters.ParameterError, match=words):
    variant(PAPER, **changes)


def test_a_target_out_of_reach():
  budget = variant(PAPER, delta=1e-12, sampling='poisson', accounting='rdp')
  with pytest.raises(parameters.ParameterError, match='No noise multiplier'):
    budget.noise_for(1e-6)


def test_warnings_of_dp_accounting_come_once():
  records = []
  handler = logging.Handler()
  handler.emit = records.append
  logger = logging.getLogger('absl')
  logger.addHandler(handler)
  try:
    for noise in (0.31, 0.32, 0.33):  # At which no other test has been.
      budget = variant(
        PAPER, clients=8, clients_per_round=5, sampling='poisson', delta=0.1
      )
      assert budget.epsilon(noise, 3) > 10
  finally:
    logger.removeHandler(handler)
  formats = [record.msg for record in records]
  assert len(formats) == len(set(formats)), formats
