"""Runs that end early, go on, start elsewhere, or train only a part."""

import json

import numpy as np
import pytest
import tensorflow as tf

import tasks
from tests import recorded
from tests import runs
from tff_adaptive import errors
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.loop import stopping

pytestmark = pytest.mark.usefixtures('undrawn')

# Where a model of one weight will do.
_SMALL = ['--task=quadratic', '--clients_per_round=2']


run = runs.train


def settings_of(folder, *arguments, **name):
  usual = ['--data=synthetic', '--algorithm=fedavg', '--client_optimizer=sgd']
  usual += ['--total_rounds=4', '--clients_per_round=3', '--rounds_per_eval=1']
  usual += ['--rounds_per_checkpoint=2']
  return runs.settings_of(folder, *usual, *arguments, **name)


def last_state(settings):
  folder = files.RunFolder(settings.folder)
  number = checkpoints.Checkpoints(folder.checkpoints).rounds[-1]
  return checkpoints.read(folder.checkpoints / f'round_{number}.safetensors')


def kept_best(settings):
  folder = files.RunFolder(settings.folder).checkpoints
  return [p.name for p in folder.glob('best_*')]


@pytest.mark.exhaustive
def test_a_finished_run_goes_on_to_more_rounds(tmp_path):
  more = ['--algorithm=scaffold', '--ema_decay=0.5', *_SMALL]
  whole = settings_of(tmp_path, *more, name='whole')
  run(whole)
  parts = settings_of(tmp_path, *more, '--total_rounds=2', name='parts')
  assert len(run(parts).rows) == 3
  parts = settings_of(tmp_path, *more, name='parts')
  assert experiment.prepare(parts) is None
  result = run(parts)
  assert result.resumed_from == 2
  assert recorded.rows(parts.folder) == recorded.rows(whole.folder)
  assert kept_best(parts) == kept_best(whole)
  for name, array in last_state(whole).items():
    if not name.startswith(('row_sums/', 'state/rounds/clients')):
      np.testing.assert_array_equal(array, last_state(parts)[name])
  hparams = json.loads((parts.folder / 'hparams.json').read_text())
  assert hparams['settings']['total_rounds'] == 4
  assert experiment.prepare(parts) is not None
  # Back to fewer is another run.
  with pytest.raises(errors.SettingsError, match='total_rounds was 4, now 2'):
    run(settings_of(tmp_path, *more, '--total_rounds=2', name='parts'))


@pytest.mark.exhaustive
def test_what_depends_on_the_number_of_rounds_does_not_go_on(tmp_path):
  decaying = [*_SMALL, '--client_lr_schedule=step_decay']
  run(settings_of(tmp_path, *decaying, '--total_rounds=1'))
  longer = settings_of(tmp_path, *decaying, '--total_rounds=2')
  with pytest.raises(errors.SettingsError) as raised:
    experiment.prepare(longer)
  assert '--client_lr_decay_steps was 1, now 2' in str(raised.value)
  assert '--total_rounds=1 among them' in str(raised.value)
  private = ['--dp_clip_norm=1', '--target_epsilon=50']
  first = settings_of(tmp_path, *private, '--total_rounds=1', name='private')
  with files.RunFolder(first.folder) as folder:
    folder.write_hparams({'settings': first.identity})
  with pytest.raises(errors.SettingsError, match='set for 1 rounds'):
    experiment.prepare(settings_of(tmp_path, *private, name='private'))


@pytest.mark.exhaustive
def test_a_run_that_reached_its_target(tmp_path, capsys):
  settings = settings_of(tmp_path, *_SMALL, '--target_metric=loss:100')
  result = run(settings)
  assert [r['round'] for r in result.rows] == ['0']
  settings = settings_of(
    tmp_path,
    *_SMALL,
    '--patience=1',
    '--client_learning_rate=1e-20',
    name='slow',
  )
  result = run(settings)
  assert [r['round'] for r in result.rows] == ['0', '1']
  assert result.rows[-1]['test/loss'] and not result.rows[0].get('test/loss')
  said = capsys.readouterr().out
  assert 'Ended after round 1 of 4: validation/distance was' in said
  assert last_state(settings)  # It was saved.
  assert experiment.prepare(settings) is not None
  # Without the rule the run goes on, as if there had been none.
  patient = settings_of(
    tmp_path, *_SMALL, '--client_learning_rate=1e-20', name='slow'
  )
  assert experiment.prepare(patient) is None
  assert run(patient).resumed_from == 1
  whole = settings_of(
    tmp_path, *_SMALL, '--client_learning_rate=1e-20', name='patient'
  )
  run(whole)
  assert recorded.rows(patient.folder) == recorded.rows(whole.folder)


def test_a_metric_that_there_is_not_is_told_before_anything_is_written(
  tmp_path,
):
  settings = settings_of(tmp_path, '--target_metric=recall:0.5')
  with pytest.raises(errors.SettingsError, match='evaluations have no recall'):
    run(settings)
  assert not settings.folder.exists()


@pytest.mark.exhaustive
def test_an_average_that_is_resumed_and_exported(tmp_path, stop_in_round):
  arguments = ['--task=table', '--ema_decay=0.7']
  arguments += ['--target_metric=ema/accuracy:1.1']
  whole = settings_of(tmp_path, *arguments, name='whole')
  rows = run(whole).rows
  assert rows[0]['ema/loss'] == rows[0]['validation/loss']
  assert rows[-1]['ema/loss'] != rows[-1]['validation/loss']
  assert rows[-1]['test_ema/loss'] and not rows[0].get('test_ema/loss')
  stop_in_round(4)
  parts = settings_of(tmp_path, *arguments, name='parts')
  with pytest.raises(stopping.Stopped):
    run(parts)
  assert run(parts).resumed_from == 3
  assert recorded.rows(parts.folder) == recorded.rows(whole.folder)
  assert kept_best(parts) == kept_best(whole) != []

  described, models = {}, {}
  for which in ('last', 'best', 'ema'):
    target = tmp_path / which
    described[which] = export.export(whole.folder, target, which=which)
    model = tf.keras.models.load_model(target / 'saved_model', compile=False)
    models[which] = model.get_weights()[0]
  assert [d['which'] for d in described.values()] == ['last', 'best', 'ema']
  best = int(kept_best(whole)[0].removeprefix('best_').partition('.')[0])
  assert [d['round'] for d in described.values()] == [4, best, 4]
  assert not np.array_equal(models['last'], models['ema'])
  state = last_state(whole)
  np.testing.assert_array_equal(
    models['ema'], state['state/average/trainable/0']
  )
  values = [float(r['ema/sparse_categorical_accuracy']) for r in rows[1:]]
  assert values[best - 1] == max(values)
  for which, row in (('best', rows[best]), ('ema', rows[-1])):
    assert described[which]['results']['ema/loss'] == float(row['ema/loss'])


def model_of(settings):
  state = last_state(settings)
  pattern = 'state/global_model_weights/{}/{}'.format
  return [
    state[pattern('trainable', i)]
    for i in range(8)
    if pattern('trainable', i) in state
  ]


@pytest.mark.exhaustive
def test_training_that_starts_where_another_ended(tmp_path):
  first = settings_of(tmp_path, '--task=table', name='first')
  run(first)
  exported = tmp_path / 'exported'
  export.export(first.folder, exported)
  model = tf.keras.models.load_model(exported / 'saved_model', compile=False)
  model.save(tmp_path / 'model.h5')
  task = tasks.create('table', data='synthetic')
  for place in (
    first.folder,
    exported,
    exported / 'weights.h5',
    tmp_path / 'model.h5',
  ):
    loaded = initial_weights.load(task.model_fn, place)
    for a, b in zip(loaded.trainable, model_of(first), strict=True):
      np.testing.assert_array_equal(a, b)
  second = settings_of(
    tmp_path,
    '--task=table',
    f'--initial_weights={exported}',
    '--total_rounds=1',
    name='second',
  )
  rows = run(second).rows
  before = recorded.rows(first.folder)
  assert rows[0]['validation/loss'] == before[-1]['validation/loss']
  assert second.identity['initial_weights'] == str(exported)


def test_weights_that_do_not_fit(tmp_path):
  (tmp_path / 'words.h5').write_text('words')
  other = tf.keras.Sequential([tf.keras.layers.Dense(3, input_shape=(2,))])
  other.save_weights(tmp_path / 'other.h5')
  model_fn = tasks.create('digits', data='synthetic').model_fn
  for name, words in (
    ('words.h5', 'cannot be loaded into the model of the task'),
    ('other.h5', 'cannot be loaded into the model of the task'),
    ('none', 'is neither an export, nor a run, nor a Keras file'),
  ):
    with pytest.raises(errors.SettingsError, match=words):
      initial_weights.load(model_fn, tmp_path / name)


@pytest.mark.exhaustive
def test_frozen_variables_stay_where_they_start(tmp_path):
  whole = settings_of(tmp_path, '--total_rounds=2', name='whole')
  run(whole)
  frozen = settings_of(
    tmp_path,
    '--total_rounds=2',
    '--freeze=conv2d*',
    '--freeze=dense/bias',
    name='frozen',
  )
  rows = run(frozen).rows
  weights = initial_weights.draw(
    experiment.create_task(frozen).model_fn, frozen.seed
  )
  state = last_state(frozen)
  for i, start in enumerate(weights.non_trainable):
    kept = state[f'state/global_model_weights/non_trainable/{i}']
    np.testing.assert_array_equal(kept, start)
  assert len(weights.non_trainable) == 5
  moved = state['state/global_model_weights/trainable/0']
  assert not np.array_equal(moved, weights.trainable[0])
  up = [int(recorded.rows(s.folder)[-1]['bytes_up']) for s in (whole, frozen)]
  sizes = [4 * np.size(w) for w in weights.non_trainable]
  assert up[0] - up[1] == sum(sizes)
  assert float(rows[-1]['validation/loss']) > 0
  # What is exported is the whole model, in Keras' own order.
  export.export(frozen.folder, tmp_path / 'model')
  model = tasks.create('digits', data='synthetic').model_fn()._keras_model
  model.load_weights(tmp_path / 'model' / 'weights.h5')
  np.testing.assert_array_equal(
    model.get_weights()[0], weights.non_trainable[0]
  )


@pytest.mark.parametrize(
  'pattern, words',
  [
    ('lstm*', '--freeze=lstm. matches none of the trained .* conv2d/kernel, '),
    ('*', '--freeze=. leaves no variable to train'),
    ('dense/bias,x', '--freeze=x matches none'),
  ],
)
def test_patterns_that_freeze_none_or_all(tmp_path, pattern, words):
  settings = settings_of(tmp_path, f'--freeze={pattern}')
  with pytest.raises(errors.SettingsError, match=words):
    experiment.create_task(settings)


@pytest.mark.parametrize('as_lists', [True, False])
@pytest.mark.parametrize('name', ['digits', 'shakespeare_character'])
def test_a_bound_on_the_steps_of_a_client(name, as_lists):
  task = tasks.create(name, data='synthetic', epochs=2, batch_size=3)

  def lists(**more):
    clients = batches.training_clients(
      task.datasets, seed=0, cache_bytes=2**24, as_lists=as_lists, **more
    )
    cohort = clients.client_ids[:3]
    return [list(b) for b in clients.for_round(1, cohort).batches]

  for bounded, whole in zip(lists(max_steps=2), lists(), strict=True):
    assert len(bounded) == min(2, len(whole))
    for a, b in zip(bounded, whole, strict=False):
      tf.nest.map_structure(np.testing.assert_array_equal, a, b)
  foreign = data.ClientDatasets(task.datasets, seed=0, max_steps=1)
  assert len(list(foreign.for_client(foreign.client_ids[0], 1))) == 1


def test_the_bound_is_a_part_of_a_run(tmp_path):
  settings = settings_of(
    tmp_path, '--client_steps_per_round=1', '--total_rounds=1', '--task=table'
  )
  rows = run(settings).rows
  assert rows[1]['train/num_examples'] == '60'  # 3 clients, 20 in a batch.
  assert settings.identity['client_steps_per_round'] == 1
  with pytest.raises(errors.SettingsError, match='has no clients'):
    settings_of(
      tmp_path, '--client_steps_per_round=1', '--algorithm=centralized'
    )


@pytest.mark.exhaustive
def test_the_best_round_by_the_measure_that_was_asked_for_last(
  tmp_path, monkeypatch
):
  losses = [9.0, 1.0, 5.0, 6.0, 4.0, 7.0, 8.0]
  distances = [9.0, 5.0, 6.0, 1.0, 2.0, 7.0, 0.5]
  counter = iter(range(99))

  def values(self, weights, batches):
    del self, weights, batches
    i = min(next(counter), 6)
    return {'loss': losses[i], 'distance': distances[i]}

  monkeypatch.setattr(evaluation.Evaluator, 'evaluate', values)
  by_loss = '--target_metric=loss:0'
  short = settings_of(tmp_path, *_SMALL, by_loss)
  run(short)
  assert kept_best(short) == ['best_1.safetensors']
  # Rounds 0 to 4 are there. By distance the best is 3, whose model is gone.
  counter = iter(range(5, 99))
  by_distance = '--target_metric=distance:0'
  run(settings_of(tmp_path, *_SMALL, '--total_rounds=5', by_distance))
  folder = short.folder
  with pytest.raises(errors.RunError, match='Round 3 is the best by') as error:
    export.export(folder, tmp_path / 'none', which='best')
  assert 'of round 1' in str(error.value)
  assert not (tmp_path / 'none').exists()
  # By the loss it still is round 1.
  counter = iter(range(6, 99))
  run(settings_of(tmp_path, *_SMALL, '--total_rounds=6', by_loss))
  told = export.export(folder, tmp_path / 'one', which='best')
  assert told['round'] == 1
  # By distance it is a round that was judged so.
  run(settings_of(tmp_path, *_SMALL, '--total_rounds=6', by_distance))
  hparams = json.loads((folder / 'hparams.json').read_text())
  assert hparams['judged_by'] == 'validation/loss'  # It was finished.


@pytest.mark.exhaustive
def test_the_folder_states_the_privacy_of_all_rounds(tmp_path):
  private = ['--dp_noise_multiplier=1', '--dp_clip_norm=1']
  private += ['--dp_delta=0.01', '--validation_split=test']
  run(settings_of(tmp_path, *private, '--total_rounds=1'))
  longer = settings_of(tmp_path, *private, '--total_rounds=2')
  rows = run(longer).rows
  hparams = json.loads((longer.folder / 'hparams.json').read_text())
  whole = settings_of(tmp_path, *private, '--total_rounds=2', name='whole')
  run(whole)
  expected = json.loads((whole.folder / 'hparams.json').read_text())
  assert hparams['privacy'] == expected['privacy']
  epsilons = [
    float(row['privacy/epsilon']) for row in rows if row['round'] > '0'
  ]
  assert len(epsilons) == 2 and epsilons[0] < epsilons[1]
