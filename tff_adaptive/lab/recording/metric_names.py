"""Names and properties of metrics.

Whether a metric is better when higher or lower is never guessed from parts of
its name. It is what the user says (--metric_direction), what the metric's class
is known for, or what its exact name is known for: Keras' own names, the few of
this project's tasks, and the usual abbreviations.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive import parameters

# The column of metrics.csv with the virtual time at the end of a round.
VIRTUAL_SECONDS = 'virtual/seconds'
_NOT_QUALITY = frozenset({'loss', 'num_examples', 'num_batches', 'num_tokens'})

# Better when higher, and fractions between 0 and 1.
_SHARES = frozenset(
  {
    'acc',
    'accuracy',
    'auc',
    'binary_accuracy',
    'binary_io_u',
    'categorical_accuracy',
    'f1_score',
    'fbeta_score',
    'io_u',
    'mean_io_u',
    'one_hot_io_u',
    'one_hot_mean_io_u',
    'precision',
    'precision_at_recall',
    'recall',
    'recall_at_precision',
    'sensitivity_at_specificity',
    'sparse_categorical_accuracy',
    'sparse_top_k_categorical_accuracy',
    'specificity_at_sensitivity',
    'top_k_categorical_accuracy',
    'token_accuracy',
    'accuracy_without_special_tokens',
    'accuracy_without_unknown_words',
    'recall_at_5',
  }
)
_HIGHER = _SHARES | frozenset(
  {
    'concordance_correlation',
    'cosine_similarity',
    'pearson_correlation',
    'r2_score',
    'true_negatives',
    'true_positives',
  }
)
_LOWER = frozenset(
  {
    'binary_crossentropy',
    'binary_focal_crossentropy',
    'brier_score',
    'categorical_crossentropy',
    'categorical_focal_crossentropy',
    'categorical_hinge',
    'cross_entropy',
    'crossentropy',
    'distance',
    'false_negatives',
    'false_positives',
    'hinge',
    'kl_divergence',
    'kld',
    'kullback_leibler_divergence',
    'log_cosh',
    'log_cosh_error',
    'logcosh',
    'loss',
    'mae',
    'mape',
    'mean_absolute_error',
    'mean_absolute_percentage_error',
    'mean_relative_error',
    'mean_squared_error',
    'mean_squared_logarithmic_error',
    'mse',
    'msle',
    'negative_log_likelihood',
    'nll',
    'perplexity',
    'poisson',
    'rmse',
    'root_mean_squared_error',
    'sparse_categorical_crossentropy',
    'squared_hinge',
  }
)

# Keras' names of metrics are those of their classes, in snake case.
_OF_CLASS = {
  name.replace('_', ''): name in _HIGHER for name in _HIGHER | _LOWER
}

DIRECTION = parameters.Parameter(
  'metric_direction',
  str,
  None,
  'Whether metrics are better when higher or lower, NAME:max or NAME:min, '
  "several separated by commas. Needed for metrics that are not Keras' own and "
  'whose runs do not say it.',
)


def main_metric(metrics: Mapping[str, Any]) -> Optional[str]:
  """Returns the first metric that measures quality, besides the loss."""
  return next((name for name in metrics if name not in _NOT_QUALITY), None)


def short(name: str) -> str:
  """Returns a metric's name without Keras' prefixes."""
  for prefix in ('sparse_categorical_', 'categorical_', 'binary_'):
    # The rest of a loss' name alone would say less than the whole.
    if not name.endswith(('crossentropy', 'hinge', 'io_u')):
      name = name.removeprefix(prefix)
  return name.replace('_', ' ')


def scalars(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns metrics with one entry per number: 'f1_score_0', 'f1_score_1'."""
  found: dict[str, Any] = {}
  for name, value in values.items():
    array = np.asarray(value)
    for place in np.ndindex(array.shape):
      found['_'.join([name, *map(str, place)])] = array[place]
  return found


def _words_of(metric: str) -> tuple[str, str]:
  """Returns a metric's name, and the same without numbers.

  Keras numbers its default names, 'precision_1', and values by class have a
  column each, 'f1_score_1_0'.
  """
  return metric, re.sub(r'(_\d+)+$', '', metric)


def _known(name: str) -> Optional[bool]:
  """Returns whether higher is better, by a name without a group."""
  for word in _words_of(name):
    if word in _HIGHER:
      return True
    if word in _LOWER:
      return False
  return None


def higher_is_better(
  name: Optional[str], given: Optional[Mapping[str, bool]] = None
) -> Optional[bool]:
  """Returns whether a higher metric is better.

  Args:
    name: A metric, or a column such as 'validation/accuracy'; `None` for the
      loss.
    given: Directions that are known otherwise, by metric; see `directions`.

  Returns:
    The direction; `None` if it is not known.
  """
  if name is None:
    return False
  metric = name.rpartition('/')[2]
  for word in (name, *_words_of(metric)):
    if given and word in given:
      return given[word]
  return _known(metric)


class UnknownDirectionError(errors.SettingsError):
  """Raised if a metric is compared whose direction is not known."""


def require_direction(
  name: Optional[str], given: Optional[Mapping[str, bool]] = None
) -> bool:
  """Returns whether a higher metric is better; see `higher_is_better`.

  Raises:
    UnknownDirectionError: If it is not known.
  """
  found = higher_is_better(name, given)
  if found is None:
    metric = str(name).rpartition('/')[2]
    raise UnknownDirectionError(
      f'Whether {metric} is better when higher or lower is not known; say so '
      f'with --metric_direction={metric}:max or --metric_direction={metric}:'
      'min.'
    )
  return found


def direction_of_class(metric: Any) -> Optional[bool]:
  """Returns whether a higher value of a Keras metric is better.

  Args:
    metric: An object of one of Keras' metric classes or of their subclasses, of
      Keras 2 or 3; or of `MeanMetricWrapper` around one of Keras' functions.

  Returns:
    The direction; `None` if none of its classes tells it.
  """
  for kind in type(metric).__mro__:
    if kind.__module__.partition('.')[0] in ('keras', 'tf_keras'):
      found = _OF_CLASS.get(kind.__name__.lower())
      if found is not None:
        return found
  function = getattr(metric, '_fn', None)
  return _known(getattr(function, '__name__', ''))


def parse_directions(text: Optional[str]) -> dict[str, bool]:
  """Parses --metric_direction.

  Raises:
    ParameterError: If it is not NAME:max or NAME:min, separated by commas.
  """
  found: dict[str, bool] = {}
  for part in [] if text is None else text.split(','):
    name, _, word = part.strip().rpartition(':')
    if not name or word not in ('max', 'min'):
      raise parameters.ParameterError(
        'metric_direction',
        '{} must be NAME:max or NAME:min, several separated by commas, got '
        '{given!r}.',
        given=text,
      )
    found[name] = word == 'max'
  return found


def as_words(directions: Mapping[str, bool]) -> dict[str, str]:
  """Converts directions to 'max' and 'min', as hparams.json stores them."""
  return {n: 'max' if higher else 'min' for n, higher in directions.items()}


def merge_directions(*sources: Any) -> dict[str, bool]:
  """Merges what is known about directions of metrics; later sources win.

  Args:
    *sources: Each the text of --metric_direction, the words in hparams.json
      (see `as_words`; other entries are ignored), or whether higher is better
      by metric; `None` for nothing.
  """
  found: dict[str, bool] = {}
  kinds = {'max': True, 'min': False, True: True, False: False}
  for source in sources:
    if isinstance(source, str):
      found |= parse_directions(source)
    elif isinstance(source, Mapping):
      known = ((n, w) for n, w in source.items() if isinstance(w, (str, bool)))
      found |= {str(n): kinds[w] for n, w in known if w in kinds}
  return found


def is_share(name: str) -> bool:
  """Returns whether a metric is a fraction between 0 and 1."""
  return any(word in _SHARES for word in _words_of(name.rpartition('/')[2]))


def bounds(name: str) -> tuple[float, float]:
  """Returns the smallest and the largest possible value of a metric."""
  if is_share(name):
    return 0.0, 1.0
  return (0.0 if higher_is_better(name) is False else -math.inf), math.inf
