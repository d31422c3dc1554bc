"""A run's privacy: its noise, and the epsilon of every round."""

import dataclasses
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.privacy import mechanism as privacy


@dataclasses.dataclass(frozen=True)
class Ledger:
  """The account of what a private run has spent.

  Attributes:
    budget: The privacy budget and how it is accounted.
    noise_multiplier: sigma, as given or as found for a target.
    target: The epsilon that sigma was found for, if it was.
  """

  budget: privacy.Budget
  noise_multiplier: float
  target: Optional[float]

  def columns(self, round_number: int) -> dict[str, float]:
    """Computes the columns of metrics.csv after a round; none without noise."""
    if not self.noise_multiplier:
      return {}
    epsilon = self.budget.epsilon(self.noise_multiplier, round_number)
    return {
      'privacy/epsilon': float(f'{epsilon:.6g}'),
      'privacy/delta': float(f'{self.budget.delta:.6g}'),
    }

  def describe(self) -> str:
    """Describes the guarantee, before training."""
    if not self.noise_multiplier:
      return (
        'privacy: updates are clipped but get no noise: epsilon is infinite; '
        'give --dp_noise_multiplier or --target_epsilon.'
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
  """Opens the account of a run's privacy; `None` for a run without.

  Args:
    settings: The run.
    clients: Training clients of its task.

  Raises:
    SettingsError: If no noise keeps within the target, there are fewer
      clients than a round takes, or delta is above the share of one client.
  """
  if not settings.plan.private:
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
    noise = settings.plan.values['dp_noise_multiplier'] or 0.0
    if settings.target_epsilon is not None:
      noise = budget.noise_for(settings.target_epsilon)
  except parameters.ParameterError as e:
    raise options.refusal(e) from e
  return Ledger(budget, noise, settings.target_epsilon)


def with_noise(plan: plan_lib.Plan, ledger: Optional[Ledger]) -> plan_lib.Plan:
  """Returns the plan with the noise that a target asks for."""
  if ledger is None:
    return plan
  return plan.with_values(dp_noise_multiplier=ledger.noise_multiplier)
