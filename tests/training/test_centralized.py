"""Training on pooled data."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import main
from tests import helpers
from tests import recorded
from tests import runs
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.training.loop import centralized
from tff_adaptive.lab.training.loop import stopping

pytestmark = pytest.mark.usefixtures('undrawn')


def settings_of(folder, *arguments):
  usual = ['--algorithm=centralized', '--data=synthetic', '--total_rounds=4']
  usual += ['--rounds_per_eval=2', '--rounds_per_checkpoint=2']
  return runs.settings_of(folder, *usual, *arguments)


def labels_of(datasets):
  return [
    tuple(np.round(x, 5))
    for dataset in datasets
    for batch in dataset.as_numpy_iterator()
    for x in batch['x']
  ]


def plain(dataset, seed=None):
  del seed
  return dataset.batch(4)


def pooled(sizes, **more):
  task = helpers.task(sizes=sizes, train_preprocess_fn=plain)
  return centralized.PooledDatasets(
    task.datasets, **{'seed': 3, 'cache_bytes': 2**20, **more}
  )


def test_every_example_once_before_any_twice():
  # 28 examples of 4 clients: 7 a client, so 14 in a round of two.
  datasets = pooled((6, 9, 5, 8), clients_per_round=2)
  assert datasets.examples_per_round == 14
  rounds = [
    labels_of(datasets.for_round(r, ['any']).batches) for r in (1, 2, 3, 4)
  ]
  assert [len(r) for r in rounds] == [14] * 4
  expected = sorted(
    tuple(np.round(x, 5))
    for client, size in enumerate((6, 9, 5, 8))
    for x in helpers.examples(client, size)['x']
  )
  assert sorted(rounds[0] + rounds[1]) == expected
  assert sorted(rounds[2] + rounds[3]) == expected
  # Another order in the second pass, and clients are mixed.
  assert rounds[0] != rounds[2]
  first_client = {tuple(np.round(x, 5)) for x in helpers.examples(0, 6)['x']}
  assert 0 < len(first_client & set(rounds[0])) < 14


def test_a_round_depends_on_its_number_and_the_seed_only():
  datasets = pooled((6, 9, 5, 8), clients_per_round=3)
  third = labels_of(datasets.for_round(3, []).batches)
  again = pooled((6, 9, 5, 8), clients_per_round=3)
  assert labels_of(again.for_round(3, []).batches) == third
  other = pooled((6, 9, 5, 8), clients_per_round=3, seed=4)
  assert labels_of(other.for_round(3, []).batches) != third
  # 21 examples a round: the third one crosses into the second pass.
  assert len(third) == 21 and len(set(third)) <= 21


def test_epochs_and_bounds_size_a_round():
  sizes = (6, 9, 5, 8)
  assert pooled(sizes, clients_per_round=2, epochs=3).examples_per_round == 42
  bounded = pooled(sizes, clients_per_round=2, max_elements=6)
  assert bounded.examples_per_round == round(2 * (6 + 6 + 5 + 6) / 4)


def test_memory_that_is_not_enough():
  with pytest.raises(errors.SettingsError, match='--cache_mib'):
    pooled((6, 9, 5, 8), clients_per_round=2, cache_bytes=100)


@pytest.mark.parametrize('name', ['sgd', 'adam'])
def test_steps_are_the_optimizers_on_the_batches(name):
  """Against a loop written out, its gradients by hand."""
  task = helpers.task(train_preprocess_fn=plain)
  initial = tff.learning.models.ModelWeights.from_model(task.model_fn())
  initial = tf.nest.map_structure(lambda v: v.numpy() * 0.1, initial)
  rounds = centralized.CentralizedRounds(
    task.model_fn,
    optimizer=optimizers.server(name, learning_rate=0.3),
    initial_weights=initial,
    seed=0,
  )
  data = helpers.examples(7, 10)
  dataset = tf.data.Dataset.from_tensor_slices(data).batch(4)
  reported = [rounds.run([], [dataset]) for _ in range(2)]

  kernel, bias = (w.astype(np.float64) for w in initial.trainable)
  moments = [(0.0, 1e-6)] * 2  # v starts at tau squared, tau = 1e-3.
  losses = []
  for _ in range(2):
    total = 0.0
    for start in (0, 4, 8):
      x, y = data['x'][start : start + 4], data['y'][start : start + 4]
      logits = x @ kernel + bias
      p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
      total -= np.log(p[np.arange(len(y)), y]).sum()
      error = (p - np.eye(2)[y]) / len(y)
      gradients = [x.T @ error, error.sum(axis=0)]
      steps = []
      for i, g in enumerate(gradients):
        if name == 'sgd':
          steps.append(g)
        else:
          m = 0.9 * moments[i][0] + 0.1 * g
          v = 0.99 * moments[i][1] + 0.01 * g**2
          moments[i] = (m, v)
          steps.append(m / (np.sqrt(v) + 1e-3))
      kernel, bias = kernel - 0.3 * steps[0], bias - 0.3 * steps[1]
    losses.append(total / 10)
  weights = rounds.model_weights().trainable
  np.testing.assert_allclose(weights[0], kernel, rtol=2e-4, atol=1e-6)
  np.testing.assert_allclose(weights[1], bias, rtol=2e-4, atol=1e-6)
  for row, loss in zip(reported, losses, strict=True):
    assert row['train/loss'] == pytest.approx(loss, rel=1e-4)
    assert row['train/num_examples'] == 10
    assert row['update/norm'] > 0 and not row['update/non_finite']


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'task, optimizer',
  [
    ('mnist_character', 'adam'),  # With dropout.
    ('table', 'sgd'),
    ('table', 'adagrad'),
    ('table', 'yogi'),
    ('table', 'ams'),
  ],
)
def test_stopped_and_resumed_is_the_same_run(
  tmp_path, stop_in_round, task, optimizer
):
  arguments = [f'--task={task}', f'--server_optimizer={optimizer}']
  arguments += ['--server_learning_rate=0.01', '--clients_per_round=2']
  arguments += ['--client_batch_size=8', '--max_elements_per_client=16']
  whole = settings_of(tmp_path / 'whole', *arguments)
  runs.train(whole)
  parts = settings_of(tmp_path / 'parts', *arguments)
  stop_in_round(4, centralized.CentralizedRounds)
  with pytest.raises(stopping.Stopped):
    runs.train(parts)
  assert runs.train(parts).resumed_from == 3
  rows = recorded.rows(whole.folder)
  assert recorded.rows(parts.folder) == rows
  assert rows[-1]['test/loss'] != rows[0]['validation/loss']
  assert rows[-1]['train/num_examples'] == '32'
  assert 'bytes_down' not in rows[0]


@pytest.mark.parametrize(
  'arguments, parts',
  [
    (['--client_optimizer=sgd'], ['no clients', '--server_optimizer']),
    (['--client_learning_rate=0.1'], ['ignored', '--server_learning_rate']),
    (['--proximal_strength=0.1'], ['ignored']),
    (['--server_optimizer=sgd', '--beta_1=0.5'], ['ignored']),
    (['--server_learning_rate=0'], ['above 0']),
  ],
)
def test_complaints(tmp_path, capsys, arguments, parts):
  told = ['--algorithm=centralized', f'--root_output_dir={tmp_path}']
  assert main.main([*told, *arguments]) == 2
  captured = capsys.readouterr()
  assert len(captured.err.splitlines()) == 1
  for part in parts:
    assert part in captured.err


def test_dry_run_and_names(tmp_path, capsys):
  told = ['--algorithm=centralized', f'--root_output_dir={tmp_path}']
  assert main.main([*told, '--server_optimizer=yogi', '--dry_run']) == 0
  shown = capsys.readouterr().out
  for part in ('pooled', 'optimizer yogi', 'nothing is sent', '10 of 20'):
    assert part in shown
  assert 'centralized' in methods.table()
  assert settings_of(tmp_path).hyperparameters['server_learning_rate'] == 0.1
  assert not list(tmp_path.iterdir())
