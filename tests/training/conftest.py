"""Fixtures of the tests of training."""

import signal

import pytest

from tff_adaptive.lab.training.loop import rounds
from tff_adaptive.lab.training.loop import stopping


@pytest.fixture(name='stop_in_round')
def stop_in_round_fixture(monkeypatch):
  """Stops the next run in a round, as a signal would."""

  def stop(number, kind=rounds.LearningRounds):
    original, calls = kind.run, []

    def run(self, cohort, datasets):
      calls.append(cohort)
      if len(calls) == number:
        monkeypatch.setattr(kind, 'run', original)
        raise stopping.Stopped(signal.SIGTERM)
      return original(self, cohort, datasets)

    monkeypatch.setattr(kind, 'run', run)

  return stop
