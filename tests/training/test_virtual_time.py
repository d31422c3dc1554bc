"""Whole runs in virtual time on every task: the same bits, however run.

Single parts are tested in test_availability and test_asynchronous, on digits;
there too what clients keep that do not answer.
"""

import gc
import itertools

import pytest
import tensorflow as tf

import main
import tasks
from tests import recorded
from tff_adaptive.lab.flags import settings as settings_lib

pytestmark = pytest.mark.usefixtures('undrawn')

_ALL = [
  '--algorithm=fedadam',
  '--client_learning_rate=0.01',
  '--total_rounds=3',
  '--rounds_per_eval=3',
  '--num_validation_examples=8',
  '--data=synthetic',
  '--client_seconds_per_example=0.5',
  '--client_speed_spread=1',
  '--client_dropout=0.25',
  '--deadline=5',
]
_KINDS = {
  'synchronous': ['--clients_per_round=4', '--over_selection=1.5'],
  'asynchronous': [
    '--asynchronous',
    '--clients_per_round=3',
    '--concurrency=5',
  ],
}
# It has two clients.
_OF_TWO = {
  'synchronous': ['--clients_per_round=1', '--over_selection=2'],
  'asynchronous': [
    '--asynchronous',
    '--clients_per_round=1',
    '--concurrency=2',
  ],
}


def arguments_of(task, kind):
  """The command line of a small run."""
  there = tasks.parameters_of(task)
  options = {
    'batch_size': 4,
    'max_elements': 8,
    **tasks.info(task).small_options,
  }
  small = [
    f'--{settings_lib.flag_of(task, name)}={value}'
    for name, value in options.items()
    if name in there
  ]
  kinds = _OF_TWO if task == 'quadratic' else _KINDS
  return [f'--task={task}', *small, *_ALL, *kinds[kind]]


@pytest.mark.slow
@pytest.mark.parametrize('kind', _KINDS)
@pytest.mark.parametrize('task', tasks.names())
def test_threads_change_no_bit(task, kind, tmp_path, capsys):
  tables = []
  for threads in (1, 4):
    arguments = [
      *arguments_of(task, kind),
      f'--max_concurrent_clients={threads}',
      f'--root_output_dir={tmp_path}',
      f'--experiment_name={threads}',
    ]
    assert main.main(arguments) == 0, capsys.readouterr().err
    said = capsys.readouterr().out
    assert 'of virtual time\nanswers  ' in said
    assert ('server steps on average' in said) == (kind == 'asynchronous')
    tables.append(recorded.rows(tmp_path / str(threads)))
    tf.keras.backend.clear_session()
    gc.collect()
  assert tables[0] == tables[1]
  rows = tables[0][1:]
  times = [0.0, *(float(row['virtual/seconds']) for row in rows)]
  assert all(a < b for a, b in itertools.pairwise(times))
  answered = [row for row in rows if row['clients/count'] != '0']
  assert answered and all(row['train/loss'] for row in answered)
  for row in rows:
    took = float(row['virtual/round_seconds'])
    assert 0 < took <= 5 or kind == 'asynchronous'
    if kind == 'synchronous':
      gone = int(row['virtual/dropped']) + int(row['virtual/late'])
      assert int(row['virtual/selected']) == int(row['clients/count']) + gone
  if task != 'quadratic':
    # Somebody did not answer: nothing above is about nothing.
    assert any(int(r['virtual/dropped']) + int(r['virtual/late']) for r in rows)
