"""The flags that say how fast clients are, and which of them answer."""

from collections.abc import Sequence
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib

_TIME = ('client_seconds_per_example', 'client_behaviour')
# Without all of these every client answers, and at once.
ABSENCE = (*_TIME, 'client_dropout')
# Each needs one of those behind it.
_NEEDS = {
  'client_speed_spread': ('client_seconds_per_example',),
  'client_speed_jitter': _TIME,
  'deadline': _TIME,
  'over_selection': ABSENCE,
}
_OF_ASYNCHRONOUS = ('concurrency', 'staleness')
# Names of all flags here.
FLAGS = (*ABSENCE, *_NEEDS, 'asynchronous', *_OF_ASYNCHRONOUS)


def resolve(general: dict[str, Any], plan: plan_lib.Plan) -> None:
  """Checks the flags, and fills in what was not given.

  Args:
    general: General flags by name; changed in place.
    plan: The run's.

  Raises:
    ParameterError: If one would be ignored, or differential privacy does not
      cover what it asks for.
  """
  given = [name for name in FLAGS if general[name] not in (None, False)]
  if given and not plan.method.has_clients:
    raise parameters.ParameterError(
      given[0],
      '{} would be ignored: {algorithm}={method} has no clients.',
      method=plan.method.name,
    )
  for name, needed in _NEEDS.items():
    if name in given and not {*needed} & {*given}:
      raise parameters.ParameterError(
        name,
        f'{{}}={{given:g}} would be ignored without '
        f'{" or ".join(f"{{{other}}}" for other in needed)}.',
        given=general[name],
      )
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
  for name in _OF_ASYNCHRONOUS:
    if name in given and not general['asynchronous']:
      raise parameters.ParameterError(
        name,
        '{}={given} would be ignored without {asynchronous}.',
        given=general[name],
      )


def _resolve_asynchronous(
  general: dict[str, Any], plan: plan_lib.Plan, given: Sequence[str]
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
