"""Padding counts in no loss and no metric."""

import numpy as np
import pytest
import tensorflow as tf

from tasks.models import text as text_models

_LABELS = np.array([[3, 1, 2, 0, 0], [1, 4, 0, 0, 0]])


def _logits(seed=0):
  return np.random.default_rng(seed).normal(size=[2, 5, 6]).astype(np.float32)


def test_the_loss_is_the_mean_over_real_tokens():
  logits = _logits()
  log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
  rows, columns = np.nonzero(_LABELS)
  expected = -log_p[rows, columns, _LABELS[rows, columns]].mean()
  loss = text_models.NextTokenLoss()
  assert float(loss(_LABELS, logits)) == pytest.approx(expected, rel=1e-6)


def test_padding_can_count():
  """At the logits of the first padded place, as a masked LSTM repeats them."""
  logits = _logits()
  log_p = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
  places = np.array([[0, 1, 2, 3, 3], [0, 1, 2, 2, 2]])
  terms = [
    log_p[row, places[row, column], _LABELS[row, column]]
    for row in range(2)
    for column in range(5)
  ]
  loss = text_models.PaddedNextTokenLoss()
  assert float(loss(_LABELS, logits)) == pytest.approx(
    -np.mean(terms), rel=1e-6
  )
  # Nothing but padding, and none at all.
  for labels, taken in ((_LABELS * 0, [0, 0, 0]), (_LABELS * 0 + 1, [0, 1, 2])):
    expected = -log_p[:, taken, labels[0, 0]].mean()
    found = loss(labels[:, :3], logits[:, :3])
    assert float(found) == pytest.approx(expected, rel=1e-6)


def test_predictions_on_padding_change_nothing():
  loss = text_models.NextTokenLoss()
  logits, other = _logits(), _logits(1)
  other = np.where((_LABELS == 0)[..., np.newaxis], other, logits)
  assert (other != logits).any()
  np.testing.assert_array_equal(loss(_LABELS, logits), loss(_LABELS, other))
  with tf.GradientTape() as tape:
    variable = tf.Variable(logits)
    value = loss(_LABELS, variable)
  gradient = tape.gradient(value, variable).numpy()
  assert (gradient[_LABELS == 0] == 0).all()
  assert (np.abs(gradient[_LABELS != 0]).sum(axis=-1) > 0).all()


def test_a_longer_tail_of_padding_changes_nothing():
  loss = text_models.NextTokenLoss()
  logits = _logits()
  longer = np.pad(logits, [[0, 0], [0, 7], [0, 0]])
  labels = np.pad(_LABELS, [[0, 0], [0, 7]])
  assert float(loss(labels, longer)) == pytest.approx(
    float(loss(_LABELS, logits)), rel=1e-6
  )


def test_nothing_but_padding_has_no_loss():
  loss = text_models.NextTokenLoss()
  variable = tf.Variable(_logits())
  with tf.GradientTape() as tape:
    value = loss(np.zeros([2, 5], np.int64), variable)
  assert float(value) == 0
  assert (tape.gradient(value, variable).numpy() == 0).all()


def test_it_is_kerass_loss_under_a_mask():
  keras = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  logits = tf.constant(_logits())
  logits._keras_mask = tf.not_equal(_LABELS, 0)
  assert float(keras(_LABELS, logits)) == pytest.approx(
    float(text_models.NextTokenLoss()(_LABELS, _logits())), rel=1e-6
  )


def test_metrics_count_real_tokens():
  logits = np.zeros([2, 5, 6], np.float32)
  predicted = np.array([[3, 5, 2, 0, 0], [1, 0, 0, 0, 1]])
  np.put_along_axis(logits, predicted[..., np.newaxis], 1.0, axis=-1)
  for left_out, expected in (((), 3 / 5), ((3,), 2 / 4), ((3, 4), 2 / 3)):
    accuracy = text_models.TokenAccuracy(left_out=left_out)
    accuracy.update_state(tf.constant(_LABELS), logits)
    assert float(accuracy.result()) == pytest.approx(expected)
  tokens = text_models.NumTokens()
  for _ in range(2):
    tokens.update_state(_LABELS, logits)
  assert int(tokens.result()) == 10


def test_metrics_can_be_made_anew_from_their_configuration():
  accuracy = text_models.TokenAccuracy(left_out=[3, 4], name='some')
  again = text_models.TokenAccuracy.from_config(accuracy.get_config())
  assert again.name == 'some' and again._left_out == (0, 3, 4)
