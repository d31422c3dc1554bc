"""Metrics as users write them: names, vectors, states that do not add up."""

import numpy as np
import pytest

from tests import own_tasks
from tests import recorded
from tests import tiers
from tff_adaptive.lab.commands import command_line

_TASK = '''
import keras
from tff_adaptive import models


class Largest(tf.keras.metrics.Metric):
  """Keeps the largest error."""

  def __init__(self, name='largest', **more):
    super().__init__(name=name, **more)
    self.top = self.add_weight(name='top', initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    most = tf.reduce_max(tf.abs(y_true - y_pred))
    self.top.assign(tf.maximum(self.top, most))

  def result(self):
    return tf.identity(self.top)


class Smallest(Largest):
  """Keeps the negative of the smallest error: neither is it a sum."""

  def update_state(self, y_true, y_pred, sample_weight=None):
    least = tf.reduce_min(tf.abs(y_true - y_pred))
    self.top.assign(tf.maximum(self.top, 10.0 - least))


class Own(tf.keras.metrics.Metric):
  """A sum and a count, as a mean is."""

  def __init__(self, name='own', **more):
    super().__init__(name=name, **more)
    self.total = self.add_weight(name='total', initializer='zeros')
    self.count = self.add_weight(name='count', initializer='zeros')

  def update_state(self, y_true, y_pred, sample_weight=None):
    self.total.assign_add(tf.reduce_sum(tf.abs(y_true - y_pred)))
    self.count.assign_add(tf.cast(tf.size(y_true), tf.float32))

  def result(self):
    return self.total / self.count


_METRICS = dict(
  largest=(2, Largest),
  largest_90=(2, lambda: Largest(name='largest_90')),
  smallest=(2, lambda: Smallest(name='smallest')),
  own=(2, Own),
  precision=(2, tf.keras.metrics.Precision),
  precision_3=(3, keras.metrics.Precision),
  recall=(2, lambda: tf.keras.metrics.Recall()),
  f1=(2, tf.keras.metrics.F1Score),
  f1_3=(3, keras.metrics.F1Score),
  f1_tff=(2, tf.keras.metrics.F1Score),
  r2=(2, tf.keras.metrics.R2Score),
  r2_3=(3, keras.metrics.R2Score),
  auc=(2, lambda: tf.keras.metrics.AUC(multi_label=True, num_labels=3)),
  auc_lazy=(2, lambda: tf.keras.metrics.AUC(multi_label=True)),
)


def shares(metric: str = 'own'):
  rng = np.random.default_rng(0)

  def points():
    x = rng.normal(size=[30, 3]).astype(np.float32)
    y = np.eye(3, dtype=np.float32)[x.argmax(axis=1)]
    return collections.OrderedDict(x=x, y=y)

  version, made = _METRICS[metric]
  if version == 2:
    loss = tf.keras.losses.CategoricalCrossentropy()

    def build():
      return tf.keras.Sequential(
        [tf.keras.layers.Dense(3, 'softmax', input_shape=(3,))]
      )
  else:
    loss = keras.losses.CategoricalCrossentropy()

    def build():
      return keras.Sequential(
        [keras.layers.Input((3,)), keras.layers.Dense(3, 'softmax')]
      )

  def model_fn_of(spec):
    given = dict(loss=loss, input_spec=spec)
    if metric not in ('precision', 'largest', 'f1_tff'):
      return models.model_fn(build, metrics=[made], **given)
    # As TFF has it, without this project.
    return lambda: tff.learning.models.from_keras_model(
      build(), metrics=[made()], **given
    )

  clients = {f'c{i}': points() for i in range(3)}
  return task_of(clients, clients, model_fn_of, test_batch=7)
'''


def _train(tmp_path, monkeypatch, metric, ending=0):
  own_tasks.add(tmp_path, monkeypatch, 'users_shares', _TASK)
  words = ['--task=users_shares:shares', f'--shares_metric={metric}']
  words += ['--algorithm=fedavg', '--client_optimizer=sgd']
  words += ['--client_learning_rate=0.1', '--clients_per_round=3']
  words += ['--total_rounds=2', '--rounds_per_eval=1']
  words += ['--validation_split=test', f'--root_output_dir={tmp_path}']
  code = command_line.main([*words, '--experiment_name=run'])
  assert code == ending
  return recorded.rows(tmp_path / 'run') if not code else []


_OF_CLASSES = ['f1_score_0', 'f1_score_1', 'f1_score_2']


@pytest.mark.parametrize(
  'metric, columns',
  tiers.exhaustive_but(
    [('precision', ['precision']), ('f1_3', _OF_CLASSES)],
    [
      ('own', ['own']),
      ('precision', ['precision']),
      ('precision_3', ['precision']),
      ('recall', ['recall']),
      ('f1', _OF_CLASSES),
      ('f1_3', _OF_CLASSES),
      ('auc', ['auc']),
      ('auc_lazy', ['auc']),
      ('r2', ['r2_score']),
      ('r2_3', ['r2_score']),
    ],
  ),
)
def test_a_metric_has_the_same_columns_everywhere(
  tmp_path, monkeypatch, metric, columns
):
  rows = _train(tmp_path, monkeypatch, metric)
  for split in ('train', 'validation', 'test'):
    found = [
      name.partition('/')[2]
      for name in rows[-1]
      if name.startswith(f'{split}/')
      and not name.endswith(('loss', 'num_examples', 'num_batches'))
    ]
    assert found == columns, split
  # All clients and all test examples are the same here.
  for name in columns:
    assert -9 * (name == 'r2_score') <= float(rows[-1][f'train/{name}']) <= 1


def test_a_metric_that_only_tff_builds(tmp_path, monkeypatch, capsys):
  _train(tmp_path, monkeypatch, 'f1_tff', ending=2)
  told = capsys.readouterr().err
  assert 'variables on its first batch' in told and 'Traceback' not in told


@pytest.mark.parametrize(
  'metric',
  tiers.exhaustive_but(['largest_90'], ['largest', 'largest_90', 'smallest']),
)
def test_a_state_that_is_no_sum_is_evaluated_in_one_piece(
  tmp_path, monkeypatch, capsys, metric
):
  rows = _train(tmp_path, monkeypatch, metric)
  assert f'{metric} does not add up over batches' in capsys.readouterr().out
  assert f'train/{metric}' not in rows[-1]
  # An error of a probability; summed over 16 parts it would be larger.
  bound = 10.0 if metric == 'smallest' else 1.0
  for row in rows[1:]:
    assert 0 < float(row[f'validation/{metric}']) <= np.float32(bound)
