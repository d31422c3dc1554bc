"""Names of metrics."""

import keras
import pytest
import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.recording import metric_names


def test_main_metric():
  assert metric_names.main_metric({'loss': 1, 'num_examples': 2}) is None
  found = metric_names.main_metric({'num_tokens': 1, 'accuracy': 2, 'top': 3})
  assert found == 'accuracy'


def test_short():
  assert metric_names.short('sparse_categorical_accuracy') == 'accuracy'
  assert metric_names.short('top_5_accuracy') == 'top 5 accuracy'


# Sums and means of anything, and bases of the others.
_OF_NO_DIRECTION = {'Mean', 'MeanMetricWrapper', 'MeanTensor', 'Metric', 'Sum'}
# Metrics that need arguments.
_ARGUMENTS = {
  'IoU': {'num_classes': 2, 'target_class_ids': [0]},
  'BinaryIoU': {'target_class_ids': [0, 1]},
  'MeanIoU': {'num_classes': 2},
  'OneHotIoU': {'num_classes': 2, 'target_class_ids': [0]},
  'OneHotMeanIoU': {'num_classes': 2},
  'MeanRelativeError': {'normalizer': [1.0]},
  'PrecisionAtRecall': {'recall': 0.5},
  'RecallAtPrecision': {'precision': 0.5},
  'SensitivityAtSpecificity': {'specificity': 0.5},
  'SpecificityAtSensitivity': {'sensitivity': 0.5},
}
# All of Keras' metrics that fall while a model improves.
_LOWER = {
  *('BinaryCrossentropy', 'CategoricalCrossentropy', 'CategoricalHinge'),
  *('FalseNegatives', 'FalsePositives', 'Hinge', 'KLDivergence'),
  *('LogCoshError', 'MeanAbsoluteError', 'MeanAbsolutePercentageError'),
  *('MeanRelativeError', 'MeanSquaredError', 'MeanSquaredLogarithmicError'),
  *('Poisson', 'RootMeanSquaredError', 'SparseCategoricalCrossentropy'),
  'SquaredHinge',
}


def _classes_of(metrics):
  found = vars(metrics).values()
  kinds = [k for k in found if isinstance(k, type)]
  return {k.__name__: k for k in kinds if issubclass(k, metrics.Metric)}


@pytest.mark.parametrize('version', [2, 3])
def test_every_metric_of_keras_has_its_direction_by_class_and_by_name(version):
  metrics = tf.keras.metrics if version == 2 else keras.metrics
  classes = _classes_of(metrics)
  assert len(classes) > 30
  for name, kind in classes.items():
    if name not in _OF_NO_DIRECTION:
      made = kind(**_ARGUMENTS.get(name, {}))
      higher = name not in _LOWER
      assert metric_names.direction_of_class(made) is higher, name
      assert metric_names.higher_is_better(made.name) is higher, name
      numbered = f'validation/{made.name}_12'
      assert metric_names.higher_is_better(numbered) is higher, name


@pytest.mark.parametrize('version', [2, 3])
def test_a_class_tells_the_direction_whatever_its_name(version):
  metrics = tf.keras.metrics if version == 2 else keras.metrics

  class Mine(metrics.MeanAbsoluteError):
    pass

  class Own(metrics.Mean):
    pass

  assert metric_names.direction_of_class(Mine(name='accuracy')) is False
  assert metric_names.direction_of_class(metrics.Recall(name='error')) is True
  assert metric_names.direction_of_class(Own(name='precision')) is None
  wrapped = metrics.MeanMetricWrapper(metrics.mean_squared_error, name='x')
  assert metric_names.direction_of_class(wrapped) is False


@pytest.mark.parametrize(
  'name, higher',
  [
    (None, False),
    ('mae', False),
    ('test/nll', False),
    ('brier_score', False),
    ('recall_at_5', True),
    ('distance', False),
    # No part of a name is a hint.
    ('terrorism_recall', None),
    ('error_free_share', None),
    ('lossless', None),
    ('distance_kept', None),
  ],
)
def test_a_name_is_known_or_it_is_not(name, higher):
  assert metric_names.higher_is_better(name) is higher
  if higher is None:
    with pytest.raises(errors.SettingsError, match=f'={name}:max or .*{name}:'):
      metric_names.require_direction(name)


def test_what_the_user_says_comes_first():
  given = metric_names.parse_directions('mae:max, my:score:min')
  assert given == {'mae': True, 'my:score': False}
  assert metric_names.higher_is_better('validation/mae', given) is True
  assert metric_names.higher_is_better('validation/mae_1_0', given) is True
  assert metric_names.higher_is_better('validation/f1_score_1_0') is True
  assert metric_names.is_share('validation/f1_score_1_0')
  assert metric_names.merge_directions(metric_names.as_words(given)) == given


@pytest.mark.parametrize(
  'text', ['', 'mae', 'mae:', ':max', 'mae:up', 'a:min,']
)
def test_directions_that_cannot_be_parsed(text):
  with pytest.raises(parameters.ParameterError, match='NAME:max or NAME:min'):
    metric_names.parse_directions(text)


@pytest.mark.parametrize(
  'metric, bounds',
  [
    ('sparse_categorical_accuracy', (0, 1)),
    ('recall_at_5', (0, 1)),
    ('loss', (0, float('inf'))),
    ('mean_squared_error', (0, float('inf'))),
    ('reward', (-float('inf'), float('inf'))),
  ],
)
def test_bounds(metric, bounds):
  assert metric_names.bounds(metric) == bounds
