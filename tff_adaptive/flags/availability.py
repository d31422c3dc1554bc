"""The flags that say how fast clients are, and which of them answer."""

from collections.abc import Collection
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib

_TIME = ('client_seconds_per_example', 'client_behaviour')
# Without all of these every client answers, and at once.
ABSENCE = (*_TIME, 'client_dropout')
# Each needs one of those behind it.
NEEDS = {
  'client_speed_spread': ('client_seconds_per_example',),
  'client_speed_jitter': _TIME,
  'deadline': _TIME,
  'over_selection': ABSENCE,
  'concurrency': ('asynchronous',),
  'staleness': ('asynchronous',),
}
# All flags here, of which none is of use to a method without clients.
FLAGS = (*ABSENCE, *NEEDS, 'asynchronous')


def resolve(
  general: dict[str, Any], plan: plan_lib.Plan, given: Collection[str]
) -> None:
  """Checks the flags, and fills in what was not given.

  Args:
    general: General flags by name; changed in place.
    plan: The run's.
    given: Those of them that were given.

  Raises:
    ParameterError: If one would be ignored, or differential privacy does not
      cover what it asks for.
  """
  for name in ('over_selection', 'deadline'):
    if plan.private and name in given:
      raise parameters.ParameterError(
        name,
        '{} does not go with differential privacy: who answers in time depends '
        'on how many examples clients have, and cohorts must not depend on the '
        'data; leave it out.',
      )
  if general['asynchronous']:
    _resolve_asynchronous(general, plan, given)


def _resolve_asynchronous(
  general: dict[str, Any], plan: plan_lib.Plan, given: Collection[str]
) -> None:
  """Checks the flags of an asynchronous run; fills in its defaults."""
  if not {*_TIME} & {*given}:
    raise parameters.ParameterError(
      'asynchronous',
      '{} needs clients that take time: give {client_seconds_per_example} or '
      '{client_behaviour}.',
    )
  if 'over_selection' in given:
    raise parameters.ParameterError(
      'over_selection',
      '{}={given:g} would be ignored: with {asynchronous} the server takes the '
      'first answers anyway; {concurrency} says how many clients train.',
      given=general['over_selection'],
    )
  if plan.private:
    raise parameters.ParameterError(
      'asynchronous',
      '{} does not go with differential privacy: which updates come together '
      'depends on how many examples clients have, and cohorts must not depend '
      'on the data; leave it out.',
    )
  if general['concurrency'] is None:
    general['concurrency'] = general['clients_per_round']
  if general['staleness'] is None:
    general['staleness'] = 'polynomial'
