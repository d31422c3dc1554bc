"""How a worker of a sweep waits, logs and ends."""

import io
import logging
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
from tff_adaptive.lab.sweep import search
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.loop import stopping


def test_waits_for_who_is_at_work_in_the_folder(tmp_path, monkeypatch):
  """A worker of a sweep that was killed, which saves its run."""
  parsed = flags.parse(sweeps.arguments_of(tmp_path, '--axis=seed=0'))
  job = worker.Job(parsed.points[0], tmp_path / 'log')
  other = files.RunFolder(job.point.settings.folder)
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
  assert worker.run(job).status == outcomes.FINISHED
  assert looks == [True] * 3 and not other.is_busy()


def test_worker_whose_sweep_is_gone_saves_and_ends(tmp_path, monkeypatch):
  """The other end of its pipe is closed, as after a SIGKILL."""
  parsed = flags.parse(sweeps.arguments_of(tmp_path, '--axis=seed=0'))
  parsed.folder.mkdir()
  scheduler = search.scheduler_of(parsed)
  with search.open_study(parsed, scheduler) as trials:
    trials.add(parsed.points)
  stopped = []

  def run(settings, hooks=(), **_):
    try:
      made_up.write(settings, hooks)
    except stopping.Stopped:
      stopped.append(settings.experiment_name)
      raise

  class Closed:
    def send(self, message):
      if message[0] != 'started':
        raise BrokenPipeError(message)

  made_up.replace_training(monkeypatch, run)
  monkeypatch.setattr(worker, '_end_with_parent', lambda: None)
  monkeypatch.setattr(worker, '_redirect_output', lambda path: None)
  worker.serve(Closed(), parsed)
  assert stopped == ['seed=0']
  with search.open_study(parsed, scheduler) as trials:
    (trial,) = trials.trials().values()
  assert outcomes.status_of(trial) == outcomes.WAITING
  assert (
    outcomes.was_begun(trial) and outcomes.outcome_of(trial).reason == 'stopped'
  )


def _sweep_with(monkeypatch, root, log):
  """Two made-up runs that call `log`; the statuses of both."""

  def run(settings, hooks=(), **_):
    log(settings.seed)
    made_up.write(settings, hooks)

  made_up.replace_training(monkeypatch, run)
  arguments = sweeps.arguments_of(root, '--axis=seed=0,1')
  rows = launch.run(flags.parse(arguments), stream=io.StringIO())
  return [row.status for row in rows]


def test_warnings_of_tensorflow_go_to_the_log_of_their_run(
  tmp_path, monkeypatch
):
  logger, shown = tf.get_logger(), io.StringIO()
  # As TensorFlow has it where nobody else configured logging before.
  monkeypatch.setattr(logger, 'handlers', [logging.StreamHandler(shown)])
  _sweep_with(
    monkeypatch, tmp_path, lambda seed: logger.warning('of seed %d', seed)
  )
  logger.warning('afterwards')
  assert shown.getvalue() == 'afterwards\n'
  for seed in (0, 1):
    log = (tmp_path / 's' / 'logs' / f'seed={seed}.log').read_text()
    assert log.count('of seed') == 1 and f'of seed {seed}' in log
    assert 'afterwards' not in log


def test_logger_that_tensorflow_makes_in_a_run_outlives_its_log(
  tmp_path, monkeypatch
):
  """As in a process that imports TensorFlow with its first run."""
  logger = tf.get_logger()
  monkeypatch.setattr(logger, 'handlers', [])

  def log(seed):
    if not logger.handlers:
      logger.addHandler(logging.StreamHandler())
    logger.warning('of seed %d', seed)

  assert _sweep_with(monkeypatch, tmp_path, log) == ['finished', 'finished']
  assert 'of seed 1' in (tmp_path / 's' / 'logs' / 'seed=1.log').read_text()


def test_compiled_functions_outlast_runs_of_a_few_structures(monkeypatch):
  tf.zeros([])  # TensorFlow compiles nothing before its first operation.
  cleared = []
  monkeypatch.setattr(
    pywrap_tfe, 'TFE_ContextClearCaches', lambda handle: cleared.append(1)
  )
  monkeypatch.setattr(worker, '_traces_before', 0)
  for traces, times in ((1, 0), (7, 0), (8, 1), (8, 1), (15, 1), (16, 2)):
    monkeypatch.setattr(reuse, 'traces', lambda traces=traces: traces)
    worker._clean_up()
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
    worker._clean_up()

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
