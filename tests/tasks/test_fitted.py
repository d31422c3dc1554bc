"""Under differential privacy nothing is fitted on examples without noise."""

import json

import numpy as np
import pytest
from PIL import Image

from tasks import encodings
from tests import runs
from tff_adaptive import errors
from tff_adaptive import tff_internals
from tff_adaptive.lab.training import experiment

_RUN = (
  *('--algorithm=fedavg', '--client_optimizer=sgd', '--total_rounds=2'),
  *('--client_learning_rate=0.1', '--clients_per_round=2'),
)
_PRIVATE = ('--dp_clip_norm=1', '--target_epsilon=10')


@pytest.fixture(name='folder')
def folder_fixture(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  cities, answers = ('Oslo', 'Rome', 'Rome'), ('no', 'yes')
  rows = [
    f'{30 + i},{cities[i % 3]},{answers[i % 2]},s{i % 4}' for i in range(40)
  ]
  (tmp_path / 'people.csv').write_text(
    '\n'.join(['age,city,label,client', *rows])
  )
  (tmp_path / 'notes.csv').write_text(
    '\n'.join(
      ['note,label,client', *(f'good day,{i % 2},s{i % 4}' for i in range(40))]
    )
  )
  for i in range(24):
    place = tmp_path / 'photos' / f's{i % 3}' / ('dark' if i % 2 else 'light')
    place.mkdir(parents=True, exist_ok=True)
    pixels = np.full([4, 4, 3], 200 if i % 2 else 20, np.uint8)
    Image.fromarray(pixels).save(place / f'{i}.png')
  return tmp_path


def create(path, *arguments, private=_PRIVATE):
  words = [*_RUN, *private, '--task=table', f'--table_path={path}']
  return experiment.create_task(runs.parse(*words, *arguments))


def schema(folder, **columns):
  (folder / 'schema.json').write_text(json.dumps(columns))
  return '--table_schema=schema.json'


def exported(task):
  model = tff_internals.keras_model_of(task.model_fn())
  return encodings.of(model).describe()


@pytest.mark.parametrize(
  'given, told',
  [
    ({}, ["means and deviations of 'age'", "words of 'city'", 'classes of']),
    ({'age': [0, 100]}, ["words of 'city'", "classes of 'label'"]),
    ({'age': [0, 100], 'city': ['Rome', 'Oslo']}, ["classes of 'label'"]),
    (
      {'city': ['Rome', 'Oslo'], 'label': ['no', 'yes']},
      ["means and deviations of 'age'"],
    ),
  ],
)
def test_private_runs_are_refused_if_something_is_fitted(folder, given, told):
  with pytest.raises(errors.SettingsError) as error:
    create('people.csv', *([schema(folder, **given)] if given else []))
  for part in [*told, 'without noise', '--table_schema']:
    assert part in str(error.value)
  create('people.csv', private=())
  create('people.csv', private=['--dp_clip_norm=1'])  # No guarantee is claimed.


def test_means_of_empty_cells_are_fitted_without_standardization(folder):
  given = schema(folder, city=['Rome', 'Oslo'], label=['no', 'yes'])
  with pytest.raises(errors.SettingsError, match="deviations of 'age'"):
    create('people.csv', given, '--table_standardize=false')


def test_a_schema_leaves_no_trace_of_examples(folder):
  given = schema(
    folder, age=[0, 100], city=['Oslo', 'Paris'], label=['no', 'yes', 'never']
  )
  task = create('people.csv', given)
  data = task.datasets.train_data
  assert data.fitted == () and data.classes == ('no', 'yes', 'never')
  age, city = exported(task)
  assert (age['shift'], age['scale'], age['fill']) == (50, 50, 50)
  assert city['words'] == ['Oslo', 'Paris']  # Rome is none of them.
  before = exported(task)
  text = (folder / 'people.csv').read_text().replace('33,', ',')
  (folder / 'people.csv').write_text(text.replace('Rome', 'Bern'))
  task = create('people.csv', given)
  assert exported(task) == before
  notes = ' '.join(task.datasets.train_data.notes)
  assert "'age' counts as 50, the middle of its range." in notes


def test_words_of_a_schema_are_read_as_the_cells_are(folder):
  text = (folder / 'people.csv').read_text(encoding='utf-8')
  text = text.replace('Oslo', 'K\u00f6ln')
  (folder / 'people.csv').write_text(text, encoding='utf-8')
  task = create(
    'people.csv', schema(folder, city=['Ko\u0308ln', ' Rome']), private=()
  )
  assert exported(task)[1]['words'] == ['K\u00f6ln', 'Rome']
  assert 'empty' not in ' '.join(task.datasets.train_data.notes)


def test_classes_of_a_schema_are_numbers_in_any_spelling(folder):
  text = (folder / 'people.csv').read_text()
  text = text.replace(',yes,', ',1.0,').replace(',no,', ',0,')
  (folder / 'people.csv').write_text(text)
  given = schema(
    folder, age=[0, 100], city=['Rome'] * 2 + ['Oslo'], label=[0, 1]
  )
  assert create('people.csv', given).datasets.train_data.classes == ('0', '1')


def test_vocabularies_are_hashed_or_given(folder):
  classes = schema(folder, label=['0', '1'])
  text = ('--table_text=note', classes)
  with pytest.raises(errors.SettingsError, match="vocabulary of 'note'"):
    create('notes.csv', *text)
  create('notes.csv', *text, '--table_vocabulary=hashed')
  (folder / 'words.txt').write_text('Good\nbad\n')
  [column] = exported(
    create('notes.csv', *text, '--table_vocabulary=words.txt')
  )
  assert column['words'] == ['good', 'bad']
  with pytest.raises(errors.SettingsError, match=r'no file none.txt'):
    create('notes.csv', *text, '--table_vocabulary=none.txt')


def test_channels_of_images_have_ranges(folder):
  classes = {'label': ['dark', 'light']}
  with pytest.raises(errors.SettingsError, match="deviations of 'image'"):
    create('photos', schema(folder, **classes))
  task = create('photos', schema(folder, image=[0, 255], **classes))
  pixels = task.datasets.train_data.arrays['features']
  np.testing.assert_allclose(
    np.unique(pixels), np.array([20, 200]) / 127.5 - 1, atol=1e-6
  )


@pytest.mark.parametrize(
  'content, told',
  [
    ('{', 'no whole JSON file'),
    ('[1]', 'an object of JSON'),
    ('{"age": 3}', "column 'age': a range"),
    ('{"age": ["x", "y", "z"]}', "'age' has none of the words 'x', 'y', 'z'"),
    ('{"age": [1, 2, 3]}', r'\[low, high\] was expected'),
    ('{"age": [5, 1]}', r'\[low, high\] was expected'),
    ('{"label": ["no", "maybe"]}', "the label 'yes'"),
  ],
)
def test_schemas_that_do_not_fit(folder, content, told):
  (folder / 'schema.json').write_text(content)
  with pytest.raises(errors.SettingsError, match=told):
    create('people.csv', '--table_schema=schema.json', private=())


def test_texts_need_a_given_vocabulary(tmp_path):
  (tmp_path / 'ag_news').mkdir()
  rows = '\n'.join(f'{1 + i % 4},word{i % 7} more,text' for i in range(80))
  for name in ('train.csv', 'test.csv'):
    (tmp_path / 'ag_news' / name).write_text(rows)
  words = [*_RUN, '--task=ag_news', f'--cache_dir={tmp_path}']
  words += ['--ag_news_num_clients=4', '--ag_news_blocks=1']
  words += ['--ag_news_width=64']
  with pytest.raises(errors.SettingsError, match='ag_news_weights_dir'):
    experiment.create_task(runs.parse(*words, *_PRIVATE))
  experiment.create_task(runs.parse(*words))
