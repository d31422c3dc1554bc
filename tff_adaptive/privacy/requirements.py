"""Requirements of differential privacy on the rest of a plan."""

from typing import Any

from tff_adaptive import parameters
from tff_adaptive.privacy import mechanism


def check(plan: Any, weighting_given: bool) -> dict[str, Any]:
  """Checks a plan's aggregation options against the rest of the plan.

  Args:
    plan: An `algorithms.plan.Plan`.
    weighting_given: Whether `client_weighting` was given explicitly.

  Returns:
    Values to change: under differential privacy, and for a median or a trimmed
    mean, `client_weighting` becomes 'uniform' unless it was given.

  Raises:
    ParameterError: If an option would be ignored or is not private.
  """
  if plan.model_aggregator is not None:
    for name, parameter in parameters.parameters_of(
      mechanism.Aggregation
    ).items():
      if plan.values[name] != parameter.default:
        raise parameters.ParameterError(
          name, '{} would be ignored: {model_aggregator} is given.'
        )
  hidden = plan.aggregation.private or plan.values['aggregator'] == 'secure'
  if hidden and plan.values['record_drift']:
    raise parameters.ParameterError(
      'record_drift',
      '{} cannot be combined with differential privacy or secure summation: '
      'it measures individual updates, which these hide; give one of them.',
    )
  if plan.aggregation.trimmed is not None:
    return _uniform(plan, weighting_given)
  if not plan.aggregation.private:
    return {}
  if plan.method.unnoised and plan.values.get('count') != 'round':
    raise parameters.ParameterError(
      'dp_clip_norm',
      'The algorithm {method} does not support differential privacy: besides '
      'their update, its clients send {unnoised} without noise.',
      method=plan.method.name,
      unnoised=plan.method.unnoised,
    )
  if plan.values.get('record_step_sizes'):
    raise parameters.ParameterError(
      'record_step_sizes',
      '{} cannot be combined with differential privacy: it records figures of '
      'individual clients without noise; give one of them.',
    )
  return _uniform(plan, weighting_given)


def _uniform(plan: Any, weighting_given: bool) -> dict[str, Any]:
  """Sets uniform client weights, unless others were asked for."""
  given = plan.values['client_weighting']
  if not weighting_given or given == 'uniform':
    return {'client_weighting': 'uniform'}
  if plan.aggregation.private:
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
    aggregator_name=plan.values['aggregator'],
  )
