"""Next word on Stack Overflow."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.formats import data_files
from tasks.text import stackoverflow
from tests.tasks import helpers


@pytest.mark.parametrize('name', ['stackoverflow_word', 'stackoverflow_tag'])
def test_lists_of_counts_may_be_missing(tmp_path, name):
  with pytest.raises(
    data_files.DataError, match=r'no file .*stackoverflow\.sq'
  ):
    tasks.check_data(name, cache_dir=str(tmp_path))
  (tmp_path / 'stackoverflow.sqlite').touch()  # They are counted from it.
  tasks.check_data(name, cache_dir=str(tmp_path))


def _tokens(*texts, length=5):
  to_model = stackoverflow._build_to_tokens(['a', 'b', 'c'], length)
  x, y = to_model(dict(tokens=tf.constant(list(texts))))
  return x.numpy().tolist(), y.numpy().tolist()


def test_sentences_become_tokens():
  # Vocabulary a b c = 1 2 3, unknown 4, begin 5, end 6, padding 0.
  x, y = _tokens('b zzz a', 'a b c a b c', 'a b c a b', '')
  assert y == [
    [2, 4, 1, 6, 0],
    [1, 2, 3, 1, 2],
    [1, 2, 3, 1, 2],
    [4, 6, 0, 0, 0],
  ]
  assert x == [
    [5, 2, 4, 1, 6],
    [5, 1, 2, 3, 1],
    [5, 1, 2, 3, 1],
    [5, 4, 6, 0, 0],
  ]


@pytest.mark.exhaustive
def test_tokens_are_those_of_tffs_baseline():
  datasets = tff.simulation.datasets.stackoverflow
  spec = tff.simulation.baselines.ClientSpec(
    num_epochs=1, batch_size=4, shuffle_buffer_size=1
  )
  theirs = tff.simulation.baselines.stackoverflow.create_word_prediction_task(
    spec, use_synthetic_data=True
  )
  words = list(datasets.get_synthetic_word_counts())
  to_model = stackoverflow._build_to_tokens(words, 20)
  data = theirs.datasets.train_data
  for client_id in data.client_ids:
    raw = data.create_tf_dataset_for_client(client_id)
    found = raw.batch(4).map(to_model).as_numpy_iterator()
    expected = theirs.datasets.train_preprocess_fn(raw).as_numpy_iterator()
    for (x, y), (their_x, their_y) in zip(found, expected, strict=True):
      np.testing.assert_array_equal(x, their_x)
      np.testing.assert_array_equal(y, their_y)


@pytest.mark.exhaustive
def test_loss_and_metrics_against_tffs_baseline():
  # The same weights through TFF's model. Metrics agree. Its loss does not: by
  # the time it is computed Keras's mask is gone, and padding counts in it; ours
  # with padding='counted' is the same.
  spec = tff.simulation.baselines.ClientSpec(
    num_epochs=1, batch_size=8, shuffle_buffer_size=1
  )
  theirs = tff.simulation.baselines.stackoverflow.create_word_prediction_task(
    spec, use_synthetic_data=True
  )
  words = list(
    tff.simulation.datasets.stackoverflow.get_synthetic_word_counts()
  )
  ours = tasks.create(
    'stackoverflow_word', data='synthetic', vocab_size=len(words)
  )
  counting = tasks.create(
    'stackoverflow_word',
    data='synthetic',
    vocab_size=len(words),
    padding='counted',
  )
  models = their_model, our_model, counting_model = [
    task.model_fn() for task in (theirs, ours, counting)
  ]
  # Those of Keras are drawn otherwise on other devices. Three times as large,
  # the LSTM would multiply differences of rounding by 500.
  random = np.random.default_rng(3)
  for same in zip(*(m.trainable_variables for m in models), strict=True):
    value = random.normal(scale=0.1, size=same[0].shape)
    for variable in same:
      variable.assign(value)
  data = theirs.datasets.train_data
  raw = data.create_tf_dataset_for_client(data.client_ids[0])
  batch = next(iter(theirs.datasets.train_preprocess_fn(raw)))
  real = batch[1].numpy() != 0

  def losses(output):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
      batch[1], output.predictions
    ).numpy()

  theirs_out = their_model.forward_pass(batch, training=False)
  ours_out = our_model.forward_pass(batch, training=False)
  np.testing.assert_allclose(
    losses(ours_out)[real], losses(theirs_out)[real], rtol=1e-5
  )
  ours_mean, theirs_mean = (
    losses(ours_out)[real].mean(),
    losses(theirs_out).mean(),
  )
  assert float(ours_out.loss) == pytest.approx(ours_mean, rel=1e-6)
  assert float(theirs_out.loss) == pytest.approx(theirs_mean, rel=1e-6)
  counted = counting_model.forward_pass(batch, training=False).loss
  assert ours_mean != pytest.approx(theirs_mean, rel=1e-4)
  assert float(counted) == pytest.approx(theirs_mean, rel=1e-6)
  names = {
    'accuracy': 'accuracy',
    'num_tokens': 'num_tokens',
    'accuracy_without_unknown_words': 'accuracy_without_out_of_vocab',
    'accuracy_without_special_tokens': (
      'accuracy_without_out_of_vocab_or_end_of_sentence'
    ),
  }
  ours_now = our_model.report_local_unfinalized_metrics()
  theirs_now = their_model.report_local_unfinalized_metrics()
  for our_name, their_name in names.items():
    np.testing.assert_allclose(
      np.ravel(tf.nest.flatten(ours_now[our_name])),
      np.ravel(tf.nest.flatten(theirs_now[their_name])),
    )


@pytest.mark.parametrize('subset', ['first', 'shuffled'])
def test_which_sentences_of_a_large_user_are_used(subset):
  task = tasks.create(
    'stackoverflow_word',
    data='synthetic',
    vocab_size=60,
    max_elements=5,
    epochs=2,
    subset=subset,
  )
  seen = []
  for seed in ((1, 1), (1, 2), (1, 3)):
    batches = helpers.client_batches(task, seed=seed)
    rows = np.concatenate([b[1] for b in batches])
    # 'first' limits the data, 'shuffled' the sentences of all epochs.
    assert len(rows) == (10 if subset == 'first' else 5)
    seen.append(frozenset(map(bytes, rows)))
  assert (len(set(seen)) == 1) == (subset == 'first')
  assert len(seen[0]) == 5


@pytest.mark.exhaustive
def test_real_users(real_data):
  task = tasks.create(
    'stackoverflow_word', cache_dir=str(real_data), vocab_size=5000
  )
  data = task.datasets.train_data
  assert len(data.client_ids) == 365
  tokens = np.concatenate(
    [
      b[1].ravel()
      for client_id in data.client_ids[:20]
      for b in helpers.client_batches(task, client_id)
    ]
  )
  assert tokens.max() <= 5003 and tokens.min() == 0
  words = tokens[(tokens != 0) & (tokens != 5003)]
  # The first 5,000 words cover 94 % of the training tokens.
  assert 0.9 < (words != 5001).mean() < 0.98
  validation = task.datasets.validation_data.batch(1000).as_numpy_iterator()
  assert sum(len(b['tokens']) for b in validation) == 9922
