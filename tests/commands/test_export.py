"""A run's model, used without TensorFlow Federated."""

import itertools
import json
import os

import numpy as np
import pytest
import tensorflow as tf

import main
import tasks
from tasks import registry
from tests import made_up
from tests import programs
from tests import runs
from tests import tiers
from tff_adaptive import errors
from tff_adaptive import tff_internals
from tff_adaptive import training
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.training import experiment as train

pytestmark = pytest.mark.usefixtures('undrawn')

# What a user does with the exported model, without this project and TFF.
_USE = """
import sys
sys.modules['tensorflow_federated'] = None
import json
import numpy as np
import tensorflow as tf
folder, data, of_table, table = sys.argv[1:]
data = np.load(data)
given = json.load(open(folder + '/export.json'))
model = tf.saved_model.load(folder + '/saved_model')
[outputs] = model.signatures['serving_default'](
  **{given['inputs'][0]['name']: tf.constant(data['images'])}).values()
assert list(model.signatures['serving_default'].structured_outputs) == [
  output['name'] for output in given['outputs']]
accuracy = np.mean(np.argmax(outputs, axis=1) == data['labels'])
keras_model = tf.keras.models.load_model(folder + '/saved_model', compile=False)
fresh = tf.keras.models.clone_model(keras_model)
before = fresh.predict(data['images'], verbose=0)
fresh.load_weights(folder + '/weights.h5')
after = fresh.predict(data['images'], verbose=0)
assert np.abs(before - after).max() > 1e-3
np.testing.assert_allclose(after, outputs, rtol=1e-4, atol=1e-6)
# A model of a table takes the rows of its file, as they are there.
import csv
told = json.load(open(of_table + '/export.json'))
order = [column['name'] for column in told['columns']]
with open(table, newline='') as file:
  found = list(csv.DictReader(file))
rows = tf.constant([[row[name] for name in order] for row in found])
serve = tf.saved_model.load(of_table + '/saved_model').signatures[
  told['signature']]
[outputs] = serve(**{told['inputs'][0]['name']: rows}).values()
guesses = [told['classes'][i] for i in np.argmax(outputs, axis=1)]
right = np.mean([g == row['label'] for g, row in zip(guesses, found)])
assert not any(m.startswith(('tff_adaptive', 'tasks')) for m in sys.modules)
print('table', right)
print('accuracy', accuracy)
"""


def _table_run(folder):
  """Trains on a table whose columns are far from mean 0 and deviation 1."""
  rng = np.random.default_rng(3)
  rows = ['income,kind,age,label,client']
  for i in range(300):
    kind, young = rng.integers(3), rng.random() < 0.5
    income = 5e4 + 2e4 * young + rng.normal(0, 1e3)
    label = 'yes' if young ^ (kind == 1) else 'no'
    word = ['red', ' blue', ''][kind]
    rows.append(f'{income:.2f},{word},{rng.normal(40, 9):.0f},{label},c{i % 9}')
  path = folder / 'people.csv'
  path.write_text('\n'.join(rows))
  settings = training.settings(
    task='table',
    table_path=str(path),
    algorithm='fedavg',
    client_optimizer='sgd',
    client_learning_rate=0.5,
    clients_per_round=9,
    total_rounds=20,
    rounds_per_eval=20,
    client_epochs_per_round=3,
    validation_split='test',
    root_output_dir=str(folder),
    experiment_name='table',
  )
  said = []
  training.run(settings, say=said.append)
  assert any("empty cells of the column 'kind'" in line for line in said)
  return settings.folder, path


@pytest.mark.exhaustive
def test_exported_model_predicts_as_the_run_did(tmp_path, capsys):
  words = ['--total_rounds=3', '--clients_per_round=5', '--rounds_per_eval=3']
  words += ['--num_validation_examples=20', '--validation_split=test']
  settings = runs.settings_of(tmp_path, *words)
  runs.train(settings)
  target = tmp_path / 'model'
  assert main.main(['export', str(settings.folder), str(target)]) == 0
  said = capsys.readouterr().out
  assert 'after round 3' in said
  assert f'tf.saved_model.load({str(target / "saved_model")!r})' in said
  described = json.loads((target / 'export.json').read_text())
  assert described['round'] == 3 and described['task'] == 'digits'
  assert described['signature'] == 'serving_default'
  [taken], [given] = described['inputs'], described['outputs']
  assert taken['shape'] == [None, 8, 8, 1] and taken['dtype'] == 'float32'
  assert given['shape'] == [None, 10] and given['logits'] is True
  assert described['classes'] == list('0123456789')

  batches = tasks.create('digits').datasets.test_data.batch(1000)
  test = next(batches.as_numpy_iterator())
  np.savez(tmp_path / 'test.npz', images=test['pixels'], labels=test['label'])
  run, table = _table_run(tmp_path)
  export.export(run, tmp_path / 'of_table')
  words = (target, tmp_path / 'test.npz', tmp_path / 'of_table', table)
  done = programs.run('-c', _USE, *words, cwd=tmp_path, PYTHONPATH=None)
  expected = results.load(settings.folder).rows[-1]
  told = dict(line.split() for line in done.stdout.splitlines())
  assert float(told['table']) > 0.95
  assert float(told['accuracy']) == pytest.approx(
    expected['test/sparse_categorical_accuracy'], abs=1e-6
  )

  # Once more into the same folder: refused, and nothing is touched.
  before = sorted(p.name for p in target.iterdir())
  assert main.main(['export', str(settings.folder), str(target)]) == 2
  assert 'already exists' in capsys.readouterr().err
  assert before == sorted(p.name for p in target.iterdir())

  # A model that is built otherwise than it was trained.
  with files.RunFolder(settings.folder) as folder:
    for path in folder.checkpoints.iterdir():
      path.unlink()
    keeper = checkpoints.Checkpoints(folder.checkpoints, run=folder.identity)
    keeper.save({'weights': np.zeros(3)}, 3)
  other = str(tmp_path / 'other')
  assert main.main(['export', str(settings.folder), other]) == 2
  said = capsys.readouterr().err
  assert 'does not fit the model of the task digits' in said
  assert '--cache_dir' in said


@pytest.mark.parametrize(
  'arguments',
  [
    ['--algorithm=scaffold', '--population=30'],
    ['--algorithm=feddecsps', '--c=0.7'],
    ['--task=fmnist', '--fmnist_alpha=0.5', '--max_elements_per_client=7'],
    ['--preset=reddi2021/stackoverflow_word/fedyogi'],
    ['--preset=kim2024/fmnist/sgdm_alpha_0.1', '--num_validation_examples=-1'],
    ['--client_lr_schedule=step_decay', '--algorithm=fedavg'],
    [
      '--dp_clip_norm=1',
      '--target_epsilon=50',
      '--evaluate_clients=all',
      '--evaluate_clients_under_dp',
    ],
    [
      '--evaluate_clients=all',
      '--finetune_epochs=1',
      '--finetune_learning_rate=0.1',
    ],
    ['--asynchronous', '--client_devices=cross_silo'],
    ['--algorithm=fedada2_blended', '--lora_rank=2'],
    ['--algorithm=centralized'],
    ['--runtime=native'],
  ],
)
def test_settings_come_back_from_what_a_run_wrote(tmp_path, arguments):
  folder = made_up.run(
    tmp_path, 'run', *arguments, '--total_rounds=2', '--seed=4'
  )
  told = runs.parse(*arguments, '--total_rounds=2', '--seed=4')
  again = export.settings_of(results.load(folder))
  expected = dict(told.identity, rounds_per_eval=2)
  expected['runtime'] = 'in_process'
  assert again.identity == expected
  assert again.folder == folder


@pytest.mark.parametrize(
  'words, part',
  [
    (['run'], 'takes'),
    (['nowhere', 'new'], 'is no folder'),
    (['run', 'run'], 'already exists'),
    (['run', '.'], 'is the current folder'),
    (['old', 'new'], 'another version'),
    (['run', 'new', '--what'], 'no flag --what'),
  ],
)
def test_complaints(tmp_path, monkeypatch, capsys, words, part):
  monkeypatch.chdir(tmp_path)
  made_up.run(tmp_path, 'run', '--total_rounds=2')
  old = made_up.run(tmp_path, 'old', '--total_rounds=2')
  hparams = json.loads((old / 'hparams.json').read_text())
  del hparams['settings']['seed']
  (old / 'hparams.json').write_text(json.dumps(hparams))
  assert main.main(['export', *words]) == 2
  captured = capsys.readouterr()
  assert part in captured.err and len(captured.err.splitlines()) == 1
  assert not (tmp_path / 'new').exists()


_MODELS = """
import keras
import tensorflow as tf


def keras_2(input_shape, num_classes, vocab_size=1):
  return tf.keras.Sequential([
    tf.keras.layers.Input(input_shape), tf.keras.layers.Dense(num_classes)])


def keras_3(input_shape, num_classes, vocab_size=1):
  return keras.Sequential([
    keras.layers.Input(input_shape), keras.layers.Dense(num_classes)])
"""


_MIXED = [['3,5', 'a'], ['', ' b'], ['4', 'new']]
_ROWS = {
  '--table_features=x,word': _MIXED,
  '--table_text=text': ['some words', '', 'Other WORDS'],
  '--table_target=number': _MIXED,
  '--table_features=x': [[3.0], [float('nan')], [4.0]],
}


@pytest.mark.parametrize(
  'version, flag',
  tiers.exhaustive_but(
    [('keras_2', '--table_target=number'), ('keras_3', '--table_text=text')],
    itertools.product(['keras_2', 'keras_3'], _ROWS),
  ),
)
def test_exported_models_take_rows_of_the_file(
  tmp_path, monkeypatch, version, flag
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(str(tmp_path))
  name = f'rows_{version}_{abs(hash(flag))}'
  (tmp_path / f'{name}.py').write_text(_MODELS)
  words = ('a,some words,0', 'b,other words,1000')
  lines = [f'{i},{words[i % 2]},c{i % 4}' for i in range(40)]
  (tmp_path / 't.csv').write_text(
    '\n'.join(['x,word,text,label,client', *lines])
  )
  arguments = ['--task=table', '--table_path=t.csv', flag, '--table_decimal=,']
  arguments += [f'--model={name}:{version}', '--algorithm=fedavg']
  arguments += ['--client_optimizer=sgd', '--client_learning_rate=0.1']
  arguments += ['--total_rounds=1', '--clients_per_round=2']
  if 'number' in flag:
    arguments.append('--table_features=x,word')
  settings = runs.parse(*arguments)
  train.run(settings, say=lambda _: None, pictures=False)
  told = export.export(
    settings.folder, tmp_path / 'model', model=f'{name}:{version}'
  )
  served = tf.saved_model.load(str(tmp_path / 'model' / 'saved_model'))
  [outputs] = served.signatures['serving_default'](
    rows=tf.constant(_ROWS[flag], told['inputs'][0]['dtype'])
  ).values()
  assert np.isfinite(outputs).all() and len(outputs) == 3
  assert ('target' in told) == ('number' in flag)
  if 'number' in flag:
    assert told['target']['scale'] == pytest.approx(500, rel=0.1)
    assert np.ptp(outputs) > 10  # In the label's unit.


@pytest.mark.parametrize(
  'which, judged_by, round_number, expected',
  [
    ('best', 'validation/loss', 1, {'train/loss': 2.0, 'validation/loss': 1.0}),
    ('best', 'ema/loss', 1, {'ema/loss': 2.5}),
    ('ema', 'validation/loss', 3, {'ema/loss': 2.4, 'test_ema/loss': 2.6}),
    # The last evaluation of a run that was stopped.
    ('ema', 'validation/loss', 2, {'ema/loss': 2.5}),
  ],
)
def test_results_are_of_the_exported_model(
  tmp_path, which, judged_by, round_number, expected
):
  rows = [
    {'round': 0, 'validation/loss': 3.0, 'ema/loss': 3.0},
    {'round': 1, 'train/loss': 2.0, 'validation/loss': 1.0, 'ema/loss': 2.5},
    {'round': 2, 'train/loss': 1.9},
    {'round': 3, 'train/loss': 1.8, 'validation/loss': 1.5, 'ema/loss': 2.4},
  ]
  rows[-1] |= {'test/loss': 1.6, 'test_ema/loss': 2.6}
  with files.RunFolder(tmp_path) as folder:
    folder.write_hparams({'settings': {}, 'judged_by': judged_by})
  run = results.Run(tmp_path, {'clients_per_round': 2}, rows)
  exported = export._up_to(run, round_number)
  assert export._results(exported, which) == expected
  assert 'test/loss' in export._results(run, 'last')


def test_a_full_disk(tmp_path, small_disk, capsys):
  words = ['--task=quadratic', '--total_rounds=1', '--experiment_name=run']
  assert main.main([*words, f'--root_output_dir={tmp_path}']) == 0
  (small_disk / 'ballast').write_bytes(bytes((1 << 20) - (100 << 10)))
  target = small_disk / 'model'
  assert main.main(['export', str(tmp_path / 'run'), str(target)]) == 1
  said = capsys.readouterr().err.splitlines()[-1]
  assert said == f'{target} cannot be written: No space left on device.'
  assert os.listdir(small_disk) == ['ballast']


def test_run_without_a_checkpoint(tmp_path):
  folder = made_up.run(tmp_path, 'run', '--data=synthetic', '--total_rounds=2')
  with pytest.raises(errors.SettingsError, match='no checkpoint,'):
    export.export(folder, tmp_path / 'new')
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize(
  'task, count, first, last',
  [
    ('digits', 10, '0', '9'),
    ('emnist_character', 62, '0', 'z'),
    ('emnist_character', 10, '0', '9'),
    ('cifar100_image', 100, 'apple', 'worm'),
    ('dbpedia', 14, 'Company', 'WrittenWork'),
    ('ag_news', 4, 'World', 'Sci/Tech'),
    ('fmnist', 10, 'T-shirt/top', 'Ankle boot'),
  ],
)
def test_names_of_classes(task, count, first, last):
  names = registry.classes_of(task, count)
  assert (len({*names}), names[0], names[-1]) == (count, first, last)
  assert registry.classes_of(task, count + 1) == ()
  assert registry.classes_of('gld23k', count) == ()


@pytest.mark.parametrize(
  'task, logits',
  [
    ('digits', True),
    ('libsvm_logistic', True),
    ('stackoverflow_word', True),
    ('emnist_autoencoder', None),
  ],
)
def test_whether_outputs_are_logits(task, logits):
  options = dict(tasks.info(task).small_options, data='synthetic')
  model = tasks.create(task, **options).model_fn()
  assert tff_internals.ends_in_logits(model) is logits
