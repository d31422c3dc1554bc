"""The progress of a sweep, and its estimate of the time left."""

import dataclasses
import io

import pytest

from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import ticker as ticker_lib


@pytest.fixture(name='clock')
def clock_fixture(monkeypatch):
  """Seconds that a test moves on itself."""
  clock = type('Clock', (), {'now': 100.0})()
  monkeypatch.setattr(ticker_lib.time, 'monotonic', lambda: clock.now)
  return clock


def waiting(count, rounds=10):
  return [
    outcomes.Row(
      name=f'seed={i}',
      flags={},
      settings={'total_rounds': rounds},
      status=outcomes.WAITING,
      outcome=outcomes.Outcome(outcomes.WAITING),
    )
    for i in range(count)
  ]


def finish(ticker, rows, index):
  done = outcomes.Outcome(outcomes.FINISHED, rounds=10)
  rows[index] = dataclasses.replace(
    rows[index], status=outcomes.FINISHED, outcome=done
  )
  ticker.update(rows)
  ticker.over(rows[index].name, done)


def test_the_estimate_counts_starts_once_a_run(clock):
  rows, said = waiting(3), io.StringIO()
  ticker = ticker_lib.Ticker(rows, 3, said)
  clock.now += 30  # Importing TensorFlow happens once.
  ticker.started('seed=0')
  assert 'left' not in ticker.line()
  clock.now += 20  # Tracing happens in each run.
  ticker.round('seed=0', 0)
  assert 'left' not in ticker.line()
  clock.now += 4
  ticker.round('seed=0', 2)
  # 28 rounds of 2 s, and two more starts of 20 s.
  assert ticker.line().endswith('about 96 s left')
  clock.now += 16
  finish(ticker, rows, 0)
  assert said.getvalue().splitlines()[-1].endswith('about 80 s left')


def test_the_estimate_of_runs_side_by_side(clock):
  rows = waiting(4)
  ticker = ticker_lib.Ticker(rows, 4, io.StringIO())
  for name in ('seed=0', 'seed=1'):
    ticker.started(name)
    ticker.round(name, 0)
  clock.now += 10
  for name in ('seed=0', 'seed=1'):
    ticker.round(name, 5)
  # 30 rounds of 2 s, two at once.
  assert ticker.line().endswith('about 30 s left')
