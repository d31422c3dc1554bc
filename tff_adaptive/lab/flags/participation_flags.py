"""Flags of client speed, links, dropouts and participation."""

from collections.abc import Collection
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib

_COMPUTING = (
  'client_seconds_per_example',
  'client_seconds_per_step',
  'client_devices',
)
_LINKS = ('client_mbit_down', 'client_mbit_up', 'client_latency')
_TIME = (*_COMPUTING, *_LINKS)
# If none of these is given, every client answers immediately.
ABSENCE = (*_TIME, 'client_dropout')
# Each flag requires at least one of the listed flags.
NEEDS = {
  'client_speed_spread': _COMPUTING,
  'deadline': _TIME,
  'over_selection': ABSENCE,
  'concurrency': ('asynchronous',),
  'staleness': ('asynchronous',),
}
# All flags of this module, refused for methods without clients.
FLAGS = (*ABSENCE, *NEEDS, 'asynchronous')


def resolve(
  general: dict[str, Any], plan: plan_lib.Plan, given: Collection[str]
) -> None:
  """Checks the flags and fills in defaults.

  Args:
    general: General flags by name; updated in place.
    plan: The run's plan.
    given: Names of the general flags that were given.

  Raises:
    ParameterError: If a flag would be ignored, or is not covered by
      differential privacy.
  """
  for name in ('over_selection', 'deadline'):
    if plan.private and name in given:
      raise parameters.ParameterError(
        name,
        '{} cannot be combined with differential privacy: which clients '
        'answer in time depends on their numbers of examples, and cohorts '
        'must not depend on the data; omit it.',
      )
  other = {'client_seconds_per_step', 'client_devices'} & {*given}
  if 'client_seconds_per_example' in given and other:
    raise parameters.ParameterError(
      'client_seconds_per_example',
      '{} and {other} both set the speed of clients; give one of them.',
      other='{' + min(other) + '}',
    )
  if general['asynchronous']:
    _resolve_asynchronous(general, plan, given)


def _resolve_asynchronous(
  general: dict[str, Any], plan: plan_lib.Plan, given: Collection[str]
) -> None:
  """Checks the flags of an asynchronous run and fills in defaults."""
  if not {*_TIME} & {*given}:
    raise parameters.ParameterError(
      'asynchronous',
      '{} needs clients with a modelled duration: give '
      '{client_seconds_per_example}, {client_seconds_per_step} '
      'or {client_devices}.',
    )
  if 'over_selection' in given:
    raise parameters.ParameterError(
      'over_selection',
      '{}={given:g} would be ignored: with {asynchronous} the server always '
      'uses the first answers; {concurrency} sets the number of clients in '
      'training.',
      given=general['over_selection'],
    )
  own = plan.build('own') or plan.method.options()
  if plan.method.needs_one_version(own):
    raise parameters.ParameterError(
      'asynchronous',
      '{} cannot be combined with {algorithm}={method}: its server aggregates '
      'measurements at one model, and asynchronous clients start from '
      'different models.',
      method=plan.method.name,
    )
  if plan.private:
    raise parameters.ParameterError(
      'asynchronous',
      '{} cannot be combined with differential privacy: which updates are '
      "aggregated depends on the clients' numbers of examples, and cohorts "
      'must not depend on the data; omit it.',
    )
  if general['concurrency'] is None:
    general['concurrency'] = general['clients_per_round']
  if general['staleness'] is None:
    general['staleness'] = 'polynomial'
