"""Clients whose loss raises an error are named, counted and left out."""

import re

import pytest

from tests import own_tasks
from tests import recorded
from tests import tiers
from tff_adaptive.lab.commands import command_line

_TASK = """
class Loss(tf.keras.losses.Loss):
  def call(self, y_true, y_pred):
    check = tf.debugging.assert_less(y_true, 3.5, 'a label is too large')
    with tf.control_dependencies([check]):
      return tf.square(y_true - y_pred)


def sites(first: int = 0, wrong: str = '', own_loss: bool = False):
  rng = np.random.default_rng(0)

  def points(shift):
    x = rng.normal(size=[12, 3]).astype(np.float32)
    y = x.argmax(axis=1) + first + shift
    return collections.OrderedDict(
      x=x, y=y.astype(np.float32)[:, None] if own_loss else y.astype(np.int32)
    )

  ids = 'abcd'
  train = {i: points(7 * (i in wrong)) for i in ids}
  test = {i: points(0) for i in ids}

  def model_fn_of(spec):
    outputs = 1 if own_loss else 3
    return lambda: tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(outputs, input_shape=(3,))]),
      loss=Loss()
      if own_loss
      else tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
    )

  return task_of(train, test, model_fn_of, 4, 4)
"""


@pytest.fixture(name='train')
def train_fixture(tmp_path, monkeypatch):
  own_tasks.add(tmp_path, monkeypatch, 'users_sites', _TASK)

  def train(*flags):
    words = ['--task=users_sites:sites', '--algorithm=fedavg']
    words += ['--client_optimizer=sgd', '--client_learning_rate=0.1']
    words += ['--clients_per_round=4', '--total_rounds=2']
    words += [f'--root_output_dir={tmp_path}', '--experiment_name=run']
    return command_line.main([*words, *flags])

  return train


@pytest.mark.parametrize('more', [[], ['--sites_own_loss=true']])
@pytest.mark.parametrize('wrong', tiers.exhaustive_but(['c'], ['c', 'ad']))
def test_clients_with_labels_out_of_range_are_left_out(
  train, tmp_path, capsys, wrong, more
):
  assert train(f'--sites_wrong={wrong}', *more) == 0
  rows = recorded.rows(tmp_path / 'run')
  assert [row['clients/failed'] for row in rows[1:]] == [f'{len(wrong)}'] * 2
  said = capsys.readouterr().out
  assert f'{len(wrong)} of 4 clients raise an error' in said
  assert all(repr(client) in said for client in wrong)
  assert ('label value of' in said) == (not more)
  strict = ['--max_rejected_clients=0', '--experiment_name=strict']
  assert train(f'--sites_wrong={wrong}', *more, *strict) == 1


def test_labels_that_begin_at_1_get_the_sentence(train, capsys):
  assert train('--sites_first=1') == 1
  said = capsys.readouterr()
  assert (
    'labels seem to be 1 to 3, but a model with 3 outputs takes 0 to 2'
    in said.err
  )
  assert 'Traceback' not in said.err + said.out


def test_centralized_training_says_so_in_a_sentence(train, tmp_path, capsys):
  del train  # It has made the task.
  told = ['--task=users_sites:sites', '--sites_wrong=c']
  told += ['--clients_per_round=4', '--algorithm=centralized']
  told += [f'--root_output_dir={tmp_path}']
  assert command_line.main(told) == 1
  said = capsys.readouterr()
  assert re.search('Round . cannot be trained: .*label value of', said.err)
  assert 'Traceback' not in said.err + said.out
