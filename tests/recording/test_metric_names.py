"""Names of metrics."""

import pytest

from tff_adaptive.lab.recording import metric_names


def test_main_metric():
  assert metric_names.main_metric({'loss': 1, 'num_examples': 2}) is None
  found = metric_names.main_metric({'num_tokens': 1, 'accuracy': 2, 'top': 3})
  assert found == 'accuracy'


def test_short():
  assert metric_names.short('sparse_categorical_accuracy') == 'accuracy'
  assert metric_names.short('top_5_accuracy') == 'top 5 accuracy'


def test_less_is_better_for_an_error():
  assert metric_names.higher_is_better('sparse_categorical_accuracy')
  assert metric_names.higher_is_better('recall_at_5')
  assert not metric_names.higher_is_better('mean_squared_error')
  assert not metric_names.higher_is_better('distance')
  assert not metric_names.higher_is_better(None)


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
