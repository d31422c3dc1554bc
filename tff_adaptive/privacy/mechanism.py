"""Differential privacy: the accepted options and the resulting guarantee.

The unit of privacy is a client with all of its examples. In a round, each
client's update is clipped to norm c, the updates are summed, Gaussian noise of
standard deviation sigma c is added to every coordinate, and the sum is divided
by a number of clients that does not depend on any client's data. `processes`
implements the mechanism (`aggregation`); this module checks its options and
computes (epsilon, delta). Importing it imports neither TensorFlow nor
dp_accounting.
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive.privacy import loss as privacy_loss

Accounting = Literal['pld', 'rdp']
Sampling = Literal['fixed', 'poisson']

# Initial value of an adaptive clipping norm, TFF's default.
_FIRST_ADAPTIVE_NORM = 0.1
# Aggregators that bound what one client can do, and so depend on single ones.
ROBUST = ('robust', 'median', 'trimmed_mean')


class Aggregation(parameters.Described):
  """The aggregation of clients' updates.

  Raises:
    ParameterError: If options contradict each other, or if differential privacy
      is asked for and they are not private.
  """

  in_state: ClassVar[frozenset[str]] = frozenset(
    {
      'dp_clip_norm',
      'dp_noise_multiplier',
      'dp_clip_quantile',
      'dp_clip_learning_rate',
      'dp_clients_per_round',
    }
  )

  aggregator: Literal[
    'mean', 'robust', 'median', 'trimmed_mean', 'compression', 'secure'
  ] = 'mean'
  """Aggregation of updates: a mean; robust, with TFF's zeroing and clipping;
  each coordinate's median or trimmed mean, clients counting alike (arXiv
  1803.01498); compression to 8 bits above 20,000 elements; or a secure sum,
  which clips large values.
  """

  aggregator_trim: Annotated[
    float, parameters.Range(low=0, high=0.5, open_low=True, open_high=True)
  ] = 0.2
  """beta of the trimmed mean, the share of clients left out at each end of
  every coordinate; not below the share of hostile clients."""

  aggregator_zeroing: bool = False
  """Whether to zero updates far larger than the others' (TFF's adaptive
  zeroing)."""

  aggregator_clipping: bool = False
  """Whether to clip updates to a norm that tracks the 0.8 quantile, without
  noise and without privacy (TFF's adaptive clipping)."""

  dp_clip_norm: Optional[parameters.Positive] = None
  """Norm c to which every client's update is clipped, for differential privacy;
  with adaptive clipping, the initial c."""

  dp_noise_multiplier: Optional[parameters.NonNegative] = None
  """sigma; Gaussian noise of standard deviation sigma c is added to the sum of
  the clipped updates."""

  dp_adaptive_clipping: bool = False
  """Whether c tracks a quantile of the update norms, estimated with part of the
  noise budget (Andrew et al., arXiv 1905.03871).
  """

  dp_clip_quantile: parameters.Probability = 0.5
  """Quantile tracked by an adaptive c."""

  dp_clip_learning_rate: parameters.NonNegative = 0.2
  """Learning rate of an adaptive c: the largest change of log c per round."""

  dp_clients_per_round: Optional[parameters.Count] = None
  """Number of clients by which the noised sum is divided."""

  @property
  def zeroing(self) -> bool:
    """Whether updates far larger than the others' are zeroed."""
    return self.aggregator_zeroing or self.aggregator == 'robust'

  @property
  def clipping(self) -> bool:
    """Whether updates are clipped to a quantile of the norms."""
    return self.aggregator_clipping or self.aggregator == 'robust'

  @property
  def trimmed(self) -> Optional[float]:
    """Share trimmed at each end, 1/2 for the median; `None` for means."""
    shares = {'median': 0.5, 'trimmed_mean': self.aggregator_trim}
    return shares.get(self.aggregator)

  @property
  def clip_norm(self) -> Optional[float]:
    """The norm c, initially if it adapts; `None` without clipping."""
    if self.dp_clip_norm is None and self.dp_adaptive_clipping:
      return _FIRST_ADAPTIVE_NORM
    return self.dp_clip_norm

  @property
  def private(self) -> bool:
    """Whether updates are clipped for privacy, with noise or without."""
    return self.clip_norm is not None

  @property
  def count_stddev(self) -> float:
    """Standard deviation of the noise on the count of unclipped updates."""
    if not self.dp_noise_multiplier or not self.dp_adaptive_clipping:
      return 0.0
    return 0.05 * (self.dp_clients_per_round or 0)

  @property
  def sum_noise_multiplier(self) -> float:
    """Noise multiplier of the sum of updates, in units of c.

    Under adaptive clipping a client also contributes to the count of unclipped
    updates, by 1/2. Sum and count together have the requested noise multiplier,
    so the sum alone needs slightly more.
    """
    sigma = self.dp_noise_multiplier or 0.0
    if not self.count_stddev:
      return sigma
    return (sigma**-2 - (2 * self.count_stddev) ** -2) ** -0.5

  @property
  def formula(self) -> str:
    """The aggregation as text; empty for a plain mean."""
    if not self.private:
      if self.aggregator == 'median':
        return 'Delta = the median over clients, coordinate by coordinate'
      if self.trimmed is not None:
        return (
          'Delta = the mean over clients, coordinate by coordinate, without '
          f'the {self.trimmed:g} n smallest and largest values'
        )
      parts = {
        'compression': ['8-bit quantisation'],
        'secure': [
          'clipping of values to twice their 0.95 quantile, at first to 100',
          'secure summation',
        ],
      }.get(self.aggregator, [])
      if self.clipping:
        parts = ['clipping to the 0.8 quantile of norms', *parts]
      if self.zeroing:
        parts = ['zeroing of outliers', *parts]
      return 'the mean has ' + ', then '.join(parts) if parts else ''
    # Calibration to a target may still have to decide the noise.
    sigma = f'{self.sum_noise_multiplier:g}'
    if self.dp_noise_multiplier is None:
      sigma = 'sigma'
    lines = [
      'Delta = (sum of u min(1, c / |u|) over clients + noise) / '
      f"{self.dp_clients_per_round or 'n'}, u a client's update",
      f'noise ~ N(0, ({sigma} c)^2) on every coordinate, '
      + ('c starting at ' if self.dp_adaptive_clipping else 'c = ')
      + f'{self.clip_norm:g}',
    ]
    if self.aggregator == 'secure':
      lines.append('summed by secure summation')
    if self.dp_adaptive_clipping:
      lines.append(
        f'c = c exp(-{self.dp_clip_learning_rate:g} (share of |u| <= c, with '
        f'noise, - {self.dp_clip_quantile:g}))'
      )
    return '\n'.join(lines)

  def check(self) -> None:
    usual = parameters.parameters_of(type(self))
    changed = [n for n, p in usual.items() if getattr(self, n) != p.default]
    unused = set() if self.aggregator == 'trimmed_mean' else {'aggregator_trim'}
    if self.aggregator in ROBUST:
      unused |= {'aggregator_zeroing', 'aggregator_clipping'}
    for name in unused.intersection(changed):
      raise parameters.ParameterError(
        name,
        '{} would be ignored: {aggregator} is {chosen!r}.',
        chosen=self.aggregator,
      )
    if not is_asked(vars(self)):
      for name in changed:
        if name.startswith('dp_') and name != 'dp_noise_multiplier':
          raise parameters.ParameterError(
            name,
            '{} would be ignored: without {dp_clip_norm} updates are not '
            'clipped.',
          )
      return
    sigma = self.dp_noise_multiplier or 0.0
    secure = self.aggregator == 'secure' and self.dp_adaptive_clipping
    off = '{} would be ignored: {dp_adaptive_clipping} is off.'
    bounded = (
      "{} adapts to the clients' norms without noise, which is not private: "
      'disable it or differential privacy.'
    )
    fixed = not self.dp_adaptive_clipping
    for name, applies, problem in (
      (
        'dp_noise_multiplier',
        not self.private,
        '{} is {noise:g} but updates are not clipped: noise without clipping '
        'gives no privacy; give {dp_clip_norm} or {dp_adaptive_clipping}.',
      ),
      ('dp_clip_quantile', fixed and 'dp_clip_quantile' in changed, off),
      (
        'dp_clip_learning_rate',
        fixed and 'dp_clip_learning_rate' in changed,
        off,
      ),
      ('aggregator_zeroing', self.aggregator_zeroing, bounded),
      ('aggregator_clipping', self.aggregator_clipping, bounded),
      (
        'aggregator',
        self.aggregator in ROBUST,
        '{}={chosen} depends on single clients without noise, which is not '
        'private: give {aggregator}=mean, or disable differential privacy.',
      ),
      (
        'aggregator',
        self.aggregator == 'compression',
        '8-bit quantisation ({}) can make clipped updates longer than '
        '{dp_clip_norm}: disable it or differential privacy.',
      ),
      (
        'aggregator',
        secure,
        'Secure summation ({}) needs a fixed bound on the norm of updates: '
        'give {dp_clip_norm} without {dp_adaptive_clipping}.',
      ),
      (
        'dp_clients_per_round',
        self.dp_clients_per_round is None,
        'Differential privacy needs {}, the number of clients per round.',
      ),
    ):
      if applies:
        raise parameters.ParameterError(
          name, problem, noise=sigma, chosen=self.aggregator
        )
    if self.dp_adaptive_clipping and sigma >= 2 * self.count_stddev > 0:
      raise parameters.ParameterError(
        'dp_adaptive_clipping',
        '{} with {dp_noise_multiplier} {noise:g} needs more than {least:g} '
        'clients a round, got {clients}.',
        noise=sigma,
        least=10 * sigma,
        clients=self.dp_clients_per_round,
      )


# Runs of plain means were recorded before there was another aggregation.
Aggregation.later = frozenset(parameters.parameters_of(Aggregation))


def is_asked(given: Mapping[str, Any]) -> bool:
  """Returns whether hyperparameters ask for differential privacy."""
  return bool(
    given.get('dp_clip_norm') is not None
    or given.get('dp_adaptive_clipping')
    or given.get('dp_noise_multiplier')
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget:
  """The privacy guarantee of a run.

  The unit of privacy is a client with all of its examples. The guarantee covers
  the models of all rounds and nothing else that a run writes.

  Example:

    >>> from tff_adaptive import privacy
    >>> budget = privacy.Budget(
    ...   clients=1000, clients_per_round=50, delta=1e-4, rounds=100
    ... )
    >>> round(budget.epsilon(noise_multiplier=1.0, rounds=100), 2)
    16.52
    >>> budget.noise_for(target_epsilon=4.0)
    1.802

  Attributes:
    clients: Number of all clients.
    clients_per_round: Number of clients sampled per round.
    delta: The delta at which epsilon is stated.
    rounds: Number of rounds of the whole run.
    sampling: 'fixed': every round samples exactly `clients_per_round` clients
      without replacement, as runs do; neighbouring data sets differ in one
      client's data. 'poisson': every client participates with probability
      `clients_per_round / clients`, independently; neighbouring data sets
      differ in the presence of one client. Papers usually account for the
      latter.
    accounting: 'pld' (privacy loss distributions, tight up to discretization,
      which only increases epsilon) or 'rdp' (Renyi orders, an upper bound used
      by most papers).

  Raises:
    ParameterError: If `delta` is not in (0, 1), or `clients_per_round` not in
      [1, `clients`].
  """

  clients: int
  clients_per_round: int
  delta: float
  rounds: int
  sampling: Sampling = 'fixed'
  accounting: Accounting = 'pld'

  def __post_init__(self) -> None:
    if not 0 < self.delta < 1:
      raise parameters.ParameterError(
        'dp_delta',
        '{} must be above 0 and below 1, got {delta:g}.',
        delta=self.delta,
      )
    if not 1 <= self.clients_per_round <= self.clients:
      raise parameters.ParameterError(
        'clients_per_round',
        '{} must be from 1 to {clients}, the number of clients, got {given}.',
        clients=self.clients,
        given=self.clients_per_round,
      )

  @property
  def share(self) -> float:
    """The fraction of clients sampled per round."""
    return self.clients_per_round / self.clients

  def epsilon(self, noise_multiplier: float, rounds: int) -> float:
    """Computes epsilon at `delta` after some rounds; infinite without noise."""
    if rounds == 0:
      return 0.0
    if not noise_multiplier:
      return math.inf
    if self.accounting == 'rdp':
      return self._renyi(noise_multiplier, rounds)[0]
    return max(
      0.0,
      privacy_loss.distribution(
        noise_multiplier,
        self.share,
        self.sampling,
        self._interval(noise_multiplier),
      )
      .self_compose(rounds)
      .get_epsilon_for_delta(self.delta),
    )

  def renyi_order(self, noise_multiplier: float) -> float:
    """Returns the order with the smallest RDP bound, after the whole run."""
    return self._renyi(noise_multiplier, self.rounds)[1]

  def _renyi(self, noise_multiplier: float, rounds: int) -> tuple[float, float]:
    """Computes epsilon by Renyi orders, and the order that attains it."""
    return privacy_loss.renyi_epsilon(
      self.clients,
      self.clients_per_round,
      self.sampling,
      noise_multiplier,
      rounds,
      self.delta,
    )

  def _interval(self, noise_multiplier: float) -> float:
    """Chooses the bin width of the privacy loss from the run's epsilon.

    All rounds of a run share it, so that epsilon increases steadily.
    """
    poisson = dataclasses.replace(self, sampling='poisson')
    rough, _ = poisson._renyi(noise_multiplier, self.rounds)
    per_epsilon = 1e-3 if self.sampling == 'fixed' else 2e-4
    return min(max(rough * per_epsilon, 5e-5), 5e-3)

  def noise_for(self, target_epsilon: float) -> float:
    """Finds the smallest noise multiplier that keeps the run within an epsilon.

    The result is rounded up to three decimals.

    Raises:
      ParameterError: If no noise multiplier up to 10,000 suffices.
    """
    return _calibrate(self, target_epsilon)

  def describe(self, noise_multiplier: float) -> str:
    """Describes the guarantee and its assumptions as text."""
    table = []
    for sampling in typing.get_args(Sampling):
      for accounting in typing.get_args(Accounting):
        budget = dataclasses.replace(
          self, sampling=sampling, accounting=accounting
        )
        epsilon = budget.epsilon(noise_multiplier, self.rounds)
        chosen = (sampling, accounting) == (self.sampling, self.accounting)
        order = ''
        if accounting == 'rdp' and math.isfinite(epsilon):
          order = f', order {budget.renyi_order(noise_multiplier):g}'
        table.append(
          f'  epsilon = {epsilon:.4g} by {accounting.upper()}{order}, '
          f'{_SAMPLING[sampling]}' + (' <- in metrics.csv' if chosen else '')
        )
    return '\n'.join(
      [
        f'privacy: after {self.rounds:,} rounds of {self.clients_per_round} '
        f'of {self.clients:,} clients at noise multiplier '
        f'{noise_multiplier:g}, (epsilon, delta = {self.delta:g}) for one '
        'client with all its examples:',
        *table,
        *[
          f'  Weak: a delta of {self.delta:.2g} lets one client in '
          f'{1 / self.delta:.0f} be published whole. Lower dp_delta, and '
          'train on more clients.'
        ][: self.delta > 1e-3],
        '  The guarantee covers the model; client metrics are reported '
        'without noise.',
      ]
    )


_SAMPLING = {
  'fixed': (
    'cohorts of fixed size without replacement, as sampled here; replace-one '
    'adjacency'
  ),
  'poisson': (
    'Poisson sampling of clients, as assumed in papers; add-or-remove-one '
    'adjacency'
  ),
}


def default_delta(clients: int) -> float:
  """Returns 1 / clients^1.1, below the share of one client."""
  return max(clients, 2) ** -1.1


def check_delta(delta: float, clients: int) -> None:
  """Checks a requested delta.

  Publishing all data of one client in n, chosen at random, is (0, 1 / n)
  differentially private, so a larger delta guarantees nothing.

  Args:
    delta: The delta at which epsilon is to be stated.
    clients: Number of all clients.

  Raises:
    ParameterError: If delta is above 1 / clients.
  """
  if delta > (1 + 1e-9) / clients:
    raise parameters.ParameterError(
      'dp_delta',
      '{} must be at most 1 / {clients} = {share:.4g}, the share of one of '
      'the {clients} clients, got {delta:g}: a mechanism that publishes one '
      "client's data would pass; omit it for {clients}^-1.1 = {usual:.4g}.",
      clients=clients,
      share=1 / clients,
      delta=delta,
      usual=default_delta(clients),
    )


@functools.lru_cache(maxsize=8)
def _calibrate(budget: Budget, target: float) -> float:
  """Finds the noise multiplier; see `Budget.noise_for`."""
  found = privacy_loss.smallest_noise(
    lambda noise_multiplier: budget.epsilon(noise_multiplier, budget.rounds),
    target,
  )
  if found is None:
    raise parameters.ParameterError(
      'target_epsilon',
      'No noise multiplier up to {most} keeps {budget.rounds:,} rounds of '
      '{budget.clients_per_round} of {budget.clients:,} clients within epsilon '
      '{target:g} at delta {budget.delta:g}.',
      most=privacy_loss.MOST_NOISE,
      budget=budget,
      target=target,
    )
  return found


def refuse_bounds(values: Mapping[str, Any], what: str, why: str) -> None:
  """Raises `ParameterError` if sums leave out or clip updates.

  Args:
    values: A method's hyperparameters.
    what: What needs updates as they are.
    why: Why it does.
  """
  # Values of a secure sum are clipped to bounds that adapt, but not where the
  # norm of updates is bounded already.
  secure = values['aggregator'] == 'secure' and not is_asked(values)
  for name, given in {
    'aggregator': values['aggregator'] in ROBUST or secure,
    'aggregator_zeroing': values['aggregator_zeroing'],
    'aggregator_clipping': values['aggregator_clipping'],
  }.items():
    if given:
      raise parameters.ParameterError(
        name, f'leave {{}} out with {what}: {why}.'
      )


def check(configuration: Any, weighting_given: bool) -> dict[str, Any]:
  """Checks a method's aggregation options against its other options.

  Args:
    configuration: An `algorithms.configuration.MethodConfiguration`.
    weighting_given: Whether `client_weighting` was given explicitly.

  Returns:
    Values to change: under differential privacy, and for a median or a trimmed
    mean, `client_weighting` becomes 'uniform' unless it was given.

  Raises:
    ParameterError: If an option would be ignored or is not private.
  """
  if configuration.model_aggregator is not None:
    for name, parameter in parameters.parameters_of(Aggregation).items():
      if configuration.values[name] != parameter.default:
        raise parameters.ParameterError(
          name, '{} would be ignored: {model_aggregator} is given.'
        )
  hidden = (
    configuration.aggregation.private
    or configuration.values['aggregator'] == 'secure'
  )
  for name in ('record_drift', 'record_step_sizes'):
    if hidden and configuration.values.get(name):
      raise parameters.ParameterError(
        name,
        '{} cannot be combined with differential privacy or secure summation: '
        'it records figures of individual updates, which these hide; give one '
        'of them.',
      )
  if configuration.aggregation.trimmed is not None:
    return _uniform(configuration, weighting_given)
  if not configuration.aggregation.private:
    return {}
  if (
    configuration.method.unnoised
    and configuration.values.get('count') != 'round'
  ):
    raise parameters.ParameterError(
      'dp_clip_norm',
      'The algorithm {method} does not support differential privacy: besides '
      'their update, its clients send {unnoised} without noise.',
      method=configuration.method.name,
      unnoised=configuration.method.unnoised,
    )
  return _uniform(configuration, weighting_given)


def _uniform(configuration: Any, weighting_given: bool) -> dict[str, Any]:
  """Sets uniform client weights, unless others were asked for."""
  given = configuration.values['client_weighting']
  if not weighting_given or given == 'uniform':
    return {'client_weighting': 'uniform'}
  if configuration.aggregation.private:
    raise parameters.ParameterError(
      'client_weighting',
      "{} must be 'uniform' under differential privacy, got {given!r}: client "
      'weights must not depend on the data.',
      given=given,
    )
  raise parameters.ParameterError(
    'client_weighting',
    '{}={given} would be ignored: with {aggregator}={aggregator_name} all '
    'clients count alike.',
    given=given,
    aggregator_name=configuration.values['aggregator'],
  )
