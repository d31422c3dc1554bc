"""Names of metrics."""

from tff_adaptive.recording import metric_names


def test_main_metric():
  assert metric_names.main_metric({'loss': 1, 'num_examples': 2}) is None
  found = metric_names.main_metric({'num_tokens': 1, 'accuracy': 2, 'top': 3})
  assert found == 'accuracy'


def test_short():
  assert metric_names.short('sparse_categorical_accuracy') == 'accuracy'
  assert metric_names.short('top_5_accuracy') == 'top 5 accuracy'
