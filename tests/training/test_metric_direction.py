"""Which way a metric of a user's own task goes, from run to comparison."""

import json
import re

import pytest

from tests import own_tasks
from tests import recorded
from tff_adaptive.lab.commands import command_line

_TASK = """
class Own(tf.keras.metrics.Mean):
  def update_state(self, y_true, y_pred, sample_weight=None):
    super().update_state(tf.abs(y_true - y_pred))


_KINDS = dict(mae=tf.keras.metrics.MeanAbsoluteError, own=Own)


def slopes(metric: str = 'mae', kind: str = 'mae'):
  rng = np.random.default_rng(0)

  def points():
    x = rng.normal(size=[20, 2]).astype(np.float32)
    return collections.OrderedDict(x=x, y=x.sum(1, keepdims=True))

  def model_fn_of(spec):
    return lambda: tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(2,))]),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=spec,
      metrics=[_KINDS[kind](name=metric)],
    )

  clients = {f'c{i}': points() for i in range(3)}
  return task_of(clients, clients, model_fn_of)
"""


_OWN = '--task=users_slopes:slopes'
_MINE = ['--slopes_kind=own', '--slopes_metric=mine']


@pytest.fixture(autouse=True)
def _task(tmp_path, monkeypatch):
  own_tasks.add(tmp_path, monkeypatch, 'users_slopes', _TASK)
  monkeypatch.chdir(tmp_path)


def _train(name, *flags):
  words = [_OWN, '--algorithm=fedavg', '--client_optimizer=sgd']
  words += ['--client_learning_rate=0.02', '--clients_per_round=3']
  words += ['--total_rounds=5', '--rounds_per_eval=1', '--root_output_dir=runs']
  return command_line.main([*words, f'--experiment_name={name}', *flags])


def _best(folder):
  [path] = (folder / 'runs' / 'run' / 'checkpoints').glob('best_*')
  return int(path.stem.removeprefix('best_'))


# Errors that fall in every round, under names that say nothing or the opposite.
@pytest.mark.parametrize(
  'flags',
  [
    ['--slopes_metric=mae'],
    ['--slopes_metric=closeness_accuracy'],
    _MINE,
    [*_MINE, '--target_metric=mine:min'],
    [*_MINE, '--metric_direction=mine:min', '--patience=2'],
  ],
)
def test_the_best_round_is_the_last_of_falling_errors(tmp_path, flags):
  assert _train('run', *flags) == 0
  rows = recorded.rows(tmp_path / 'runs' / 'run')
  assert len(rows) == 6 and _best(tmp_path) == 5
  assert command_line.main(['export', 'runs/run', 'out', _OWN]) == 0
  assert (
    json.loads((tmp_path / 'out' / 'export.json').read_text())['round'] == 5
  )


def test_a_direction_that_is_not_known_is_asked_for(tmp_path, capsys):
  for flags in (['--patience=2'], ['--target_metric=mine:0.1']):
    assert _train('run', *_MINE, *flags) == 2
    assert '--metric_direction=mine:max or' in capsys.readouterr().err
  assert not (tmp_path / 'runs' / 'run' / 'metrics.csv').exists()
  for seed in (1, 2):
    assert _train(f'run_{seed}', *_MINE, f'--seed={seed}') == 0
  assert 'best round is that of the lowest loss' in capsys.readouterr().out
  assert command_line.main(['report', 'runs']) == 2
  assert '--metric_direction=mine:max or' in capsys.readouterr().err
  rate = '--client_learning_rate=0.1'
  assert _train('faster', *_MINE, rate, '--metric_direction=mine:min') == 0
  capsys.readouterr()
  for direction, best in (('max', 'run_1'), ('min', 'faster')):
    command = ['compare', 'runs/run_1', 'runs/faster']
    assert (
      command_line.main([*command, f'--metric_direction=mine:{direction}']) == 0
    )
    table = capsys.readouterr().out.split('what differs')[0]
    lines = [re.split(r'  +', t) for t in table.splitlines()]
    [cells] = [cells for head, *cells in lines if head == 'Validation mine']
    starred = {
      name
      for name, cell in zip(('run_1', 'faster'), cells, strict=True)
      if cell.endswith('*')
    }
    assert starred == {best}, table
