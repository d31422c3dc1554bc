"""What a worker of a sweep gives up on, and how it ends."""

import os

import pytest

from tests.experiment import made_up
from tests.experiment import sweeps
from tff_adaptive.experiment import stopping
from tff_adaptive.experiment import sweep
from tff_adaptive.experiment import sweep_worker
from tff_adaptive.experiment import train


def test_given_up_on_what_is_not_finite():
  watch = sweep_worker.Watch(divergence_factor=0)
  watch({'round': 0, 'validation/loss': 2.0})
  watch({'round': 1, 'train/loss': 1e30})
  with pytest.raises(sweep_worker.DivergedError, match='is nan'):
    watch({'round': 2, 'train/loss': float('nan')})
  watch = sweep_worker.Watch(divergence_factor=10)
  watch({'round': 0, 'validation/loss': 2.0})
  left_out = {'clients/count': 2, 'clients/rejected': 2}
  for number in (1, 2):
    watch({'round': number, 'train/loss': 1.0, **left_out})
  with pytest.raises(sweep_worker.DivergedError, match='no update'):
    watch({'round': 3, 'train/loss': 1.0, **left_out})


def test_one_bad_round_is_no_divergence():
  watch = sweep_worker.Watch(divergence_factor=10)
  watch({'round': 0, 'validation/loss': 2.0})
  for number in range(1, 10):
    watch({'round': number, 'train/loss': 100.0 if number % 3 else 1.0})


def test_worker_whose_sweep_is_gone_saves_and_ends(tmp_path, monkeypatch):
  """The other end of its pipe is closed, as after a SIGKILL."""
  parsed = sweep.parse(sweeps.arguments_of(tmp_path, '--axis=seed=0'))
  stopped = []

  def run(settings, on_row=None, **_):
    try:
      made_up.write(settings, on_row)
    except stopping.Stopped:
      stopped.append(settings.experiment_name)
      raise

  job = sweep.job_of(parsed, parsed.points[0])
  job.log.parent.mkdir(parents=True)

  class Closed:
    def recv(self):
      return job

    def send(self, message):
      raise BrokenPipeError(message)

  monkeypatch.setattr(train, 'run', run)
  monkeypatch.setattr(sweep_worker, '_clean_up', lambda: None)
  monkeypatch.setattr(sweep_worker, '_end_with_parent', lambda: None)
  monkeypatch.setattr(os, 'dup2', lambda *_: None)
  sweep_worker.serve(Closed())
  assert stopped == ['seed=0']
