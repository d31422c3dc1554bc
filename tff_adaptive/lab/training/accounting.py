"""Privacy accounting of a run: noise multiplier, and epsilon by round."""

import dataclasses
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.privacy import mechanism as privacy


@dataclasses.dataclass(frozen=True)
class Ledger:
  """The privacy accountant of a run.

  Attributes:
    budget: The privacy budget and how it is accounted.
    noise_multiplier: sigma, as given or as calibrated to `target`.
    target: The epsilon that sigma was calibrated to; `None` if it was given.
  """

  budget: privacy.Budget
  noise_multiplier: float
  target: Optional[float]

  def columns(self, round_number: int) -> dict[str, float]:
    """Computes a round's columns of metrics.csv; empty without noise."""
    if not self.noise_multiplier:
      return {}
    epsilon = self.budget.epsilon(self.noise_multiplier, round_number)
    return {
      'privacy/epsilon': float(f'{epsilon:.6g}'),
      'privacy/delta': float(f'{self.budget.delta:.6g}'),
    }

  def describe(self) -> str:
    """Describes the guarantee after all rounds, as text."""
    if not self.noise_multiplier:
      return (
        'privacy: updates are clipped but no noise is added, so epsilon is '
        'infinite; give --dp_noise_multiplier or --target_epsilon.'
      )
    text = self.budget.describe(self.noise_multiplier)
    if self.target is not None:
      text += (
        f'\n  The noise multiplier {self.noise_multiplier:g} was found for '
        f'--target_epsilon={self.target:g}.'
      )
    return text


def open_ledger(
  settings: settings_lib.Settings, clients: int
) -> Optional[Ledger]:
  """Builds a run's privacy accountant; `None` for a run without privacy.

  Args:
    settings: The run's settings.
    clients: Number of training clients of its task.

  Raises:
    SettingsError: If no noise multiplier meets the target epsilon, there are
      fewer clients than a cohort needs, or delta exceeds 1 / clients.
  """
  if not settings.configuration.private:
    return None
  delta = settings.dp_delta
  try:
    if delta is not None:
      privacy.check_delta(delta, clients)
    budget = privacy.Budget(
      clients=clients,
      clients_per_round=settings.clients_per_round,
      delta=privacy.default_delta(clients) if delta is None else delta,
      rounds=settings.total_rounds,
      sampling=settings.dp_sampling,
      accounting=settings.dp_accounting,
    )
    noise = settings.configuration.values['dp_noise_multiplier'] or 0.0
    if settings.target_epsilon is not None:
      noise = budget.noise_for(settings.target_epsilon)
  except parameters.ParameterError as e:
    raise options.refusal(e) from e
  return Ledger(budget, noise, settings.target_epsilon)


def with_noise(
  configuration: configuration_lib.MethodConfiguration, ledger: Optional[Ledger]
) -> configuration_lib.MethodConfiguration:
  """Returns the configuration with the ledger's noise multiplier."""
  if ledger is None:
    return configuration
  return configuration.with_values(dp_noise_multiplier=ledger.noise_multiplier)
