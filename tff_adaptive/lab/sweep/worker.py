"""A worker that runs the points of a sweep in sequence.

Importing TensorFlow Federated takes as long as a small run, so a worker process
imports it once and then claims one run after the other from the sweep's study.
Errors of a run are its outcome; errors of the machine, such as a full disk, and
of the study end the worker and with it the sweep.
"""

import contextlib
import dataclasses
import errno
import gc
import math
import multiprocessing
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from multiprocessing import connection as connections
from typing import Any, Optional, TextIO

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import health
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import storage
from tff_adaptive.lab.sweep import study as study_lib
from tff_adaptive.lab.training import experiment as train
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import machine

_SECONDS_BETWEEN_LOOKS = 0.1
_SECONDS_BETWEEN_TRIES = 1.0
# Errors of the machine, which the next runs would have too.
_OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


# Consecutive rounds far above the initial loss, or without a usable update,
# after which a run has diverged.
_PATIENCE = 3


class DivergedError(errors.RunError):
  """Raised when a run has diverged."""


class Pruned(stopping.Stopped):
  """Raised when a run is worse than others after equally many rounds."""


class Watch(hooks.Hook):
  """A hook that ends a run once it has diverged or is pruned."""

  def __init__(
    self,
    *,
    divergence_factor: float,
    compare: Callable[[Sequence[Mapping[str, float]]], None] = lambda _: None,
  ):
    """Starts without any row.

    Args:
      divergence_factor: Largest training loss, as a multiple of the untrained
        model's; 0 for no limit.
      compare: Called with the rows so far; may raise `Pruned`.
    """
    self._factor = divergence_factor
    self._compare = compare
    self._rows: list[Mapping[str, float]] = []
    # Whether each round was bad, so that one repeated after a resume counts
    # once.
    self._bad: dict[int, bool] = {}

  def look_back(self, rows: Iterable[Mapping[str, Any]]) -> None:
    """Checks the earlier rounds of a resumed run.

    Raises:
      DivergedError, Pruned: If the run should have ended.
    """
    for row in rows:
      self.round(hooks.Round(row=row))

  def round(self, event: hooks.Round) -> None:
    """Checks a round.

    Raises:
      DivergedError, Pruned: If the run has diverged or is pruned.
    """
    row = event.row
    number = int(row['round'])
    # A round repeated after a resume replaces its row.
    del self._rows[number:]
    self._rows.append({k: float(v) for k, v in row.items() if v is not None})
    self._check_loss(number, row)
    self._compare(self._rows)

  def _check_loss(self, number: int, row: Mapping[str, Any]) -> None:
    loss = float(row.get('train/loss') or 0.0)
    if not math.isfinite(loss):
      raise DivergedError(f'the training loss of round {number} is {loss}')
    limit = self._factor * self._rows[0].get('validation/loss', 0.0)
    rejected = float(row.get('clients/rejected') or 0)
    useless = 0 < rejected == row.get('clients/count') or bool(
      row.get('update/non_finite')
    )
    self._bad[number] = useless or 0 < limit < loss
    if not all(self._bad.get(number - i) for i in range(_PATIENCE)):
      return
    if useless:
      raise DivergedError(
        f'no update was finite in the {_PATIENCE} rounds up to {number}'
      )
    raise DivergedError(
      f'the training loss of round {number} is {loss:.4g}, and exceeded '
      f'{self._factor:g} times that of the untrained model for {_PATIENCE} '
      'rounds'
    )


def run(
  sweep: flags.Sweep, point: grids.Point, trial: Any = None
) -> outcomes.Outcome:
  """Runs or resumes a point in this process.

  Args:
    sweep: The sweep.
    point: The point.
    trial: Optuna's trial, if its pruner may end the run.

  Raises:
    RunError: If the disk is full or read-only.
    Stopped: If a signal stopped the run.
  """
  rule = scores.RULES[sweep.select]
  prunes = trial is not None and sweep.options['pruner'] != 'none'
  place = storage.describe(sweep.folder, sweep.options['storage'])
  directions: dict[str, bool] = {}

  def compare(rows: Sequence[Mapping[str, float]]) -> None:
    number = int(rows[-1]['round'])
    if number == 0:
      hparams = files.RunFolder(point.folder).read_hparams() or {}
      directions.update(
        metric_names.merge_directions(
          hparams.get('metric_directions'), point.settings.metric_direction
        )
      )
      # Before the first run is over, which could not be compared.
      values = hooks.group(rows[0], 'validation')
      main = metric_names.main_metric(values)
      metric_names.require_direction(main, directions)
      return
    last = number >= point.total_rounds
    if last or number % point.settings.rounds_per_eval or not prunes:
      return
    so_far = runs.Run(
      point.folder, point.identity, list(rows), directions=directions
    )
    score = scores.score(
      rule, so_far.measures(), so_far.metric, rises=so_far.rises
    )
    with storage.complaints(place):
      trial.report(score, number)
      is_worse = trial.should_prune()
    if is_worse:
      raise Pruned(signal.SIGTERM)

  watch = Watch(
    divergence_factor=sweep.options['divergence_factor'], compare=compare
  )
  with output_to(sweep.log_of(point.name)) as log:
    try:
      settings = point.settings
      _wait_for_others(point.folder)
      finished = train.prepare(settings)
      if finished is None:
        metrics = files.RunFolder(point.folder).metrics
        watch.look_back(tables.RowFile(metrics).numbers)
        # The sweep's report draws all runs.
        train.run(settings, hooks=[watch], pictures=False)
      return outcome_of(point, outcomes.FINISHED)
    except Pruned:
      pruned = outcome_of(point, outcomes.PRUNED)
      reason = f'worse than others after round {pruned.rounds}'
      return dataclasses.replace(pruned, reason=reason)
    except DivergedError as e:
      print(f'Given up: {e}.', file=log)
      return outcome_of(point, outcomes.DIVERGED, str(e))
    except Exception as e:  # pylint: disable=broad-exception-caught
      # The error is recorded, and other runs are not affected.
      if _is_of_the_sweep(e):
        raise
      if isinstance(e, errors.RunError):
        print(e, file=log)
        return outcome_of(point, outcomes.FAILED, str(e))
      traceback.print_exc(file=log)
      # TensorFlow prints the traceback before the message.
      last = (str(e).strip().splitlines() or [''])[-1].strip()
      reason = f'{type(e).__name__}: {last[:300]}'
      return outcome_of(point, outcomes.FAILED, reason)
    finally:
      clean_up()


def _is_of_the_sweep(error: Optional[BaseException]) -> bool:
  """Returns whether other runs would have the same error.

  That is, if the disk is full or read-only, if runs cannot be compared, or if
  the study cannot be reached.
  """
  if isinstance(
    error, (metric_names.UnknownDirectionError, storage.StudyError)
  ):
    return True
  while error is not None:
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
      return True
    error = error.__cause__ or error.__context__
  return False


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
    rises=found.rises,
    measures=outcomes.measures_of(found, point.settings.target_metric),
  )


@contextlib.contextmanager
def output_to(path: pathlib.Path) -> Iterator[TextIO]:
  """Redirects what this process writes to a log, crash messages included."""
  files.make_folder(path.parent)
  streams = {1: sys.stdout, 2: sys.stderr}
  before = {number: os.dup(number) for number in streams}
  with open(path, 'a', encoding='utf-8', buffering=1) as log:
    for number, stream in streams.items():
      stream.flush()
      os.dup2(log.fileno(), number)
    try:
      yield log
    finally:
      for number, stream in streams.items():
        stream.flush()
        os.dup2(before[number], number)
        os.close(before[number])


def _wait_for_others(folder: pathlib.Path) -> None:
  """Waits while another process uses a run's folder.

  A worker of a killed sweep may still be saving its run when the resumed sweep
  comes to the same run.

  Raises:
    Stopped: If a signal arrives while waiting.
  """
  inside = files.RunFolder(folder)
  signals = stopping.Signals()
  with signals.handled(), signals.interruptible():
    while inside.is_busy():
      time.sleep(_SECONDS_BETWEEN_LOOKS)


# The number of traced rounds when compiled functions were last dropped, and
# when objects were last frozen.
_traces_before = 0
_traces_frozen = -1


def clean_up() -> None:
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


def work(
  sweep: flags.Sweep,
  study: study_lib.Study,
  *,
  signals: stopping.Signals,
  report: Callable[[], None] = lambda: None,
  most_runs: float = math.inf,
) -> None:
  """Runs points of a sweep in sequence, and waits for those elsewhere.

  Args:
    sweep: The sweep.
    study: Its study.
    signals: The handler of SIGINT and SIGTERM.
    report: Called after each run.
    most_runs: Number of runs after which to return.

  Raises:
    RunError: If the study cannot be read or written, or the disk is full.
    Stopped: If a signal asked to stop; the current run is saved.
  """

  def run_claimed(point: grids.Point, trial: Any) -> outcomes.Outcome:
    outcome = run(sweep, point, trial)
    # A failed run may be continued.
    if not sweep.options['keep_checkpoints'] and (
      outcome.status != outcomes.FAILED
    ):
      discard_checkpoints(point)
    return outcome

  count = 0
  while count < most_runs:
    signals.check()
    with storage.complaints(study.place):
      study.add_repeats()
      was_run = study.run_next(run_claimed)
    if was_run is None:
      return
    if was_run:
      count += 1
      report()
    else:
      # A run elsewhere may die, or its result determine the next run.
      with signals.interruptible():
        time.sleep(_SECONDS_BETWEEN_TRIES)


def discard_checkpoints(point: grids.Point) -> None:
  """Deletes a run's checkpoints and client states, if the system lets it."""
  try:
    files.RunFolder(point.folder).discard_checkpoints()
  except errors.RunError as e:
    print(e, file=sys.stderr)


def prepare(cores: Sequence[int]) -> None:
  """Prepares a worker process, which ends with its parent.

  Args:
    cores: The cores to compute on.
  """
  machine.use_cores(cores)
  # As the command line does.
  gc.set_threshold(20_000, 20, 20)
  _end_with_parent()


def serve(connection: Any, sweep: flags.Sweep, cores: Sequence[int]) -> None:
  """Runs a worker process; its main function.

  Args:
    connection: Receives a message if the worker cannot go on.
    sweep: The sweep.
    cores: The cores to compute on.
  """
  prepare(cores)
  try:
    with contextlib.suppress(stopping.Stopped, KeyboardInterrupt):
      work(
        sweep,
        study_lib.Study(sweep),
        signals=stopping.Signals(),
        most_runs=sweep.options['runs_per_process'],
      )
  except errors.RunError as e:
    connection.send(str(e))
  except Exception as e:  # pylint: disable=broad-exception-caught
    traceback.print_exc()
    connection.send(f'A worker process failed: {type(e).__name__}: {e}')


def _end_with_parent() -> None:
  """Stops this process, saving its run, when the sweep's process ends."""
  parent = multiprocessing.parent_process()
  assert parent is not None

  def wait() -> None:
    connections.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=wait, daemon=True).start()
