"""Weights of clients in the mean of their updates."""

from typing import Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import parameters
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes.local import local_model

# The metric with which sequence models count tokens, padding excluded.
_TOKENS_METRIC = 'num_tokens'


def read(
  given: Union[str, tff.learning.ClientWeighting],
  metric_names: Optional[tuple[str, ...]],
  exchange: exchange_lib.Exchange,
) -> str:
  """Returns the name of a client weighting.

  Args:
    given: 'examples', 'uniform', 'tokens' or a `tff.learning.ClientWeighting`.
    metric_names: The model's metrics; `None` if unknown.
    exchange: The method's exchange.

  Raises:
    ValueError: If it is none of these.
    ParameterError: If it is 'tokens' for a model without a metric that counts
      them.
  """
  words = {
    tff.learning.ClientWeighting.NUM_EXAMPLES: 'examples',
    tff.learning.ClientWeighting.UNIFORM: 'uniform',
  }
  word = given if isinstance(given, str) else words.get(given, given)
  if word not in ('examples', 'uniform', 'tokens'):
    raise ValueError(
      "`client_weighting` must be 'examples', 'uniform', 'tokens' or a "
      f'tff.learning.ClientWeighting, got {given!r}.'
    )
  if word == 'tokens':
    if _TOKENS_METRIC not in (metric_names or ()):
      raise parameters.ParameterError(
        'client_weighting',
        f"{{}}='tokens' needs a model with the metric {_TOKENS_METRIC}, as in "
        'the tasks that predict words and characters.',
      )
    if exchange.full_gradient_pass is not None:
      raise parameters.ParameterError(
        'client_weighting',
        f"{{}}='tokens' cannot be combined with {type(exchange).__name__}: its "
        'mean gradient is computed before tokens are counted.',
      )
  return word


def weight(
  word: str,
  num_examples: tf.Tensor,
  local: local_model.LocalModel[local_model.Carry],
  carry: local_model.Carry,
) -> tf.Tensor:
  """Computes a client's weight, float32 scalar.

  Args:
    word: A result of `read`.
    num_examples: Examples iterated, int64 scalar.
    local: The client's `LocalModel`.
    carry: The model's carry after these examples.
  """
  if word == 'tokens':
    counted = local.metrics(carry, discard=False)[_TOKENS_METRIC]
    return tf.cast(tf.nest.flatten(counted)[0], tf.float32)
  if word == 'examples':
    return tf.cast(num_examples, tf.float32)
  return tf.constant(1.0)
