"""AG News and DBpedia over clients."""

import numpy as np
import pytest

import tasks
from tasks.text import text_classification
from tests.tasks import helpers
from tests.tasks.formats import test_pretrained
from tests.tasks.models import test_distilbert

_SMALL = dict(blocks=1, width=64, vocab_size=500, max_length=32)


def _read(path, num_classes=4):
  return text_classification.read_csv(path, num_classes, 'Get it.')


def test_both_forms_of_csv_are_read(tmp_path):
  path = tmp_path / 'a.csv'
  path.write_text('label,content\n1,"Oil\\pipeline, again"\n4,x\n')
  texts, labels = _read(path)
  assert texts == ['Oil pipeline, again', 'x'] and labels.tolist() == [0, 3]
  path.write_text('2,"A title","A ""body"" é"\n')
  texts, labels = _read(path)
  assert texts == ['A title A "body" é'] and labels.tolist() == [1]
  texts, _ = text_classification.read_csv(path, 4, 'Get it.', titles=False)
  assert texts == ['A "body" é']


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'no whole CSV file of labels'),
    (b'label,content\n', 'row 1: a label from 1 to 4'),
    (b'1,a\n5,b\n', "row 2: a label from 1 to 4 and a text.*'5,b'"),
    (b'1,a\n0,b\n', "row 2.*got '0,b'"),
    (b'1,a\nworld,b\n', "row 2: a label.*'world,b'"),
    (b'1,a\n2\n', 'row 2'),
    (b'1,a\n2,"b', 'no whole CSV file'),
    (b'1,\xff\xfe\n', "can't decode byte"),
  ],
)
def test_damaged_files_are_named(tmp_path, content, message):
  path = tmp_path / 'a.csv'
  path.write_bytes(content)
  with pytest.raises(tasks.DataError, match=message):
    _read(path)


@pytest.mark.exhaustive
def test_real_news(real_data):
  task = tasks.create('ag_news', cache_dir=str(real_data), **_SMALL)
  data = task.datasets.train_data
  # 8,000 texts are fewer than the paper's 60 x 500.
  assert data.partition.sizes.tolist() == [133] * 60
  assert np.bincount(data.arrays['label']).tolist() == [2000] * 4
  tokens, labels = (
    np.concatenate(parts)
    for parts in zip(*helpers.test_batches(task), strict=True)
  )
  assert np.bincount(labels).tolist() == [1900] * 4
  assert tokens.shape == (7600, 32) and tokens.dtype == np.int32
  assert (tokens[:, 0] == 2).all() and tokens.max() < 500
  assert len(np.unique(labels[:50])) == 4


@pytest.mark.parametrize('name, classes', [('ag_news', 4), ('dbpedia', 14)])
def test_files_of_either_data_set_are_read(tmp_path, name, classes):
  folder = tmp_path / name
  folder.mkdir()
  for split, count in (('train', 200), ('test', 30)):
    lines = [
      f'{i % classes + 1},"Title {i}","word{i % classes} and more"'
      for i in range(count)
    ]
    (folder / f'{split}.csv').write_text('\n'.join(lines) + '\n')
  task = tasks.create(
    name, cache_dir=str(tmp_path), num_clients=5, partition='iid', **_SMALL
  )
  data = task.datasets.train_data
  assert data.partition.sizes.tolist() == [40] * 5
  assert sum(len(b[1]) for b in helpers.test_batches(task)) == 30
  assert data.arrays['label'].max() == classes - 1
  (folder / 'test.csv').unlink()
  with pytest.raises(tasks.DataError, match=r'no file.*test.csv'):
    tasks.create(name, cache_dir=str(tmp_path))


def test_weights_of_a_folder_are_used(tmp_path):
  (tmp_path / 'vocab.txt').write_text(
    '\n'.join(['[PAD]', '[UNK]', '[CLS]', '[SEP]', *'abcdefghijklmnop'])
  )
  test_pretrained.write_safetensors(
    tmp_path / 'model.safetensors', test_distilbert._checkpoint()
  )
  with pytest.raises(tasks.DataError, match=r'must have the shape \(20, 64\)'):
    tasks.create(
      'ag_news', data='synthetic', weights_dir=str(tmp_path), **_SMALL
    )


def test_a_folder_in_place_of_a_file_is_refused(tmp_path):
  (tmp_path / 'ag_news' / 'train.csv').mkdir(parents=True)
  with pytest.raises(tasks.DataError, match=r'train\.csv is no whole CSV file'):
    tasks.create('ag_news', cache_dir=str(tmp_path))


def test_a_vocabulary_has_words():
  with pytest.raises(ValueError, match=r'`vocab_size` must be above 4.*got 4'):
    tasks.create('ag_news', data='synthetic', vocab_size=4)


def test_widths_are_of_whole_heads():
  with pytest.raises(ValueError, match=r'multiple of 64.*got 100'):
    tasks.create('ag_news', data='synthetic', width=100)
