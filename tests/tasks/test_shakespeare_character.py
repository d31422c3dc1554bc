"""Next character in Shakespeare."""

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tasks.text import shakespeare_character as shakespeare
from tests.tasks import helpers


def _text(tokens):
  names = {0: '', 87: '?', 88: '<', 89: '>'}
  return ''.join(
    names.get(t) if t in names else shakespeare.CHARACTERS[t - 1]
    for t in np.ravel(tokens)
  )


def _rows(text, length=8):
  example = dict(snippets=tf.constant(text))
  return shakespeare._build_to_sequences(length)(example).numpy()


def test_a_speech_becomes_rows_of_tokens():
  rows = _rows(b'To be, or not\x80')
  assert len(set(shakespeare.CHARACTERS)) == 86
  assert rows.shape == (2, 9) and rows.dtype == np.int64
  assert _text(rows) == '<To be, or not?>'
  assert rows[1, -2:].tolist() == [0, 0]


@pytest.mark.parametrize('length, rows', [(0, 1), (7, 1), (8, 2), (16, 2)])
def test_rows_are_as_many_as_needed(length, rows):
  assert _rows(b'a' * length).shape == (rows, 9)


def test_tokens_are_those_of_tffs_baseline():
  # Same ids as TFF's, checked on its own preprocessing.
  import tensorflow_federated as tff

  theirs = tff.simulation.baselines.shakespeare
  spec = tff.simulation.baselines.ClientSpec(
    num_epochs=1, batch_size=4, shuffle_buffer_size=1
  )
  task = theirs.create_character_prediction_task(
    spec, sequence_length=20, use_synthetic_data=True
  )
  raw = task.datasets.train_data.create_tf_dataset_for_client(
    task.datasets.train_data.client_ids[0]
  )
  expected = list(task.datasets.train_preprocess_fn(raw).as_numpy_iterator())
  ours = tasks.create(
    'shakespeare_character', data='synthetic', sequence_length=20
  )
  found = np.concatenate(
    [b[0] for b in ours.datasets.eval_preprocess_fn(raw).as_numpy_iterator()]
  )
  np.testing.assert_array_equal(found, np.concatenate([b[0] for b in expected]))


def test_targets_are_the_input_shifted():
  task = tasks.create('shakespeare_character', data='synthetic')
  for x, y in helpers.client_batches(task):
    assert x.shape == y.shape and x.shape[1] == 80 and len(x) <= 4
    np.testing.assert_array_equal(x[:, 1:], y[:, :-1])


@pytest.mark.exhaustive
def test_real_roles(real_data):
  task = tasks.create('shakespeare_character', cache_dir=str(real_data))
  data = task.datasets.train_data
  assert len(data.client_ids) == 964
  assert 'MACBETH_LADY_MACBETH' in data.client_ids
  batches = helpers.client_batches(task, 'MACBETH_LADY_MACBETH')
  text = _text(np.concatenate([b[1] for b in batches]))
  assert "Naught's had, all's spent,\nWhere our desire" in text
  tokens = np.concatenate([b[1].ravel() for b in batches])
  assert (tokens != shakespeare.UNKNOWN).all()
  test = task.datasets.test_data.batch(1000).as_numpy_iterator()
  assert sum(len(b['snippets']) for b in test) == 5311


def test_the_seed_decides_the_order_of_speeches(real_data):
  task = tasks.create('shakespeare_character', cache_dir=str(real_data))
  first, again, other = (
    helpers.client_batches(task, 'MACBETH_LADY_MACBETH', seed=seed)
    for seed in ((1, 2), (1, 2), (1, 3))
  )
  for a, b in zip(first, again, strict=True):
    np.testing.assert_array_equal(a[0], b[0])
  assert any((a[0] != b[0]).any() for a, b in zip(first, other, strict=False))


def test_the_paddings_place_does_not_matter_to_the_model():
  # Sequences are padded at their end and the model looks back only, so it
  # needs no mask: what it says of a token is the same whatever follows.
  tf.keras.utils.set_random_seed(1)
  model = shakespeare._build_model(20)
  tokens = np.random.default_rng(0).integers(1, 87, [1, 20])
  padded = np.where(np.arange(20) < 12, tokens, 0)
  np.testing.assert_allclose(
    model(tokens)[:, :12], model(padded)[:, :12], rtol=1e-5, atol=1e-6
  )
