"""How a worker of a sweep waits, logs and ends."""

import io
import weakref

import tensorflow as tf
from tensorflow.python import pywrap_tfe

from tests import made_up
from tests import sweeps
from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import launch
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training import reuse


def test_waits_for_who_is_at_work_in_the_folder(tmp_path, monkeypatch):
  """A worker of a sweep that was killed, which saves its run."""
  parsed = flags.parse(sweeps.arguments_of(tmp_path, '--axis=seed=0'))
  other = files.RunFolder(parsed.points[0].settings.folder)
  looks = []

  def sleep(seconds):
    del seconds
    looks.append(other.is_busy())
    if len(looks) == 3:
      other.__exit__()

  made_up.replace_training(
    monkeypatch, lambda settings, hooks, **_: made_up.write(settings, hooks)
  )
  monkeypatch.setattr(worker.time, 'sleep', sleep)
  assert not other.is_busy()
  other.__enter__()
  assert worker.run(parsed, parsed.points[0]).status == outcomes.FINISHED
  assert looks == [True] * 3 and not other.is_busy()


def test_runs_that_are_over_may_leave_their_checkpoints(tmp_path, monkeypatch):
  """What a failed one leaves is for the run that continues it."""
  made = []

  def run(settings, hooks=(), **_):
    folder = files.RunFolder(settings.folder)
    folder.checkpoints.mkdir(parents=True)
    saved = [
      folder.checkpoints / 'round_4.safetensors',
      folder.client_states,
      folder.client_states.with_name('client_states.sqlite-journal'),
      folder.received,
    ]
    for path in saved:
      path.write_text('x')
    made.append((settings.seed, saved))
    if settings.seed == 1:
      raise errors.RunError('no more')
    made_up.write(settings, hooks)

  made_up.replace_training(monkeypatch, run)
  arguments = sweeps.arguments_of(
    tmp_path, '--axis=seed=0,1', '--nokeep_checkpoints'
  )
  for _ in range(2):  # Again, nothing is left to run.
    rows = launch.run(flags.parse(arguments), stream=io.StringIO())
    assert [row.status for row in rows] == ['finished', 'failed']
    assert [seed for seed, _ in made] == [0, 1]
  for seed, saved in made:
    assert [path.exists() for path in saved] == [seed == 1] * len(saved)
  kept = files.RunFolder(tmp_path / 's' / 'runs' / 'seed=0')
  assert kept.metrics.exists() and kept.hparams.exists()


def test_checkpoints_that_cannot_be_deleted_cost_no_result(
  tmp_path, monkeypatch, capsys
):
  def run(settings, hooks=(), **_):
    made_up.write(settings, hooks)
    # What a run does not write: a folder in the place of a file.
    files.RunFolder(settings.folder).client_states.mkdir()

  made_up.replace_training(monkeypatch, run)
  arguments = sweeps.arguments_of(
    tmp_path, '--axis=seed=0', '--nokeep_checkpoints'
  )
  rows = launch.run(flags.parse(arguments), stream=io.StringIO())
  assert [row.status for row in rows] == ['finished']
  assert 'client_states.sqlite cannot be deleted' in capsys.readouterr().err


def test_compiled_functions_outlast_runs_of_a_few_structures(monkeypatch):
  tf.zeros([])  # TensorFlow compiles nothing before its first operation.
  cleared = []
  monkeypatch.setattr(
    pywrap_tfe, 'TFE_ContextClearCaches', lambda handle: cleared.append(1)
  )
  monkeypatch.setattr(worker, '_traces_before', 0)
  for traces, times in ((1, 0), (7, 0), (8, 1), (8, 1), (15, 1), (16, 2)):
    monkeypatch.setattr(reuse, 'traces', lambda traces=traces: traces)
    worker.clean_up()
    assert len(cleared) == times, traces


class _Circle:
  """An object that only the garbage collector can free."""

  def __init__(self):
    self.itself = self


def test_garbage_is_not_looked_for_in_what_runs_share(monkeypatch):
  monkeypatch.setattr(worker, '_traces_before', 0)
  monkeypatch.setattr(worker, '_traces_frozen', -1)

  def clean_up(traces):
    monkeypatch.setattr(reuse, 'traces', lambda: traces)
    worker.clean_up()

  shared = _Circle()
  clean_up(1)
  there = weakref.ref(shared)
  del shared
  own = _Circle()
  freed = weakref.ref(own)
  del own
  clean_up(1)
  assert freed() is None and there() is not None
  # With the compiled functions goes what their runs shared.
  clean_up(8)
  assert there() is None
