"""Names and properties of metrics."""

import math
from collections.abc import Mapping
from typing import Any
from typing import Optional

# The column of metrics.csv with the virtual time at the end of a round.
VIRTUAL_SECONDS = 'virtual/seconds'
_NOT_QUALITY = frozenset({'loss', 'num_examples', 'num_batches', 'num_tokens'})


def main_metric(metrics: Mapping[str, Any]) -> Optional[str]:
  """Returns the first metric that measures quality, besides the loss."""
  return next((name for name in metrics if name not in _NOT_QUALITY), None)


def short(name: str) -> str:
  """Returns a metric's name without Keras' prefixes."""
  for prefix in ('sparse_categorical_', 'categorical_', 'binary_'):
    name = name.removeprefix(prefix)
  return name.replace('_', ' ')


# Parts of the names of metrics that are better when lower. All of these metrics
# are nonnegative.
_LESS_IS_BETTER = ('loss', 'error', 'distance', 'perplexity')
_SHARES = ('accuracy', 'recall', 'precision', 'auc')


def higher_is_better(name: Optional[str]) -> bool:
  """Returns whether a higher metric is better; `None` stands for the loss."""
  return name is not None and not any(word in name for word in _LESS_IS_BETTER)


def is_share(name: str) -> bool:
  """Returns whether a metric is a fraction between 0 and 1."""
  return higher_is_better(name) and any(word in name for word in _SHARES)


def bounds(name: str) -> tuple[float, float]:
  """Returns the smallest and the largest possible value of a metric."""
  if not higher_is_better(name):
    return 0.0, math.inf
  if is_share(name):
    return 0.0, 1.0
  return -math.inf, math.inf
