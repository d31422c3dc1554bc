"""LIBSVM's format and logistic regression on it."""

import numpy as np
import pytest

import tasks
from tasks.formats import data_files
from tasks.problems import libsvm_logistic
from tests.tasks import helpers


def _read(tmp_path, text, num_features=4):
  path = tmp_path / 'd'
  path.write_text(text)
  return libsvm_logistic.read(path, num_features=num_features, get='Get it.')


@pytest.mark.parametrize(
  'low, high', [('-1', '+1'), ('0', '1'), ('1', '2'), ('-1.0', '1.0')]
)
def test_the_larger_label_is_the_positive_one(tmp_path, low, high):
  features, labels = _read(
    tmp_path, f'{high} 1:0.5 4:-2\n{low}\n\n{low} 2:1e-3 3:0.0\n'
  )
  assert labels.tolist() == [1, 0, 0]
  np.testing.assert_allclose(
    features, [[0.5, 0, 0, -2], [0, 0, 0, 0], [0, 1e-3, 0, 0]]
  )
  assert features.dtype == labels.dtype == np.float32


@pytest.mark.parametrize(
  'text, message',
  [
    ('', 'two different labels, got 0: '),
    ('1 1:1\n1 2:1\n', 'two different labels, got 1: 1'),
    ('2 1:1\n\n1 2:1\n3\n', 'two different labels, got 3: 1, 2, 3'),
    ('1 1:1\nnan 2:1\n', 'two different labels, got 2: 1, nan'),
    (
      '1 1:1\n-1 2\n',
      'pairs index:value a line, with ascending indices from 1 to 4',
    ),
    ('1 1:1\nhello 2:1\n', "pairs.* b'hello'"),
    ('1 1:1\n-1 2:x\n', "pairs.* b'x'"),
    ('1 1:1\n-1 0:1\n', 'ascending indices from 1 to 4: Invalid index 0'),
    ('1 1:1\n-1 5:1\n', 'from 1 to 4: n_features.* contains 5 features'),
    ('1 1:1\n-1 3:1 2:1\n', 'from 1 to 4.* sorted and unique'),
    ('1 1:1\n-1 99999999999999999999:1\n', 'ascending indices'),
    ('1 1:1\n-1 3:nan\n', 'a value that is not finite'),
  ],
)
def test_damaged_files_are_named(tmp_path, text, message):
  with pytest.raises(data_files.DataError, match=message) as caught:
    _read(tmp_path, text)
  told = str(caught.value)
  assert str(tmp_path / 'd') in told and told.endswith('. Get it.')
  assert '..' not in told and '\n' not in told


def test_what_is_no_text_is_named(tmp_path):
  (tmp_path / 'd').write_bytes(b'\x1f\x8b\xff\x00')
  with pytest.raises(data_files.DataError, match='no whole file of a label'):
    libsvm_logistic.read(tmp_path / 'd', num_features=4, get='')
  with pytest.raises(data_files.DataError, match='no file'):
    libsvm_logistic.read(tmp_path / 'e', num_features=4, get='')


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'name, features, train, test, positive',
  [
    ('a9a', 123, 32_561, 16_281, 7_841),
    ('ijcnn1', 22, 49_990, 91_701, 4_853),
    ('w8a', 300, 39_799, 9_950, None),
    ('mushrooms', 112, 6_499, 1_625, None),
    ('phishing', 68, 8_844, 2_211, None),
  ],
)
def test_real_data(real_data, name, features, train, test, positive):
  task = tasks.create('libsvm_logistic', dataset=name, cache_dir=str(real_data))
  arrays = task.datasets.train_data.arrays
  assert arrays['features'].shape == (train, features)
  assert helpers.weights(task) == features + 1
  batches = helpers.test_batches(task)
  assert sum(len(b[1]) for b in batches) == test
  assert set(np.unique(arrays['label'])) == {0, 1}
  whole = arrays['label'].sum() + sum(b[1].sum() for b in batches)
  if positive is not None:
    assert arrays['label'].sum() == positive
  else:
    # Before a fifth was set aside: counts of the whole file.
    assert whole == dict(w8a=1_479, mushrooms=4_208, phishing=6_157)[name]
  assert (task.datasets.train_data.partition.sizes == train // 100).all()
