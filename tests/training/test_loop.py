"""The loop: what it records, and that stopping and resuming changes nothing."""

import csv
import shutil
import signal

import numpy as np
import pytest
import tensorflow as tf

from tests import helpers
from tests import recorded
from tests import tiers
from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import progress
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.evaluation import validation
from tff_adaptive.lab.training.loop import early_stopping
from tff_adaptive.lab.training.loop import loop
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.lab.training.participation import cohorts as sampling

pytestmark = pytest.mark.usefixtures('undrawn')

_ROUNDS = 7


class Sayings:
  """A stream that is no terminal."""

  def __init__(self):
    self.text = ''

  def write(self, text):
    self.text += text

  def flush(self):
    pass

  def isatty(self):
    return False


@pytest.fixture(name='train', scope='module')
def train_fixture():
  """Runs the loop in a folder; every call stands for a process of its own."""
  task = helpers.task()
  evaluator = evaluation.Evaluator(task.model_fn)
  initial = initial_weights.draw(task.model_fn, 3)

  def train(
    path,
    *,
    report=None,
    stream=None,
    max_rejected_clients=None,
    **rounds_options,
  ):
    rounds = helpers.GradientRounds(initial, **rounds_options)
    rounds.report = report or {}
    clients = data.ClientDatasets(task.datasets, seed=0)
    with files.RunFolder(path) as folder:
      parts = loop.Parts(
        task=task,
        formula='',
        cohort_fn=sampling.build_cohort_fn(
          clients.client_ids, clients_per_round=2
        ),
        rounds=rounds,
        evaluator=evaluator,
        clients=clients,
        splits=validation.Splits(
          validation=lambda number: data.test_split(
            task.datasets, num_examples=8
          ),
          test=lambda: data.test_split(task.datasets),
        ),
        goal=early_stopping.Goal('validation/loss', rises=False),
      )
      result = loop.Training(
        parts,
        folder=folder,
        intervals=loop.Intervals(
          total_rounds=_ROUNDS, rounds_per_eval=2, rounds_per_checkpoint=3
        ),
        progress=progress.Progress(_ROUNDS, stream=stream or Sayings()),
        max_rejected_clients=max_rejected_clients,
      ).run()
    return result, rounds

  return train


@pytest.fixture(name='whole', scope='module')
def whole_fixture(train, tmp_path_factory):
  """The folder of an uninterrupted run, and its rounds."""
  path = tmp_path_factory.mktemp('whole')
  _, rounds = train(path)
  return path, rounds


def test_what_is_recorded(train, tmp_path):
  train(tmp_path)
  rows = recorded.rows(tmp_path)
  assert [row['round'] for row in rows] == [str(r) for r in range(_ROUNDS + 1)]
  assert list(rows[0]) == [
    *('round', 'train/loss', 'train/num_examples', 'validation/loss'),
    *('validation/sparse_categorical_accuracy', 'validation/num_examples'),
    *('test/loss', 'test/sparse_categorical_accuracy', 'test/num_examples'),
    *('bytes_down', 'bytes_up'),
  ]
  evaluated = [int(r['round']) for r in rows if r['validation/loss']]
  assert evaluated == [0, 2, 4, 6, 7]
  assert [r['round'] for r in rows if r['test/loss']] == ['7']
  assert [r['round'] for r in rows if r['train/loss']] == list('1234567')
  assert rows[0]['validation/num_examples'] == '8'
  assert rows[-1]['test/num_examples'] == '20'
  assert rows[3]['bytes_down'] == '32' and rows[3]['bytes_up'] == '40'
  losses = [float(r['validation/loss']) for r in rows if r['validation/loss']]
  assert losses[-1] < 0.8 * losses[0]
  names = {p.name for p in tmp_path.iterdir()}
  assert names == {'.lock', 'checkpoints', 'metrics.csv', 'tensorboard'}
  saved = sorted(p.name for p in (tmp_path / 'checkpoints').iterdir())
  assert saved == [
    f'{name}.safetensors'
    for name in ('best_7', 'round_3', 'round_6', 'round_7')
  ]


def test_seconds_are_split(train, tmp_path):
  train(tmp_path)
  with open(tmp_path / 'metrics.csv', encoding='utf-8') as file:
    rows = list(csv.DictReader(file))[1:]
  assert len(rows) == _ROUNDS
  for row in rows:
    parts = [float(v) for k, v in row.items() if k.startswith('seconds/')]
    assert len(parts) >= 3 and all(part >= 0 for part in parts)
    assert sum(parts) == pytest.approx(float(row['seconds']), abs=0.02)
    assert (parts[-1] > 0) == bool(row['validation/loss'])


@pytest.mark.parametrize(
  'failing_round', tiers.exhaustive_but([1, 5], range(1, _ROUNDS + 1))
)
@pytest.mark.parametrize(
  'error', [stopping.Stopped(signal.SIGTERM), RuntimeError('worker died')]
)
def test_resumed_run_equals_an_uninterrupted_one(
  train, whole, tmp_path, failing_round, error
):
  path, uninterrupted = whole
  with pytest.raises(type(error)):
    train(tmp_path / 'parts', fail_in_round=failing_round, error=error)
  # All complete rounds were kept, not just those up to a regular checkpoint.
  _, rest = train(tmp_path / 'parts')
  assert len(rest.cohorts) == _ROUNDS - failing_round + 1
  assert recorded.rows(tmp_path / 'parts') == recorded.rows(path)
  for a, b in zip(
    uninterrupted.program_state.values(),
    rest.program_state.values(),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


def test_a_test_that_was_dropped_is_made_again(train, whole, tmp_path):
  """As when an extended run is killed before its own test."""
  path = tmp_path / 'parts'
  train(path)
  tables.RowFile(path / 'metrics.csv').set_final({})
  assert not recorded.rows(path)[-1]['test/loss']
  train(path)
  assert recorded.rows(path) == recorded.rows(whole[0])


def test_a_run_whose_checkpoints_are_gone_says_that_it_begins_again(
  train, whole, tmp_path
):
  train(tmp_path / 'parts')
  shutil.rmtree(tmp_path / 'parts' / 'checkpoints')
  stream = Sayings()
  _, rest = train(tmp_path / 'parts', stream=stream)
  assert 'no checkpoint: the run begins again' in stream.text
  assert len(rest.cohorts) == _ROUNDS
  assert recorded.rows(tmp_path / 'parts') == recorded.rows(whole[0])


def test_killed_run_drops_rows_after_its_checkpoint(train, whole, tmp_path):
  path, _ = whole

  class Killed(BaseException):
    """Stands for SIGKILL: nothing is saved on the way out."""

  with pytest.raises(Killed):
    train(tmp_path / 'parts', fail_in_round=6, error=Killed())
  assert [r['round'] for r in recorded.rows(tmp_path / 'parts')] == list(
    '012345'
  )
  stream = Sayings()
  _, rest = train(tmp_path / 'parts', stream=stream)
  assert 'Resuming after round 3.' in stream.text
  assert len(rest.cohorts) == 4
  assert recorded.rows(tmp_path / 'parts') == recorded.rows(path)
  events = list((tmp_path / 'parts' / 'tensorboard').iterdir())
  steps = [
    (event.step, value.tag)
    for path in events
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]
  assert len(steps) == len(set(steps)) > 3 * _ROUNDS


def test_finished_run_is_not_trained_further(train, tmp_path):
  train(tmp_path)
  before = recorded.rows(tmp_path)
  result, rounds = train(tmp_path)
  assert not rounds.cohorts and result.resumed_from == _ROUNDS
  assert recorded.rows(tmp_path) == before


def test_damaged_checkpoint_means_the_one_before(train, tmp_path):
  train(tmp_path)
  before = recorded.rows(tmp_path)
  (tmp_path / 'checkpoints' / 'round_7.safetensors').write_bytes(b'')
  stream = Sayings()
  result, _ = train(tmp_path, stream=stream)
  assert result.resumed_from == 6
  assert 'round 7 cannot be used' in stream.text
  assert recorded.rows(tmp_path) == before


def test_signal_between_rounds_saves_the_last_complete_round(tmp_path, train):
  class Interrupting(Sayings):
    def write(self, text):
      super().write(text)
      if text.startswith('round 4/'):
        signal.raise_signal(signal.SIGINT)

  signals = stopping.Signals()
  stream = Interrupting()
  # The loop is given these signals through its default.
  original = stopping.Signals
  stopping.Signals = lambda: signals
  try:
    with signals.handled(), pytest.raises(stopping.Stopped):
      train(tmp_path, stream=stream)
  finally:
    stopping.Signals = original
  assert 'Stopped after round 4 of 7, which is saved' in stream.text
  assert (tmp_path / 'checkpoints' / 'round_4.safetensors').is_file()


@pytest.mark.parametrize(
  'report, saying',
  [
    ({'update/norm': np.float32(0)}, 'the model did not change'),
    ({'update/non_finite': np.int32(1)}, 'was not applied'),
  ],
)
def test_model_that_stands_still(train, tmp_path, report, saying):
  stream = Sayings()
  train(tmp_path, report=report, stream=stream)
  assert 'Round 1: ' in stream.text and saying in stream.text


@pytest.mark.parametrize(
  'per_eval, evaluated', [(1, [1, 2, 3]), (2, [2, 3]), (5, [3])]
)
def test_intervals(per_eval, evaluated):
  intervals = loop.Intervals(
    total_rounds=3, rounds_per_eval=per_eval, rounds_per_checkpoint=per_eval
  )
  assert [r for r in (1, 2, 3) if intervals.evaluates(r)] == evaluated
  assert [r for r in (1, 2, 3) if intervals.checkpoints(r)] == evaluated


def test_run_given_up_for_its_clients_can_go_on(train, tmp_path):
  report = {'clients/count': np.int32(2), 'clients/rejected': np.int32(1)}
  with pytest.raises(errors.RunError, match='max_rejected_clients=0 allows'):
    train(tmp_path / 'at once', report=report, max_rejected_clients=0)
  assert len(recorded.rows(tmp_path / 'at once')) == 1
  with pytest.raises(errors.RunError, match='too many'):
    train(tmp_path, fail_in_round=5, error=errors.RunError('too many'))
  result, _ = train(tmp_path, report=report, max_rejected_clients=1)
  assert result.resumed_from == 4
