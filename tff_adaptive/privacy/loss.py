"""The privacy loss of a Gaussian mechanism on sampled clients, per round.

Computed as Renyi divergences or as a privacy loss distribution, for
`mechanism.Budget`. Importing this module does not import dp_accounting.
"""

import functools
import logging
import math
from collections.abc import Callable
from typing import Any, Optional

import numpy as np

MOST_NOISE = 10_000


class _Once(logging.Filter):
  """A logging filter that passes each warning of dp_accounting once.

  With few clients, dp_accounting warns at every noise multiplier tried about
  every Renyi order that does not converge; epsilon uses the other orders.
  """

  def __init__(self) -> None:
    super().__init__()
    self._passed: set[str] = set()

  def filter(self, record: logging.LogRecord) -> bool:
    if 'dp_accounting' not in record.pathname:
      return True
    text = str(record.msg)
    first = text not in self._passed
    self._passed.add(text)
    return first


_ONCE = _Once()


@functools.lru_cache(maxsize=64)
def renyi_epsilon(
  clients: int,
  clients_per_round: int,
  sampling: str,
  noise_multiplier: float,
  rounds: int,
  delta: float,
) -> tuple[float, float]:
  """Computes epsilon by Renyi orders, and the order that attains it.

  Args:
    clients: Number of all clients.
    clients_per_round: Number of clients sampled per round.
    sampling: 'fixed' or 'poisson'; see `mechanism.Budget`.
    noise_multiplier: sigma.
    rounds: Number of rounds.
    delta: The delta at which epsilon is computed.
  """
  from dp_accounting import rdp  # pylint: disable=g-import-not-at-top

  orders, divergences = _renyi_divergences(
    clients, clients_per_round, sampling, noise_multiplier
  )
  return rdp.compute_epsilon(orders, rounds * divergences, delta)


@functools.lru_cache(maxsize=64)
def _renyi_divergences(
  clients: int, clients_per_round: int, sampling: str, noise_multiplier: float
) -> tuple[np.ndarray, np.ndarray]:
  """Computes the orders and one round's Renyi divergence at each order."""
  import dp_accounting  # pylint: disable=g-import-not-at-top
  from dp_accounting import rdp  # pylint: disable=g-import-not-at-top

  logging.getLogger('absl').addFilter(_ONCE)  # Adding it again has no effect.
  if sampling == 'poisson':
    accountant = rdp.RdpAccountant()
    event = dp_accounting.PoissonSampledDpEvent(
      clients_per_round / clients,
      dp_accounting.GaussianDpEvent(noise_multiplier),
    )
  else:
    accountant = rdp.RdpAccountant(
      neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_ONE
    )
    # The distance of two clipped updates is at most 2 c.
    event = dp_accounting.SampledWithoutReplacementDpEvent(
      clients,
      clients_per_round,
      dp_accounting.GaussianDpEvent(noise_multiplier / 2),
    )
  accountant.compose(event)
  # Divergences add up over rounds. Composing rounds in the accountant would
  # recompute them for every epsilon.
  return accountant._orders, accountant._rdp  # pylint: disable=protected-access


@functools.lru_cache(maxsize=8)
def distribution(
  noise_multiplier: float, share: float, sampling: str, interval: float
) -> Any:
  """Computes one round's privacy loss distribution, rounded up.

  Args:
    noise_multiplier: sigma.
    share: Fraction of the clients sampled per round.
    sampling: 'fixed' or 'poisson'; see `mechanism.Budget`.
    interval: Bin width of the discretized privacy loss.

  Returns:
    A `dp_accounting.pld.PrivacyLossDistribution`.
  """
  from dp_accounting.pld import pld_pmf  # pylint: disable=g-import-not-at-top
  from dp_accounting.pld import privacy_loss_distribution  # pylint: disable=g-import-not-at-top

  if sampling == 'poisson':
    return privacy_loss_distribution.from_gaussian_mechanism(
      noise_multiplier,
      value_discretization_interval=interval,
      sampling_prob=share,
    )
  # The largest loss with non-negligible mass.
  shift = 2 / noise_multiplier
  largest = math.log1p(share * math.expm1(min(shift**2 / 2 + 9 * shift, 700.0)))
  bins = max(1, math.ceil(largest / interval))
  deltas = fixed_size_delta(
    np.arange(-bins, bins + 1) * interval, noise_multiplier, share
  )
  return privacy_loss_distribution.PrivacyLossDistribution(
    pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(
      interval, -bins, bins, np.minimum.accumulate(deltas)
    )
  )


def fixed_size_delta(
  epsilons: np.ndarray, noise_multiplier: float, share: float
) -> np.ndarray:
  """Computes delta of one round with a fixed cohort size, by epsilon.

  Neighbouring data sets differ in the data of one client, which moves the
  clipped update by at most 2 c. The Gaussian mechanism with shift s = 2 / sigma
  has

    delta_G(e) = Phi(s / 2 - e / s) - exp(e) Phi(-s / 2 - e / s),

  and sampling a fraction q without replacement gives, for epsilon >= 0 (Balle,
  Barthe and Gaboardi, arXiv 1807.01647, Theorem 9),

    delta(epsilon) = q delta_G(log(1 + (exp(epsilon) - 1) / q)).

  The replacement relation is symmetric, so that for epsilon < 0 delta(epsilon)
  = 1 - exp(epsilon) + exp(epsilon) delta(-epsilon).

  Args:
    epsilons: Real numbers of any sign.
    noise_multiplier: sigma.
    share: q.

  Returns:
    The deltas, an array of the shape of `epsilons`.
  """
  from scipy import special  # pylint: disable=g-import-not-at-top

  shift = 2 / noise_multiplier
  size = np.abs(np.asarray(epsilons, dtype=np.float64))
  # log(1 + (exp(e) - 1) / q) without overflow.
  inner = size + np.log(np.exp(-size) + -np.expm1(-size) / share)
  tail = np.exp(inner + special.log_ndtr(-shift / 2 - inner / shift))
  positive = share * np.maximum(
    special.ndtr(shift / 2 - inner / shift) - tail, 0.0
  )
  return np.where(
    np.asarray(epsilons) >= 0,
    positive,
    -np.expm1(-size) + np.exp(-size) * positive,
  )


def smallest_noise(
  epsilon: Callable[[float], float], target: float
) -> Optional[float]:
  """Finds the smallest noise multiplier within a target, to 3 decimals.

  The result is rounded up.

  Args:
    epsilon: A decreasing function of the noise multiplier.
    target: The largest epsilon allowed.

  Returns:
    The noise multiplier; `None` if none up to `MOST_NOISE` attains the target.
  """
  from scipy import optimize  # pylint: disable=g-import-not-at-top

  def excess(noise_multiplier: float) -> float:
    return epsilon(noise_multiplier) - target

  low, high = 0.5, 1.0
  while excess(high) > 0:
    low, high = high, 2 * high
    if high > MOST_NOISE:
      return None
  while excess(low) <= 0:
    low, high = low / 2, low
  found = optimize.brentq(excess, low, high, xtol=1e-4)
  rounded = math.ceil(found * 1000) / 1000
  # Discretization makes epsilon slightly non-monotone.
  while excess(rounded) > 0:
    rounded = round(rounded + 0.001, 3)
  return rounded
