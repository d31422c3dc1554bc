"""A worker that runs the points of a sweep in sequence.

Importing TensorFlow Federated takes as long as a small run, so a worker process
imports it once and then claims one run after the other from the sweep's study.
"""

import contextlib
import dataclasses
import gc
import itertools
import logging
import math
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from multiprocessing import connection as connections
from typing import Any
from typing import Optional
from typing import TextIO

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import health
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import hparams
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import search
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.sweep import watch as watching
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BETWEEN_TRIES = 1.0
# Runs that turn out to be taken before the study is read anew.
_MOST_TAKEN = 8

# Called with 'started', 'round' or 'over', a run's name, and its round or
# outcome.
Report = Callable[[str, str, Any], None]


@dataclasses.dataclass(frozen=True)
class Job:
  """A point to run.

  Attributes:
    point: The point.
    log: The log file of the run.
    divergence_factor: Largest training loss, as a multiple of the untrained
      model's; 0 for no limit.
    rungs: The rounds after which the run is compared with others.
    compare: Called with the run so far and the round; raises `Pruned` to end
      the run.
    keep_checkpoints: Whether a run that is over keeps its checkpoints and
      client states.
  """

  point: grids.Point
  log: pathlib.Path
  divergence_factor: float = 0.0
  rungs: Sequence[int] = ()
  compare: Callable[[runs.Run, int], None] = lambda run, number: None
  keep_checkpoints: bool = True


def run(
  job: Job, report: Callable[[int], None] = lambda _: None
) -> outcomes.Outcome:
  """Runs or resumes a point in this process.

  Args:
    job: The point.
    report: Called periodically with the number of the round.

  Raises:
    Stopped: If a signal stopped the run.
  """
  point = job.point

  def compare(rows: Sequence[Mapping[str, float]]) -> None:
    number = int(rows[-1]['round'])
    if number in job.rungs:
      so_far = runs.Run(point.folder, point.identity, list(rows))
      job.compare(so_far, number)

  watch = watching.Watch(
    divergence_factor=job.divergence_factor, report=report, compare=compare
  )
  files.make_folder(job.log.parent)
  with (
    open(job.log, 'a', encoding='utf-8', buffering=1) as log,
    contextlib.redirect_stdout(log),
    contextlib.redirect_stderr(log),
    _redirect_tensorflow(log),
  ):
    try:
      settings = point.settings
      _wait_for_others(point.folder)
      finished = train.prepare(settings)
      if finished is None:
        metrics = files.RunFolder(point.folder).metrics
        watch.look_back(tables.RowFile(metrics).numbers)
        # The sweep's report draws all runs.
        train.run(settings, hooks=[watch], pictures=False)
      hparams.write_values(point)
      return outcome_of(point, outcomes.FINISHED)
    except watching.Pruned as e:
      print(f'Given up: {e.reason}.')
      return outcome_of(point, outcomes.PRUNED, e.reason)
    except watching.DivergedError as e:
      print(f'Given up: {e}.')
      return outcome_of(point, outcomes.DIVERGED, str(e))
    except errors.RunError as e:
      print(e)
      return outcome_of(point, outcomes.FAILED, str(e))
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The error is recorded, and other runs are not affected.
      traceback.print_exc()
      # TensorFlow prints the traceback before the message.
      last = (str(e).strip().splitlines() or [''])[-1].strip()
      reason = f'{type(e).__name__}: {last[:300]}'
      return outcome_of(point, outcomes.FAILED, reason)
    finally:
      _clean_up()


def outcome_of(
  point: grids.Point, status: str, reason: Optional[str] = None
) -> outcomes.Outcome:
  """Builds an outcome from the results in the run's folder."""
  try:
    found = runs.load(point.folder)
  except errors.SettingsError as e:
    if status == outcomes.FINISHED:
      status, reason = outcomes.FAILED, str(e)
    return outcomes.Outcome(status, reason)
  if status == outcomes.FINISHED and reason is None:
    reason = ' '.join(health.concerns(found.rows).values()) or None
  return outcomes.Outcome(
    status,
    reason,
    rounds=found.rounds,
    metric=found.metric,
    measures=outcomes.measures_of(found, point.settings.target_metric),
  )


@contextlib.contextmanager
def _redirect_tensorflow(log: TextIO) -> Iterator[None]:
  """Redirects TensorFlow's logger to a file.

  `redirect_stderr` has no effect on it, because its handler holds the original
  stream. Runs in one process trace the same functions repeatedly, of which
  TensorFlow warns.
  """
  before = {handler: handler.stream for handler in _tensorflow_handlers()}
  for handler in before:
    handler.setStream(log)
  try:
    yield
  finally:
    # A handler that TensorFlow added meanwhile has the log as standard error.
    for handler in _tensorflow_handlers():
      handler.setStream(before.get(handler, sys.__stderr__))


def _tensorflow_handlers() -> list[logging.StreamHandler]:
  return [
    handler
    for handler in logging.getLogger('tensorflow').handlers
    if isinstance(handler, logging.StreamHandler)
  ]


def _wait_for_others(folder: pathlib.Path) -> None:
  """Waits while another process uses a run's folder.

  A worker of a killed sweep may still be saving its run when the resumed sweep
  comes to the same run.

  Raises:
    Stopped: If a signal arrives while waiting.
  """
  inside = files.RunFolder(folder)
  signals = stopping.Signals()
  if inside.is_busy():
    print(f'Another process is using {folder}; waiting for it to finish.')
  with signals.handled(), signals.interruptible():
    while inside.is_busy():
      time.sleep(_SECONDS_BETWEEN_LOOKS)


# The number of traced rounds when compiled functions were last dropped, and
# when objects were last frozen.
_traces_before = 0
_traces_frozen = -1


def _clean_up() -> None:
  """Frees the memory that Keras holds for a run's models.

  Compiled functions are kept, as the next run needs them, until so many rounds
  were traced that the first of them are not cached any more.
  """
  global _traces_before, _traces_frozen
  from tff_adaptive import tff_internals  # pylint: disable=g-import-not-at-top

  traces = reuse.traces()
  full = traces - _traces_before >= reuse.MOST_STRUCTURES
  if full:
    _traces_before = traces
    gc.unfreeze()
  tff_internals.clear_keras_session(compiled=full)
  gc.collect()
  if traces != _traces_frozen:
    # What is imported and traced stays, and looking through it takes a tenth of
    # a run.
    _traces_frozen = traces
    gc.freeze()


def job_of(
  sweep: flags.Sweep,
  scheduler: search.TrialScheduler,
  point: grids.Point,
  taken: study_lib.Taken,
) -> Job:
  """Builds the job for a point of a sweep."""

  def compare(so_far: runs.Run, number: int) -> None:
    value = scores.score(
      scheduler.rule, so_far.measures(), so_far.metric, rises=so_far.rises
    )
    if taken.is_worse(value, number):
      raise watching.Pruned(
        f'not among the best 1/{scheduler.halving_factor} after round {number}'
      )

  return Job(
    point,
    log=sweep.log_of(point.name),
    divergence_factor=sweep.options['divergence_factor'],
    rungs=scheduler.rungs(point.name),
    compare=compare,
    keep_checkpoints=sweep.options['keep_checkpoints'],
  )


def work(
  sweep: flags.Sweep,
  scheduler: search.TrialScheduler,
  study: study_lib.Study,
  *,
  signals: stopping.Signals,
  report: Report,
  most_runs: float = math.inf,
) -> bool:
  """Runs points of a sweep in sequence, and waits for those elsewhere.

  Args:
    sweep: The sweep.
    scheduler: Its scheduler.
    study: Its study, which holds all points.
    signals: The handler of SIGINT and SIGTERM.
    report: Called with the progress; see `Report`.
    most_runs: Number of runs after which to return.

  Returns:
    Whether there may be more to run.

  Raises:
    Stopped: If a signal asked to stop; the current run is saved.
  """
  points = {p.name: p for p in sweep.points}
  count = 0
  # Runs that waited when the study was last read, which takes a while.
  waiting: Iterator[outcomes.Trial] = iter(())
  while count < most_runs:
    signals.check()
    taken = study.take_first(itertools.islice(waiting, _MOST_TAKEN))
    names: Sequence[str] = ()
    if taken is None:
      trials = study.trials()
      names = scheduler.next(trials)
      waiting = iter([trials[name] for name in names])
      taken = study.take_first(waiting)
    if taken is not None:
      count += 1
      job = job_of(sweep, scheduler, points[taken.name], taken)
      _run_taken(job, study, taken, report)
      if scheduler.learns:
        waiting = iter(())
    elif not names:
      if not any(map(outcomes.is_running, trials.values())):
        return False
      # A run elsewhere may die, or its result determine the next run.
      study.take_up_dead()
      with signals.interruptible():
        time.sleep(_SECONDS_BETWEEN_TRIES)
  return True


def _run_taken(
  job: Job,
  study: study_lib.Study,
  taken: study_lib.Taken,
  report: Report,
) -> None:
  name = taken.name
  with taken:
    try:
      report('started', name, None)
      outcome = run(job, lambda number: report('round', name, number))
    except (stopping.Stopped, KeyboardInterrupt):
      study.finish(taken, outcome_of(job.point, outcomes.WAITING, 'stopped'))
      raise
    # A failed run may be continued.
    if not job.keep_checkpoints and outcome.status != outcomes.FAILED:
      _discard_checkpoints(job.point)
  study.finish(taken, outcome)
  report('over', name, outcome)


def _discard_checkpoints(point: grids.Point) -> None:
  """Deletes a run's checkpoints and client states, if the system lets it."""
  try:
    files.RunFolder(point.folder).discard_checkpoints()
  except errors.RunError as e:
    print(e, file=sys.stderr)


def serve(
  connection: Any, sweep: flags.Sweep, cores: Optional[Sequence[int]] = None
) -> None:
  """Runs a worker process; its main function.

  Args:
    connection: Receives the arguments of `Report` calls, and finally ('left',
      '', (whether there may be more to run, the number of traced rounds)).
    sweep: The sweep.
    cores: The cores to compute on; all by default.
  """
  if cores is not None:
    machine.use_cores(cores)
  # As the command line does.
  gc.set_threshold(20_000, 20, 20)
  _end_with_parent()

  def report(kind: str, name: str, value: Any) -> None:
    if kind == 'started':
      _redirect_output(sweep.log_of(name))
    try:
      connection.send((kind, name, value))
    except OSError as e:
      # The sweep's process has ended: save the run and end this process too.
      raise stopping.Stopped(signal.SIGTERM) from e

  scheduler = search.scheduler_of(sweep)
  with (
    contextlib.suppress(stopping.Stopped, KeyboardInterrupt),
    search.open_study(sweep, scheduler) as study,
  ):
    more = work(
      sweep,
      scheduler,
      study,
      signals=stopping.Signals(),
      report=report,
      most_runs=sweep.options['runs_per_process'],
    )
    report('left', '', (more, reuse.traces()))


def _redirect_output(path: pathlib.Path) -> None:
  """Redirects crash messages of TensorFlow and the system to a run's log."""
  files.make_folder(path.parent)
  with open(path, 'a', encoding='utf-8') as log:
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)


def _end_with_parent() -> None:
  """Stops this process, saving its run, when the sweep's process ends."""
  parent = multiprocessing.parent_process()
  assert parent is not None

  def wait() -> None:
    connections.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=wait, daemon=True).start()
