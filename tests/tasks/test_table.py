"""The task of people's own tables and models."""

import itertools
import sys

import numpy as np
import pandas
import pytest
import tensorflow as tf
from PIL import Image

import tasks
from tasks import encodings
from tasks import registry
from tasks.formats import tables
from tests.tasks import helpers
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive import tff_internals
from tff_adaptive.lab.flags import parsing as flags

MODELS = """
import tensorflow as tf

layers = tf.keras.layers


def deep(num_classes, input_shape, width=5):
  return tf.keras.Sequential([
    layers.InputLayer(input_shape), layers.Flatten(),
    layers.Dense(width), layers.Dense(num_classes)])


def fixed():
  return tf.keras.Sequential([layers.Dense(3, input_shape=(2,))])


def no_model():
  return 3


def narrow():
  return tf.keras.Sequential([layers.Dense(1, input_shape=(2,))])


def unbuilt():
  return tf.keras.Sequential([layers.Dense(3)])


def softmax():
  return tf.keras.Sequential(
    [layers.Dense(3, input_shape=(2,), activation='softmax')])


def softmax_layer():
  inner = [layers.Dense(3, input_shape=(2,)), layers.Softmax()]
  return tf.keras.Sequential([tf.keras.Sequential(inner)])


def share(input_shape):
  return tf.keras.Sequential(
    [layers.Dense(1, input_shape=input_shape, activation='sigmoid')])


def frozen():
  inner = normalized()
  inner.trainable = False
  return tf.keras.Sequential([inner, layers.Dense(3)])


def nested():
  return tf.keras.Sequential([normalized(), layers.Dense(3)])


def normalized():
  return tf.keras.Sequential(
    [layers.BatchNormalization(input_shape=(2,)), layers.Dense(3)])


def fails():
  return {}['width']
"""


@pytest.fixture(name='folder')
def folder_fixture(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, 'path', list(sys.path))
  (tmp_path / 'table_models.py').write_text(MODELS)
  return tmp_path


def write(folder, count=40, labels=('10', '9', 'b'), clients=4):
  rows = [
    f'{i},{100 * (i % 5)},{labels[i % len(labels)]},site {i % clients}'
    for i in range(count)
  ]
  path = folder / 'points.csv'
  path.write_text('\n'.join(['a,b,label,client', *rows]))
  return str(path)


def test_examples_are_held_out_of_each_client(folder):
  path = write(folder)
  task = tasks.create('table', path=path, test_share=0.3, standardize=False)
  data = task.datasets.train_data
  assert data.client_ids == [f'site {i}' for i in range(4)]
  assert data.partition.sizes.tolist() == [7, 7, 7, 7]
  seen = []
  for number, client in enumerate(data.client_ids):
    for x, y in helpers.client_batches(task, client):
      for (a, b), label in zip(x, y, strict=True):
        # Labels are numbered in the alphabet's order: '10', '9', 'b'.
        assert (a % 4, b, label) == (number, 100 * (a % 5), a % 3)
        seen.append(int(a))
  held_out = [int(a) for x, _ in helpers.test_batches(task) for a in x[:, 0]]
  assert sorted(seen + held_out) == list(range(40))
  assert [sum(a % 4 == i for a in held_out) for i in range(4)] == [3, 3, 3, 3]
  again = tasks.create('table', path=path, test_share=0.3, standardize=False)
  other = tasks.create('table', path=path, test_share=0.3, seed=1)
  same = [x for x, _ in helpers.test_batches(again)]
  assert [int(a) for x in same for a in x[:, 0]] == held_out
  assert other.datasets.train_data.partition.sizes.tolist() == [7, 7, 7, 7]


def test_numbers_are_classes_in_their_order(folder):
  path = write(folder, labels=('10', '9', '-1'))
  task = tasks.create('table', path=path, standardize=False)
  for x, y in helpers.test_batches(task):
    assert [[2, 1, 0][int(a) % 3] for a in x[:, 0]] == y.tolist()


@pytest.mark.parametrize('model', [None, 'table_models:deep'])
def test_the_words_of_classes_go_with_the_model(folder, model):
  path = write(folder, labels=('10', '9', '-1'))
  built = tasks.create('table', path=path, model=model).model_fn()
  keras_model = tff_internals.keras_model_of(built)
  names = registry.classes_of('table', 3, keras_model)
  assert names == ('-1', '9', '10')
  # A model whose output is something else than the classes.
  assert registry.classes_of('table', 4, keras_model) == ()
  number = tasks.create('table', path=path, target='number', features='a')
  keras_model = tff_internals.keras_model_of(number.model_fn())
  assert registry.classes_of('table', 1, keras_model) == ()


def test_features_are_standardized_by_training_examples(folder):
  task = tasks.create('table', path=write(folder))
  arrays = task.datasets.train_data.arrays
  np.testing.assert_allclose(arrays['features'].mean(axis=0), 0, atol=1e-5)
  np.testing.assert_allclose(arrays['features'].std(axis=0), 1, atol=1e-5)
  for cell in ('5', '0.1'):
    (folder / 'flat.csv').write_text('a,label\n' + f'{cell},0\n{cell},1\n' * 10)
    flat = tasks.create('table', path='flat.csv', num_clients=2)
    inputs = flat.datasets.train_data.arrays['features']
    np.testing.assert_allclose(inputs, 0, atol=1e-9)
  rows = ''.join(f'{i}e-30,{i % 2}\n' for i in range(20))
  (folder / 'tiny.csv').write_text(f'a,label\n{rows}')
  tiny = tasks.create('table', path='tiny.csv', num_clients=2)
  inputs = tiny.datasets.train_data.arrays['features']
  np.testing.assert_allclose(inputs.std(), 1, rtol=1e-5)


_MIXED = """age,kind,note,label,client
50,red,7,0,a
,blue,9,1,a
30, red ,7,0,a
20,,9,1,a
40,green,7,0,a
60,blue,7,1,a
"""


def test_words_and_empty_cells_become_inputs(folder):
  (folder / 'mixed.csv').write_text(_MIXED)
  task = tasks.create('table', path='mixed.csv', test_share=0.2, words='note')
  inputs = task.datasets.train_data.arrays['features']
  assert inputs.shape == (5, 1 + 3 + 2)
  assert set(np.unique(inputs[:, 1:])) <= {0.0, 1.0}
  assert (inputs[:, 4:].sum(axis=1) == 1).all()
  keras_model = tff_internals.keras_model_of(task.model_fn())
  encoding = encodings.of(keras_model)
  told = encoding.describe()
  assert [c['name'] for c in told] == ['age', 'kind', 'note']
  assert told[1] == dict(
    name='kind', kind='words', words=['blue', 'green', 'red']
  )
  age = told[0]['fill']
  assert task.datasets.train_data.notes == (
    "2 classes: '0' (3 examples), '1' (3 examples).",
    "The features are 'age', 'kind' (3 words), 'note' (2 words).",
    f"1 empty cell of the column 'age' counts as {age:.6g}, its mean.",
    "1 empty cell of the column 'kind' counts as none of its words.",
  )
  # What a served model makes of rows is what training made of them.
  rows = [line.split(',')[:3] for line in _MIXED.splitlines()[1:]]
  served = encoding.encode_rows(tf.constant(rows)).numpy()
  whole = tables.read(
    folder / 'mixed.csv', tables.Names('label', words=['note'])
  )
  np.testing.assert_array_equal(served, encoding.encode(whole))
  empty = served[1]
  assert empty[0] == 0 and served[3][1:4].tolist() == [0, 0, 0]


# As pandas' documentation of read_csv lists them.
_EMPTY = """,#N/A,#N/A N/A,#NA,-1.#IND,-1.#QNAN,-NaN,-nan,1.#IND,1.#QNAN,<NA>,
N/A,NA,NULL,NaN,None,n/a,nan,null""".replace('\n', '').split(',')


@pytest.mark.parametrize('features', ['x,on,word', 'word'])
def test_served_rows_are_read_as_the_file_is(folder, features):
  on = ('True', 'false', '')
  words = ('Gr\u00fcn', 'Gru\u0308n', 'rot\u00a0')
  rows = [
    [cell, on[i % 3], words[i // 2 % 3]]
    for i, cell in enumerate([*_EMPTY, '1.5', '-2e3', '7'])
  ]
  text = [','.join([*row, str(i % 2), 'a']) for i, row in enumerate(rows)]
  (folder / 'served.csv').write_text(
    '\n'.join(['x,on,word,label,client', *text]), encoding='utf-8'
  )
  task = tasks.create('table', path='served.csv', features=features)
  encoding = encodings.of(tff_internals.keras_model_of(task.model_fn()))
  given = [row[-len(encoding.columns) :] for row in rows]
  served = encoding.encode_rows(tf.constant(given)).numpy()
  names = tables.Names('label', features=features.split(','))
  whole = tables.read(folder / 'served.csv', names)
  np.testing.assert_array_equal(served, encoding.encode(whole))
  assert (served[:, -2:].sum(axis=1) == 1).all()


def test_whole_numbers_are_served_with_and_without_decimals(folder):
  """As a reader has a column of whole numbers with missing ones."""
  text = ''.join(f'{i % 2 + 1},{i},{i % 2},a\n' for i in range(8))
  (folder / 'whole.csv').write_text(f'kind,x,label,client\n{text}')
  task = tasks.create('table', path='whole.csv', words='kind')
  encoding = encodings.of(tff_internals.keras_model_of(task.model_fn()))
  rows = tf.constant([['1', '3'], ['1.0', '3'], ['2.0', '3.0'], ['2', '3']])
  served = encoding.encode_rows(rows).numpy()
  np.testing.assert_array_equal(served[0], served[1])
  np.testing.assert_array_equal(served[2], served[3])
  assert (served[:, -2:].sum(axis=1) == 1).all()


def test_words_of_a_schema_may_be_those_of_empty_cells(folder):
  text = ''.join(f'{["NA", "US", ""][i % 3]},{i % 2},a\n' for i in range(9))
  (folder / 'na.csv').write_text(f'where,label,client\n{text}')
  (folder / 'schema.json').write_text('{"where": ["NA", "US"]}')
  task = tasks.create('table', path='na.csv', schema='schema.json')
  inputs = task.datasets.train_data.arrays['features']
  assert {tuple(row) for row in inputs} == {(1, 0), (0, 1), (0, 0)}
  encoding = encodings.of(tff_internals.keras_model_of(task.model_fn()))
  served = encoding.encode_rows(tf.constant([['NA'], ['US'], ['']])).numpy()
  assert served.tolist() == [[1, 0], [0, 1], [0, 0]]


def test_numbers_are_served_with_the_marks_of_training_alone(folder):
  text = ''.join(f'{"ab"[i % 2]};1.{i}00,5;{i % 2};a\n' for i in range(8))
  (folder / 'marks.csv').write_text(f'word;x;label;client\n{text}')
  task = tasks.create('table', path='marks.csv', thousands='.', decimal=',')
  encoding = encodings.of(tff_internals.keras_model_of(task.model_fn()))
  encoding.encode_rows(tf.constant([['a', '1.200,5'], ['b', '12,5']]))
  for cell in ('1234.0', '1.5'):
    with pytest.raises(tf.errors.InvalidArgumentError):
      encoding.encode_rows(tf.constant([['a', cell]]))


@pytest.mark.parametrize('column', ['label', 'client'])
def test_numbers_below_zero_keep_their_sign(folder, column):
  cells = {'label': ['x', 'y', 'x', 'y'], 'client': ['a', 'b', 'c', 'd']}
  cells[column] = ['-0.5', '0.5', '0.50', '-0.0']
  lines = [','.join(['1', *row]) for row in zip(*cells.values())]
  (folder / 'signs.csv').write_text('\n'.join(['x,label,client', *lines * 4]))
  task = tasks.create('table', path='signs.csv', test_share=0.2)
  if column == 'client':
    assert {*task.datasets.train_data.client_ids} == {'-0.5', '0.5', '-0.0'}
  else:
    assert "3 classes: '-0.5'" in ' '.join(task.datasets.train_data.notes)


def test_examples_are_dealt_out_where_nothing_says_whose_they_are(folder):
  rows = '\n'.join(f'{i},{i % 2}' for i in range(100))
  (folder / 'bare.csv').write_text(f'x,label\n{rows}\n')
  task = tasks.create('table', path='bare.csv', num_clients=5)
  assert task.datasets.train_data.partition.sizes.tolist() == [16] * 5
  skewed = tasks.create('table', path='bare.csv', num_clients=5, alpha=0.01)
  counts = skewed.datasets.train_data.partition.label_counts(
    skewed.datasets.train_data.arrays['label']
  )
  assert (counts.min(axis=1) <= 2).sum() >= 3
  with pytest.raises(parameters.ParameterError, match='give `num_clients` to'):
    tasks.create('table', path='bare.csv')
  with pytest.raises(parameters.ParameterError, match=r'`alpha`=1.0 would'):
    tasks.create(
      'table', path='bare.csv', num_clients=5, alpha=1, target='number'
    )
  with pytest.raises(parameters.ParameterError, match='`num_clients`=3 would'):
    tasks.create('table', path=write(folder), num_clients=3)
  with pytest.raises(tasks.PartitionError, match='No client has enough'):
    tasks.create('table', path='bare.csv', num_clients=100)


def test_labels_that_are_none(folder):
  for labels, target, part in (
    (('x',), 'class', 'has the label x only'),
    (('1', 'x'), 'number', "not finite numbers, such as 'x'.*target=class"),
    (('1', 'inf'), 'number', 'labels that are not finite'),
    (('1', '1e999'), 'number', 'labels that are not finite'),
    (('1', '1_0'), 'number', "labels that are not finite numbers.*'1_0'"),
  ):
    with pytest.raises(tasks.DataError, match=part):
      tasks.create('table', path=write(folder, labels=labels), target=target)
  many = tuple(str(i / 7) for i in range(1200))
  with pytest.raises(tasks.DataError, match='1,200 different labels'):
    tasks.create('table', path=write(folder, 1200, labels=many))


@pytest.mark.parametrize(
  'labels, refused',
  [
    ([f'{i}.5' for i in range(60)], True),
    ([str(i) for i in range(60)], False),
    ([str(7 * i) for i in range(300)], True),
    ([f'w{i}' for i in range(60)], False),
  ],
)
def test_numbers_to_predict_are_no_classes(folder, labels, refused):
  path = write(folder, 300, labels=labels)
  if refused:
    with pytest.raises(tasks.DataError, match='table_target=number'):
      tasks.create('table', path=path)
  else:
    tasks.create('table', path=path)
  if labels[0] != 'w0':
    tasks.create('table', path=path, target='number')


@pytest.mark.parametrize('scale', [1e-3, 1.0, 2e5])
def test_predicted_numbers_have_their_own_unit(folder, scale):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(200, 2))
  y = scale * (1000 + 3 * x[:, 0] - x[:, 1])
  rows = [
    f'{a},{b},{c!r},{i % 4}'
    for i, (a, b, c) in enumerate(zip(*x.T.tolist(), y.tolist()))
  ]
  (folder / 'prices.csv').write_text('\n'.join(['a,b,label,client', *rows]))
  task = tasks.create('table', path='prices.csv', target='number')
  model = task.model_fn()
  keras_model = tff_internals.keras_model_of(model)
  for batch in task.datasets.eval_preprocess_fn(task.datasets.test_data):
    model.forward_pass(batch, training=False)
  total, count = model.report_local_unfinalized_metrics()['mean_absolute_error']
  encoding = encodings.of(keras_model)
  rows = tf.constant(x, tf.float64)
  served = encoding.predictions(keras_model(encoding.encode_rows(rows)))
  held_out = task.datasets.test_data.batch(100).get_single_element()
  labels = encoding.predictions(held_out['label']).numpy()
  places = [int(np.argmin(np.abs(y - label))) for label in labels[:, 0]]
  expected = np.abs(served.numpy()[places] - labels).mean()
  assert float(total) / float(count) == pytest.approx(expected, rel=1e-3)
  assert expected < 20 * scale  # It was that of predicting 0.


@pytest.mark.parametrize(
  'labels, classes, part',
  [
    (('1', '1.0', '0', '0.0'), ('0', '1'), "'0' (20 examples)"),
    (('007', '7.00', '8'), ('7.00', '8'), '2 classes'),
    (('1.1', '1.10', '2'), ('1.1', '2'), "'1.10' are numbers that others have"),
    (('Yes', 'yes', 'no'), ('Yes', 'no', 'yes'), "'Yes', 'yes' differ in sp"),
    (('a b', 'A_B', 'c'), ('A_B', 'a b', 'c'), "'A_B', 'a b' differ in sp"),
    (('a', 'a\u200b', 'c'), ('a', 'a\u200b', 'c'), 'differ in spelling'),
    (('caf\u00e9', 'cafe\u0301', 'x'), ('caf\u00e9', 'x'), '2 classes'),
    ((' yes', 'yes ', 'no'), ('no', 'yes'), '2 classes'),
  ],
)
def test_labels_in_several_spellings(folder, labels, classes, part):
  task = tasks.create('table', path=write(folder, labels=labels))
  data = task.datasets.train_data
  assert data.classes == classes or set(data.classes) == {'007', '8'}
  assert any(part in note for note in data.notes)


def test_words_of_a_feature_in_several_spellings(folder):
  rows = [f'{("Wohnung", "wohnung", "Haus")[i % 3]},{i % 2}' for i in range(40)]
  (folder / 'homes.csv').write_text('\n'.join(['kind,label', *rows]))
  task = tasks.create('table', path='homes.csv', num_clients=2)
  assert (
    "The words 'Wohnung', 'wohnung' of the column 'kind' differ in spelling "
    'only, and are different inputs.'
  ) in task.datasets.train_data.notes


@pytest.mark.parametrize(
  'marks, labels, classes',
  [
    (dict(thousands='.'), ('1', '1.000', '2'), ('1', '2', '1.000')),
    (
      dict(thousands='.', decimal=','),
      ('1', '1.000', '1000', '1,0'),
      ('1', '1000'),
    ),
    (dict(decimal=','), ('-0,5', '-0.5', '-0,50'), ('-0,5', '-0.5')),
  ],
)
def test_labels_with_marks_of_their_own(folder, marks, labels, classes):
  path = folder / 'marks.csv'
  rows = [f'{i};{labels[i % len(labels)]};{i % 4}' for i in range(60)]
  path.write_text('\n'.join(['x;label;client', *rows]))
  task = tasks.create('table', path='marks.csv', **marks)
  assert set(task.datasets.train_data.classes) == {*classes}


def test_clients_in_several_spellings(folder):
  rows = [f'{i},{i % 2},{("1", "1.0", "A", "a ")[i % 4]}' for i in range(40)]
  (folder / 'ids.csv').write_text('\n'.join(['x,label,client', *rows]))
  data = tasks.create('table', path='ids.csv').datasets.train_data
  assert data.client_ids == ['1', 'A', 'a']
  assert any("clients 'A', 'a' differ" in note for note in data.notes)
  # Perhaps codes, which are no numbers.
  rows = [f'{i},{i % 2},{("1.1", "1.10", "01", "1")[i % 4]}' for i in range(40)]
  (folder / 'ids.csv').write_text('\n'.join(['x,label,client', *rows]))
  data = tasks.create('table', path='ids.csv').datasets.train_data
  assert data.client_ids == ['1', '1.1']
  assert any("clients '01', '1.10' are numbers" in note for note in data.notes)


def test_labels_of_two_types(folder):
  pandas = pytest.importorskip('pandas')
  pytest.importorskip('pyarrow')
  (folder / 'sites').mkdir()
  for name, labels in (('a', [0, 1]), ('b', ['yes', 'no'])):
    frame = pandas.DataFrame({'x': [1.0, 2.0], 'label': labels})
    frame.to_parquet(folder / 'sites' / f'{name}.parquet')
  with pytest.raises(tasks.DataError) as error:
    tasks.create('table', path='sites')
  for told in ('a.parquet', 'numbers, such as 0', 'b.parquet', "'yes'"):
    assert told in str(error.value)
  for name, labels in (('a', '01'), ('b', 'ny')):
    rows = [f'{i},{labels[i % 2]}' for i in range(4)]
    (folder / f'{name}.csv').write_text('\n'.join(['x,label', *rows]))
  with pytest.raises(tasks.DataError, match=r'a\.csv: its labels are'):
    tasks.create('table', path='.')


def test_large_numbers_are_centred_before_they_are_rounded(folder):
  x = 1_700_000_000 + np.arange(100)
  rows = [f'{t},{t + 0.5},{i // 50},{i % 2}' for i, t in enumerate(x)]
  (folder / 'times.csv').write_text('\n'.join(['t,y,label,client', *rows]))
  for label, target in (('label', 'class'), ('y', 'number')):
    task = tasks.create(
      'table', path='times.csv', features='t', label=label, target=target
    )
    arrays = task.datasets.train_data.arrays
    assert len(np.unique(arrays['features'])) == len(arrays['features'])
    if target == 'number':
      assert len(np.unique(arrays['label'])) == len(arrays['label'])


@pytest.mark.parametrize('form', ['{:05}', '2024-01-01 00:{:02}:00'])
def test_the_last_examples_of_each_client_are_its_test(folder, form):
  order = np.random.default_rng(0).permutation(40)
  rows = [f'{i},{i % 2},{form.format(i)},{i // 20}' for i in order]
  (folder / 'log.csv').write_text('\n'.join(['x,label,when,client', *rows]))
  task = tasks.create('table', path='log.csv', time='when', standardize=False)
  data = task.datasets.train_data
  assert data.arrays['features'].shape[1] == 1
  test = sorted(x for b, _ in helpers.test_batches(task) for x in b[:, 0])
  assert test == [16, 17, 18, 19, 36, 37, 38, 39]
  with pytest.raises(tasks.DataError, match="no column 'then' for the time"):
    tasks.create('table', path='log.csv', time='then')


def test_days_and_months_are_not_guessed(folder):
  for day, told in (
    ('05/11/2024', 'is ambiguous in day'),
    ('13 May 2024', None),
  ):
    rows = [f'{i},{i % 2},{day},{i // 20}' for i in range(40)]
    path = folder / 'log.csv'
    path.write_text('\n'.join(['x,label,when,client', *rows]))
    if told is None:
      tasks.create('table', path='log.csv', time='when')
    else:
      with pytest.raises(tasks.DataError, match=told):
        tasks.create('table', path='log.csv', time='when')


def test_marks_of_numbers_differ(folder):
  path = write(folder)
  with pytest.raises(ValueError, match='also the mark of decimals'):
    tasks.create('table', path=path, decimal=',', thousands=',')


def test_classes_may_be_called_like_empty_cells(folder):
  text = ''.join(f'{i},{["None", "Mild"][i % 2]},c{i % 3}\n' for i in range(12))
  (folder / 'found.csv').write_text(f'x,label,client\n{text}')
  schema = '{"label": ["None", "Mild"], "client": ["c0", "c1", "c2"]}'
  (folder / 'schema.json').write_text(schema)
  task = tasks.create('table', path='found.csv', schema='schema.json')
  assert task.datasets.train_data.classes == ('None', 'Mild')


def test_rows_are_sorted_by_a_number_beside_a_list(folder):
  frame = pandas.DataFrame(
    dict(
      v=[[float(i), 1.0] for i in range(40)], age=range(40), label=[0, 1] * 20
    )
  )
  frame.to_parquet(folder / 'wide.parquet')
  task = tasks.create(
    'table',
    path='wide.parquet',
    partition='continuous',
    partition_by='age',
    num_clients=4,
  )
  assert len(task.datasets.train_data.client_ids) == 4


def test_splits_are_used_as_such(folder):
  (folder / 'parts').mkdir()
  for split, count in (('train', 40), ('test', 8), ('validation', 6)):
    rows = [f'{i},{i % 2}' for i in range(count)]
    path = folder / 'parts' / f'{split}.csv'
    path.write_text('\n'.join(['x,label', *rows]))
  options = dict(path='parts', num_clients=4, standardize=False)
  task = tasks.create('table', **options)
  assert task.datasets.train_data.partition.sizes.sum() == 40
  assert sum(len(x) for x, _ in helpers.test_batches(task)) == 8
  assert len(list(task.datasets.validation_data)) == 6
  for given in (dict(test_share=0.5), dict(time='x', features='x')):
    with pytest.raises(parameters.ParameterError, match='there is a split te'):
      tasks.create('table', **options, **given)


def test_clients_of_one_row_are_merged_by_a_flag(folder):
  path = write(folder, 30, clients=30)
  with pytest.raises(tasks.PartitionError, match='--table_group_size, such as'):
    tasks.create('table', path=path)
  task = tasks.create('table', path=path, group_size=10)
  assert task.datasets.train_data.partition.sizes.tolist() == [8, 8, 8]


def test_a_model_of_ones_own(folder):
  path = write(folder)
  deep = tasks.create('table', path=path, model='table_models:deep')
  assert helpers.weights(deep) == 2 * 5 + 5 + 5 * 3 + 3
  fixed = tasks.create('table', path=path, model='table_models:fixed')
  assert helpers.weights(fixed) == 9
  # Frozen, it is what it was trained to be.
  tasks.create('table', path=path, model='table_models:frozen')
  number = dict(path=path, target='number', label='b', features='a')
  tasks.create('table', **number, model='table_models:share')
  for name, part in (
    ('no_model', 'must return a Keras model .*got int'),
    ('narrow', r'the output shape \(None, 3\).*got \(None, 1\)'),
    ('unbuilt', 'a built model .*got no shape yet'),
    ('softmax', 'ends in softmax; remove it'),
    ('softmax_layer', 'ends in softmax; remove it'),
    ('normalized', 'batch normalisation'),
    ('nested', 'batch normalisation'),
    ('fails', r"fails: KeyError: 'width' \(line \d+ of .*table_models.py\)"),
    ('missing', 'table_models.py defines no function missing'),
  ):
    with pytest.raises(tasks.OwnCodeError, match=part):
      tasks.create('table', path=path, model=f'table_models:{name}')


def test_its_flags(folder):
  del folder
  parse = flags.Flags().parse
  words = ['--task=table', '--table_path=points.csv', '--table_label=b']
  words += ['--model=table_models:deep', '--cache_dir=data']
  settings = parse(words).settings
  assert settings.task_options['model'] == 'table_models:deep'
  assert settings.identity['model'] == 'table_models:deep'
  assert settings.identity['table_path'] == 'points.csv'
  for arguments, part in (
    (['--task=table', '--model=table_models:no'], '--model=table_models:no: '),
    (['--task=table', '--model=resnet'], "'resnet' does not name a function"),
    (['--model=table_models:deep'], '--model=table_models:deep would be ign'),
    (['--task=table', '--table_test_share=1'], '--table_test_share must be'),
  ):
    with pytest.raises(errors.SettingsError) as error:
      parse(arguments)
    assert part in str(error.value)


def test_without_a_path_it_says_what_to_give(tmp_path):
  with pytest.raises(parameters.ParameterError, match='`path` must be given'):
    tasks.create('table')
  with pytest.raises(tasks.DataError, match=r'There is no file .*gone.csv'):
    tasks.create('table', path='gone.csv', cache_dir=str(tmp_path))


def test_rows_are_divided_in_ways_of_ones_own(folder):
  path = folder / 'pool.csv'
  rows = [f'{i},{(7 * i) % 120},{i % 4}' for i in range(120)]
  path.write_text('\n'.join(['a,b,label', *rows]))

  def divided(**options):
    task = tasks.create(
      'table', path=str(path), num_clients=6, standardize=False, **options
    )
    data = task.datasets.train_data
    return data, [data.arrays['features'][r] for r in data.partition.indices]

  data, _ = divided(partition='shards')
  counts = data.partition.label_counts(data.arrays['label'])
  assert ((counts > 0).sum(axis=1) <= 2).all()
  _, clients = divided(partition='continuous', partition_by='b')
  ends = [(c[:, 1].min(), c[:, 1].max()) for c in clients]
  assert all(a[1] < b[0] for a, b in itertools.pairwise(ends))
  data, clients = divided(
    partition='continuous', target='number', label='a', strictness=1.0
  )
  means = [data.arrays['label'][r].mean() for r in data.partition.indices]
  assert means == sorted(means)
  data, _ = divided(sizes='linear', feature_skew='shift')
  sizes = data.partition.sizes
  assert sizes[-1] > 4 * sizes[0] and data.skewed == 'features'
  for options, told in (
    (
      dict(partition='continuous', partition_by='c'),
      "'?c'? must be a numeric feature|=c is",
    ),
    (dict(partition_by='b'), 'would be ignored'),
    (dict(partition='shards', alpha=1.0), 'alpha'),
    (dict(partition='shards', target='number'), "use 'continuous'"),
    (dict(group_size=2), 'neither a column nor a file'),
  ):
    with pytest.raises(parameters.ParameterError, match=told):
      divided(**options)


def test_named_clients_are_grouped(folder):
  task = tasks.create('table', path=write(folder), group_size=3)
  sizes = task.datasets.train_data.partition.sizes
  assert sizes.tolist() == [24, 8]
  with pytest.raises(parameters.ParameterError, match='already assigns'):
    tasks.create('table', path=write(folder), partition='iid')


@pytest.mark.parametrize('vocabulary', ['fitted', 'words.txt'])
def test_words_keep_the_marks_of_their_letters(folder, vocabulary):
  texts = [
    '\u0939\u093f\u0928\u094d\u0926\u0940',
    'caf\u00e9',
    'cafe\u0301',
    "don't",
  ]
  rows = [f'{i % 2},{text},s{i}' for i in range(4) for text in texts]
  (folder / 'texts.csv').write_text('\n'.join(['label,text,client', *rows]))
  (folder / 'words.txt').write_text('\n'.join(texts))
  task = tasks.create(
    'table', path='texts.csv', text='text', vocabulary=vocabulary, max_length=3
  )
  model = tff_internals.keras_model_of(task.model_fn())
  [told] = encodings.of(model).describe()
  assert {*told['words']} == {texts[0], texts[1], 'don', 't'}
  tokens = encodings.of(model).encode_rows(tf.constant([texts[0], texts[3]]))
  assert (tokens.numpy() > 1).sum(axis=1).tolist() == [1, 2]


@pytest.mark.parametrize(
  'options, told',
  [
    (
      dict(alpha=5.0, partition='iid'),
      r'`alpha`=5.0 would be ignored: .*of dirichlet, inner_dirichlet, lda\.',
    ),
    (dict(classes_per_client=7), '`classes_per_client`=7 would be ignored'),
  ],
)
def test_options_that_a_partition_ignores_are_refused(options, told):
  for name in ('digits', 'table'):
    with pytest.raises(parameters.ParameterError, match=told):
      tasks.create(name, data='synthetic', **options)


def test_a_schema_of_no_column_is_refused(folder):
  (folder / 'schema.json').write_text(
    '{"A": [0, 50], "label": ["10", "9", "b"]}'
  )
  options = dict(path=write(folder), schema='schema.json')
  with pytest.raises(tasks.DataError, match="there is no column 'A'"):
    tasks.create('table', **options)
  # It may describe more than is learnt from.
  tasks.create('table', features='a', **options)
  tasks.create('table', text='client', client='a', group_size=10, **options)


@pytest.mark.parametrize('vocabulary', ['fitted', 'hashed'])
def test_a_column_of_text(folder, vocabulary):
  rng = np.random.default_rng(0)
  words = np.array(['good fine', 'bad poor', 'so so'])
  labels = rng.integers(3, size=120)
  rows = [
    f'{label},"{words[label]}, {rng.integers(9)} times",{i % 4}'
    for i, label in enumerate(labels)
  ]
  (folder / 'texts.csv').write_text('\n'.join(['label,text,client', *rows]))
  task = tasks.create(
    'table',
    path='texts.csv',
    text='text',
    vocabulary=vocabulary,
    vocab_size=60,
    max_length=6,
    batch_size=8,
  )
  data = task.datasets.train_data
  assert data.arrays['features'].dtype == np.int32
  assert data.arrays['features'].shape[1] == 6
  helpers.loss_falls(task, rate=1.0, steps=60, below=0.5)
  keras_model = tff_internals.keras_model_of(task.model_fn())
  [told] = encodings.of(keras_model).describe()
  assert told['kind'] == 'text' and told['vocabulary'] == vocabulary


def test_folders_of_images(folder):
  rng = np.random.default_rng(0)
  for i in range(24):
    level = 40 if i % 2 else 180
    path = folder / 'photos' / f'site_{i % 3}' / ('dark' if i % 2 else 'light')
    path.mkdir(parents=True, exist_ok=True)
    pixels = rng.integers(level, level + 40, [6, 7, 3]).astype(np.uint8)
    Image.fromarray(pixels).save(path / f'{i}.png')
  task = tasks.create('table', path='photos', batch_size=4)
  data = task.datasets.train_data
  assert data.client_ids == ['site_0', 'site_1', 'site_2']
  assert data.arrays['features'].shape[1:] == (6, 7, 3)
  assert data.classes == ('dark', 'light')
  # By channels, so that a pixel of one colour everywhere is not noise.
  mean = data.arrays['features'].mean(axis=(0, 1, 2))
  np.testing.assert_allclose(mean, 0, atol=1e-4)
  helpers.loss_falls(task, rate=0.05, below=0.7)
  (folder / 'photos' / 'site_3').mkdir()
  with pytest.raises(tasks.DataError, match='site_3 has no folder of images'):
    tasks.create('table', path='photos', batch_size=4)


@pytest.mark.parametrize(
  'options, told',
  [
    (dict(vocabulary='hashed'), 'needs `text`'),
    (dict(text='a', features='b'), '`features`=b would be ignored'),
    (dict(text='a', image_size=8), '`image_size`=8 would be ignored'),
    (dict(text='a', data='synthetic'), 'synthetic table'),
    (dict(vocab_size=2), 'at least 3'),
  ],
)
def test_options_of_texts_that_do_not_fit(options, told):
  with pytest.raises(parameters.ParameterError, match=told):
    tasks.create('table', path='x.csv', **options)
