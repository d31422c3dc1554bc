"""Runs whose loss is not finite end, and their models are not exported."""

import numpy as np
import pytest

import main
from tests import recorded

pytestmark = pytest.mark.usefixtures('undrawn')


@pytest.fixture(name='prices')
def prices_fixture(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  rng = np.random.default_rng(0)
  rows = [
    f'{rng.normal():.3f},{2e5 + 4e4 * rng.normal():.2f},c{i % 4}'
    for i in range(80)
  ]
  (tmp_path / 'prices.csv').write_text('\n'.join(['x,label,client', *rows]))

  def train(rate, *arguments, rounds=30):
    words = ['--task=table', '--table_path=prices.csv', '--algorithm=fedavg']
    words += ['--table_target=number', '--client_optimizer=sgd']
    words += [f'--client_learning_rate={rate}', f'--total_rounds={rounds}']
    words += ['--rounds_per_eval=100', '--clients_per_round=2']
    return main.main([*words, '--experiment_name=run', *arguments])

  return train


def test_a_diverged_run_ends_and_is_not_exported(prices, tmp_path, capsys):
  assert prices(1e9) == 1
  told = capsys.readouterr().err
  for part in ('not finite in rounds', '--client_learning_rate=1000000000.0'):
    assert part in told
  rows = recorded.rows(tmp_path / 'runs' / 'run')
  assert 10 <= len(rows) - 1 < 30
  # Neither is it resumed for long, nor exported unasked.
  assert prices(1e9) == 1
  assert len(recorded.rows(tmp_path / 'runs' / 'run')) <= len(rows) + 1
  capsys.readouterr()
  assert main.main(['export', 'runs/run', 'model']) == 2
  assert '--diverged' in capsys.readouterr().err
  assert main.main(['export', 'runs/run', 'model', '--diverged']) == 0


def test_fewer_rounds_are_no_reason_to_end(prices, capsys):
  assert prices(1e9, rounds=9) == 0
  capsys.readouterr()
  assert main.main(['export', 'runs/run', 'model']) == 2
  assert 'has diverged' in capsys.readouterr().err


def test_prices_are_predicted_with_usual_rates(prices, tmp_path):
  assert prices(0.1) == 0
  assert main.main(['export', 'runs/run', 'model']) == 0
  last = recorded.rows(tmp_path / 'runs' / 'run')[-1]
  assert float(last['test/mean_absolute_error']) < 1e5
