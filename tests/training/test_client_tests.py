"""The trained model client by client, before and after training there."""

import csv
import dataclasses

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks import builders
from tasks import client_data
from tasks import partition
from tests import helpers
from tests import recorded
from tests import runs
from tests import tiers
from tff_adaptive import errors
from tff_adaptive.lab.commands import train
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training import parts
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.evaluation import client_tests
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.evaluation import validation

pytestmark = pytest.mark.usefixtures('undrawn')


def settings_of(folder, *arguments, **name):
  usual = ['--data=synthetic', '--algorithm=fedavg', '--client_optimizer=sgd']
  usual += ['--client_learning_rate=0.1', '--total_rounds=2']
  usual += ['--clients_per_round=3', '--rounds_per_eval=2']
  return runs.settings_of(folder, *usual, *arguments, **name)


def rows_of(data):
  """Every client's examples, as bytes, by client."""
  return {
    client: sorted(
      e['pixels'].tobytes()
      for e in data.create_tf_dataset_for_client(client).as_numpy_iterator()
    )
    for client in data.client_ids
  }


@pytest.mark.parametrize(
  'in_memory', tiers.exhaustive_but([True], [True, False])
)
def test_a_share_is_held_out_of_training(in_memory, monkeypatch, tmp_path):
  if not in_memory:
    split = client_tests.split
    monkeypatch.setattr(
      client_tests,
      'split',
      lambda data, *more: split(client_data.ListedClientData(data), *more),
    )
  settings = settings_of(tmp_path, '--evaluate_clients=all')
  whole = rows_of(tasks.create('digits', data='synthetic').datasets.train_data)
  datasets = experiment.create_task(settings).datasets
  left = rows_of(datasets.train_data)
  tests = rows_of(datasets.client_tests)
  for client, examples in whole.items():
    assert sorted(left[client] + tests[client]) == examples
    assert abs(len(tests[client]) - 0.2 * len(examples)) <= 1
    assert tests[client]
  again = experiment.create_task(settings).datasets
  assert rows_of(again.client_tests) == tests
  other = experiment.create_task(
    settings_of(tmp_path, '--evaluate_clients=all', '--seed=1')
  )
  assert rows_of(other.datasets.client_tests) != tests


def test_clients_with_test_data_of_their_own_train_on_all(tmp_path):
  settings = settings_of(tmp_path, '--evaluate_clients=2')
  own = helpers.client_data([3, 4, 2])
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=helpers.client_data([5, 6, 7]),
    test_data=builders.centralized(own, seed=0),
    validation_data=None,
    train_preprocess_fn=helpers.preprocess,
    eval_preprocess_fn=helpers.batch,
  )
  task = tff.simulation.baselines.BaselineTask(
    datasets, helpers.task().model_fn
  )
  prepared = parts.prepare(task, settings).datasets
  assert prepared.train_data is datasets.train_data
  assert prepared.client_tests is own
  # Test data that come by client, as in tasks of TFF's.
  plain = helpers.task()
  assert parts.prepare(plain, settings).datasets.client_tests is not None
  strangers = tff.simulation.datasets.TestClientData(
    {'a': helpers.examples(0, 3)}
  )
  assert client_tests.by_client(datasets.train_data, strangers) is None


def test_what_is_summed_up_over_clients():
  accuracies = [i / 20 for i in range(20)]
  rows = [
    {'client': i, 'per_client/loss': 1 - a, 'per_client/accuracy': a}
    for i, a in enumerate(accuracies)
  ]
  values = client_tests.over_clients(rows, 'per_client')
  assert values['per_client/clients'] == 20
  assert values['per_client/accuracy/mean'] == pytest.approx(0.475)
  assert values['per_client/accuracy/std'] == pytest.approx(np.std(accuracies))
  assert values['per_client/accuracy/p50'] == pytest.approx(0.475)
  assert values['per_client/accuracy/p10'] == pytest.approx(0.095)
  assert values['per_client/accuracy/p90'] == pytest.approx(0.855)
  # The two that are worst off, whichever way that is.
  assert values['per_client/accuracy/worst_decile'] == pytest.approx(0.025)
  assert values['per_client/loss/worst_decile'] == pytest.approx(0.975)


def table_of(settings):
  path = files.RunFolder(settings.folder).clients
  with open(path, encoding='utf-8') as file:
    return list(csv.DictReader(file))


@pytest.mark.exhaustive
def test_a_run_that_tests_and_tunes_clients(tmp_path):
  arguments = ['--task=table', '--evaluate_clients=4', '--finetune_epochs=3']
  settings = settings_of(tmp_path, *arguments)
  assert settings.finetune_learning_rate == 0.1
  result = runs.train(settings)
  last = result.rows[-1]
  table = table_of(settings)
  assert len({row['client'] for row in table}) == 4
  assert last['per_client/clients'] == last['per_client_tuned/clients'] == '4'
  for group in ('per_client', 'per_client_tuned'):
    for measure in ('loss', 'sparse_categorical_accuracy'):
      mean = np.mean([float(row[f'{group}/{measure}']) for row in table])
      assert float(last[f'{group}/{measure}/mean']) == pytest.approx(mean)
  before, after = (
    float(last[f'{group}/loss/mean'])
    for group in ('per_client', 'per_client_tuned')
  )
  assert after < before
  assert not result.rows[0].get('per_client/clients')
  text = train.summary(result.rows, files.RunFolder(settings.folder))
  assert 'worst tenth' in text and 'over 4, fine-tuned' in text
  again = settings_of(tmp_path, *arguments, name='again')
  runs.train(again)
  assert table_of(again) == table
  assert recorded.rows(again.folder) == recorded.rows(settings.folder)


def test_a_client_is_tuned_by_steps_of_sgd():
  task = helpers.task()
  weights = initial_weights.draw(task.model_fn, 3)
  data = helpers.client_data([8])
  raw = data.create_tf_dataset_for_client(data.client_ids[0])
  batches = list(helpers.batch(raw))
  tune = client_tests.build_tuner(
    task.model_fn,
    weights,
    learning_rate=0.5,
    seed=0,
    data=lambda client: helpers.batch(raw).repeat(2),
  )
  tuned = tune('a', weights)
  kernel, bias = (np.array(w) for w in weights.trainable)
  for batch in 2 * batches:
    x, y = batch['x'].numpy(), batch['y'].numpy()
    logits = x @ kernel + bias
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    error = (p - np.eye(2)[y]) / len(y)
    kernel, bias = kernel - 0.5 * x.T @ error, bias - 0.5 * error.sum(axis=0)
  np.testing.assert_allclose(tuned.trainable[0], kernel, atol=1e-5)
  np.testing.assert_allclose(tuned.trainable[1], bias, atol=1e-5)
  # Each client starts from the same model.
  np.testing.assert_array_equal(
    tune('b', weights).trainable[0], tuned.trainable[0]
  )


def model_and_tests(sizes, count=None):
  data = helpers.client_data(sizes)
  task = helpers.task(sizes=[5] * len(sizes))
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=task.datasets.train_data,
    test_data=data,
    train_preprocess_fn=helpers.preprocess,
    eval_preprocess_fn=helpers.batch,
  )
  datasets.client_tests = data
  found = client_tests.ClientTests(
    datasets=datasets,
    evaluator=evaluation.Evaluator(task.model_fn),
    count=count,
    seed=0,
  )
  return found, initial_weights.draw(task.model_fn, 0)


def test_clients_are_drawn_by_the_seed():
  tests, weights = model_and_tests([5, 6, 7, 8, 9], count=3)
  clients = tests.clients()
  assert len({*clients}) == 3 and clients == sorted(clients)
  _, rows = tests(weights)
  assert [row['client'] for row in rows] == clients
  with pytest.raises(errors.SettingsError, match='exceeds the 5 clients'):
    model_and_tests([5] * 5, count=6)[0].clients()


def test_clients_without_test_data_are_not_drawn():
  tests, _ = model_and_tests([5, 5, 5], count=2)
  ids = tests.datasets.train_data.client_ids
  rows = [np.arange(2), np.arange(0), np.arange(2, 4)]
  tests.datasets.client_tests = client_data.ArrayClientData(
    {'pixels': np.zeros((4, 4))}, partition.Partition(tuple(ids), tuple(rows))
  )
  assert tests.clients() == [ids[0], ids[2]]
  with pytest.raises(errors.SettingsError, match='exceeds the 2 clients'):
    dataclasses.replace(tests, count=3).clients()


def test_clients_without_test_data_are_left_out():
  tests, weights = model_and_tests([5, 6])
  empty = tests.datasets.test_data

  class Empty:
    client_ids = empty.client_ids

    def create_tf_dataset_for_client(self, client):
      raw = empty.create_tf_dataset_for_client(client)
      return raw.take(0) if client == self.client_ids[0] else raw

  tests.datasets.client_tests = Empty()
  values, rows = tests(weights)
  assert len(rows) == values['per_client/clients'] == 1
  Empty.client_ids = empty.client_ids[:1]
  with pytest.raises(errors.RunError, match=r'None of the .* has test data'):
    tests(weights)


@pytest.mark.parametrize(
  'words, complaint',
  [
    (['--evaluate_clients=0'], "must be 'all' or an integer"),
    (['--evaluate_clients=some'], "must be 'all' or an integer"),
    (['--finetune_epochs=1'], 'would be ignored without --evaluate_clients'),
    (['--client_test_share=0.1'], 'ignored without --evaluate_clients'),
    (
      ['--evaluate_clients=3', '--finetune_learning_rate=1'],
      'ignored without --finetune_epochs',
    ),
    (
      ['--evaluate_clients=3', '--dp_clip_norm=1', '--dp_noise_multiplier=1'],
      'give --evaluate_clients_under_dp to allow it',
    ),
    (
      ['--evaluate_clients=3', '--evaluate_clients_under_dp'],
      'ignored: the run is not private',
    ),
  ],
)
def test_flags_that_are_refused(tmp_path, words, complaint):
  with pytest.raises(errors.SettingsError, match=complaint):
    settings_of(tmp_path, *words)


def test_clients_without_a_learning_rate_need_one(tmp_path):
  words = ['--evaluate_clients=all', '--finetune_epochs=1']
  with pytest.raises(errors.SettingsError) as raised:
    runs.parse(*words)  # Delta-SGD finds its own.
  assert 'needs --finetune_learning_rate' in str(raised.value)
  words.append('--finetune_learning_rate=0.5')
  assert runs.parse(*words).finetune_learning_rate == 0.5


def test_passes_of_preprocessing_that_repeats_are_not_counted(
  tmp_path, monkeypatch
):
  """Somebody's own, of which it is not known what a pass is."""
  monkeypatch.setattr(batches, '_recipe_of', lambda _: None)
  settings = settings_of(
    tmp_path,
    '--client_epochs_per_round=2',
    '--evaluate_clients=2',
    '--finetune_epochs=1',
    '--finetune_learning_rate=0.1',
  )
  with pytest.raises(errors.SettingsError, match='client_epochs_per_round=1'):
    experiment.set_up(settings)


def test_clients_of_one_example_have_nothing_to_hold_out(tmp_path):
  settings = settings_of(
    tmp_path,
    '--task=quadratic',
    '--clients_per_round=2',
    '--evaluate_clients=all',
  )
  with pytest.raises(errors.SettingsError, match='at least two examples'):
    experiment.create_task(settings)


def test_clients_held_out_for_validation_are_no_clients_to_test(tmp_path):
  settings = settings_of(
    tmp_path, '--evaluate_clients=all', '--validation_split=clients'
  )
  datasets = experiment.create_task(settings).datasets
  held_out = {*datasets.validation_data.client_ids}
  tests = client_tests.ClientTests(
    datasets=datasets, evaluator=None, count=None, seed=0
  )
  assert held_out and not held_out & {*tests.clients()}
  splits = validation.build(settings, datasets)
  assert isinstance(splits.validation(0), list)
  assert tf.nest.flatten(splits.validation(0)[0])


def test_what_is_not_known_of_clients_is_left_out():
  known = {'mine/mean': 1.0, 'mine/std': 2.0, 'clients': 4.0}
  (line,) = train._clients(pd.Series(known), '')
  assert line == 'clients  mine 1 (std 2) over 4'
  del known['mine/std']
  (line,) = train._clients(pd.Series(known), '')
  assert line == 'clients  mine 1 over 4'
