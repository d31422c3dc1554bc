"""Tags of Stack Overflow posts."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tasks.models import text as text_models
from tasks.text import stackoverflow
from tests.tasks import helpers


def test_posts_become_shares_of_words_and_tags():
  to_model = stackoverflow._build_to_labels(['a', 'b', 'c'], ['x', 'y'])
  words, tags = to_model(
    dict(
      tokens=tf.constant(['a b a zzz', 'zzz', '']),
      title=tf.constant(['c', '', '']),
      tags=tf.constant(['y|other', 'x|y|x', '']),
    )
  )
  np.testing.assert_allclose(
    words, [[0.5, 0.25, 0.25], [0, 0, 0], [0, 0, 0]], rtol=1e-6
  )
  assert tags.numpy().tolist() == [[0, 1], [1, 1], [0, 0]]


def test_a_single_tag_is_the_first_known_one():
  to_model = stackoverflow._build_to_labels(['a'], ['x', 'y'], 'single')
  posts = ['y|x', 'other|x|y', 'other', '']
  for some, expected in ((posts, [1, 0, 2, 2]), (posts[2:], [2, 2])):
    words, tags = to_model(
      dict(
        tokens=tf.fill([len(some)], 'a'),
        title=tf.fill([len(some)], ''),
        tags=tf.constant(some),
      )
    )
    assert words.shape == (len(some), 1)
    assert tags.dtype == tf.int64 and tags.numpy().tolist() == expected


def test_loss_and_accuracy_of_a_single_tag():
  """A mean over sentences whose tag is known, here all but the third."""
  logits = np.array([[2.0, 0, 1], [0, 1, 3], [9, 0, 0], [1, 0, 0]], np.float32)
  tags = np.array([0, 1, 3, 2])
  log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
  expected = -np.mean([log_p[0, 0], log_p[1, 1], log_p[3, 2]])
  loss = text_models.SingleTagLoss()
  assert float(loss(tags, logits)) == pytest.approx(expected, rel=1e-6)
  assert float(loss(np.array([3, 3]), logits[:2])) == 0
  accuracy = text_models.SingleTagAccuracy()
  accuracy.update_state(tf.constant(tags), logits)
  assert float(accuracy.result()) == pytest.approx(1 / 3)


def test_training_on_a_single_tag():
  task = tasks.create(
    'stackoverflow_tag',
    data='synthetic',
    vocab_size=60,
    num_tags=8,
    labels='single',
  )
  model = task.model_fn()
  for variable in model.trainable_variables:
    variable.assign(tf.zeros_like(variable))
  x, y = helpers.client_batches(task)[0]
  assert y.shape == (len(x),) and set(y) <= set(range(8))
  loss = model.forward_pass((tf.constant(x), tf.constant(y))).loss
  assert float(loss) == pytest.approx(np.log(8), rel=1e-5)
  assert 'accuracy' in model.report_local_unfinalized_metrics()
  helpers.loss_falls(task, rate=3.0, steps=40)


def test_input_is_that_of_tffs_baseline():
  datasets = tff.simulation.datasets.stackoverflow
  spec = tff.simulation.baselines.ClientSpec(
    num_epochs=1, batch_size=4, shuffle_buffer_size=1
  )
  theirs = tff.simulation.baselines.stackoverflow.create_tag_prediction_task(
    spec, use_synthetic_data=True
  )
  to_model = stackoverflow._build_to_labels(
    list(datasets.get_synthetic_word_counts()),
    list(datasets.get_synthetic_tag_counts()),
  )
  data = theirs.datasets.train_data
  for client_id in data.client_ids:
    raw = data.create_tf_dataset_for_client(client_id)
    found = raw.batch(4).map(to_model).as_numpy_iterator()
    expected = theirs.datasets.train_preprocess_fn(raw).as_numpy_iterator()
    for (x, y), (their_x, their_y) in zip(found, expected, strict=True):
      np.testing.assert_allclose(x, their_x, rtol=1e-6)
      np.testing.assert_array_equal(y, their_y)


def test_the_loss_sums_over_examples_and_averages_over_tags():
  task = tasks.create(
    'stackoverflow_tag', data='synthetic', vocab_size=60, num_tags=8
  )
  model = task.model_fn()
  for variable in model.trainable_variables:
    variable.assign(tf.zeros_like(variable))
  x, y = helpers.client_batches(task)[0]
  # Sigmoids of 0 are 1/2: each tag of each example costs log 2.
  loss = model.forward_pass((tf.constant(x), tf.constant(y))).loss
  assert float(loss) == pytest.approx(len(x) * np.log(2), rel=1e-4)


def test_what_is_far_off_has_a_gradient_still():
  task = tasks.create(
    'stackoverflow_tag', data='synthetic', vocab_size=60, num_tags=8
  )
  model = task.model_fn()
  kernel, bias = model.trainable_variables
  kernel.assign(tf.zeros_like(kernel))
  bias.assign(tf.fill([8], -100.0))
  x, y = helpers.client_batches(task)[0]
  with tf.GradientTape() as tape:
    loss = model.forward_pass((tf.constant(x), tf.constant(y))).loss
  # Of sigmoid and cross entropy together: (0 - y) / 8, summed over examples.
  np.testing.assert_allclose(
    tape.gradient(loss, bias), -y.sum(axis=0) / 8, rtol=1e-5
  )
  assert float(loss) == pytest.approx(100 * y.sum() / 8, rel=1e-5)


def test_real_users(real_data):
  task = tasks.create(
    'stackoverflow_tag', cache_dir=str(real_data), vocab_size=1000, num_tags=100
  )
  assert len(task.datasets.train_data.client_ids) == 365
  words, tags = (
    np.concatenate(parts)
    for parts in zip(*helpers.test_batches(task, 2000), strict=True)
  )
  assert words.shape == (2000, 1000) and tags.shape == (2000, 100)
  totals = words.sum(axis=1)
  assert np.all(np.isclose(totals, 1, atol=1e-5) | (totals == 0))
  assert set(np.unique(tags)) == {0, 1}
  # 93 % of training sentences have one of the first 100 tags.
  assert 0.8 < (tags.sum(axis=1) > 0).mean() <= 1


def test_more_tags_than_there_are_is_refused(real_data):
  with pytest.raises(tasks.DataError, match=r'406 entries.*`num_tags` is 500'):
    tasks.create('stackoverflow_tag', cache_dir=str(real_data))


def test_a_draw_of_users(real_data):
  def users(**options):
    return tasks.create(
      'stackoverflow_tag',
      cache_dir=str(real_data),
      vocab_size=100,
      num_tags=10,
      **options,
    ).datasets.train_data.client_ids

  some = users(num_users=40)
  assert len(some) == 40 and set(some) < set(users())
  assert some == users(num_users=40) != users(num_users=40, seed=1)
  with pytest.raises(tasks.PartitionError, match=r'at most 365.*got 400'):
    users(num_users=400)


def test_nobody_is_cut_unless_asked():
  """Section C.4 cuts users at 1,000 sentences for next words only."""
  plain = tasks.create('stackoverflow_tag', data='synthetic')
  recipe = plain.datasets.train_preprocess_fn.recipe
  assert len(recipe.order(2500, 0)) == 2500
  for subset in ('first', 'shuffled'):
    cut = tasks.create(
      'stackoverflow_tag', data='synthetic', subset=subset, max_elements=7
    )
    assert len(cut.datasets.train_preprocess_fn.recipe.order(2500, 0)) == 7
  words = tasks.create('stackoverflow_word', data='synthetic')
  recipe = words.datasets.train_preprocess_fn.recipe
  assert len(recipe.order(2500, 0)) == 1000
  # The pipeline does as the recipe.
  many = plain.datasets.train_data.create_tf_dataset_for_client(
    plain.datasets.train_data.client_ids[0]
  ).repeat(100)
  batches = plain.datasets.train_preprocess_fn(many)
  assert sum(len(x) for x, _ in batches.as_numpy_iterator()) == 1600
