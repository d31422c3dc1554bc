"""What differential privacy asks of the rest of a method's plan."""

from collections.abc import Mapping
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.privacy import mechanism


def check(
  values: Mapping[str, Any],
  given: Mapping[str, Any],
  aggregation: mechanism.Aggregation,
  method: Any,
  model_aggregator: Any,
) -> dict[str, Any]:
  """Checks how updates are aggregated against the rest of a method's plan.

  Args:
    values: All hyperparameters of the method.
    given: Those that were given.
    aggregation: What they say of the aggregation.
    method: The method's row.
    model_aggregator: An aggregator in place of it, or `None`.

  Returns:
    Values to change: under differential privacy clients weigh the same unless
    asked otherwise, which is refused.

  Raises:
    ParameterError: If something would be ignored, or not be private.
  """
  if model_aggregator is not None:
    for name, parameter in parameters.signature(mechanism.SIGNATURE).items():
      if values[name] != parameter.default:
        raise parameters.ParameterError(
          name, '{} would be ignored: {model_aggregator} is given.'
        )
  if not aggregation.private:
    return {}
  if method.unnoised and values.get('count') != 'round':
    raise parameters.ParameterError(
      'dp_clip_norm',
      'The algorithm {method} has no differential privacy: its clients send '
      '{unnoised} beside their update, to which no noise is added.',
      method=method.name,
      unnoised=method.unnoised,
    )
  if values.get('record_step_sizes'):
    raise parameters.ParameterError(
      'record_step_sizes',
      '{} does not go with differential privacy: it writes down what each '
      'client did, to which no noise is added; give one of them.',
    )
  if 'client_weighting' not in given:
    return {'client_weighting': 'uniform'}
  if values['client_weighting'] != 'uniform':
    raise parameters.ParameterError(
      'client_weighting',
      "{} must be 'uniform' under differential privacy, got {given!r}: how "
      'much a client counts must not depend on its data.',
      given=values['client_weighting'],
    )
  return {}
