"""Runs points of a sweep one after the other, in a process of their own.

Importing TensorFlow Federated takes as long as a small run. So a worker imports
it once and then runs whatever it is handed.
"""

import contextlib
import dataclasses
import logging
import math
import os
import pathlib
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Optional
from typing import TextIO

from tff_adaptive import errors
from tff_adaptive.recording import files
from tff_adaptive.recording import tables
from tff_adaptive.report import runs as results
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.training import experiment as train
from tff_adaptive.training import stopping

# Rounds in a row far above the first loss, or without a single usable update,
# after which a run is given up.
_PATIENCE = 3
_SECONDS_BETWEEN_REPORTS = 0.5
_SECONDS_BETWEEN_LOOKS = 0.1
_EVENTS_SUFFIX = '.hparams'


class DivergedError(errors.RunError):
  """A run got so far from any minimum that more rounds are of no use."""


class Paused(stopping.Stopped):
  """A run came to the round up to which it was asked to go."""

  def __init__(self) -> None:
    super().__init__(signal.SIGTERM)


@dataclasses.dataclass(frozen=True)
class Job:
  """A point to run.

  Attributes:
    point: The point.
    log: The file that gets what the run says.
    divergence_factor: How many times the loss of the untrained model the
      training loss may be; 0 for any.
    until_round: Go no further than this round, and be ready to go on.
  """

  point: grids.Point
  log: pathlib.Path
  divergence_factor: float = 0.0
  until_round: Optional[int] = None


@dataclasses.dataclass(frozen=True)
class Outcome:
  """What became of a point: a status of the store's and why."""

  status: str
  reason: Optional[str] = None


class Watch:
  """Gives a run up once it has diverged, and tells how far it is."""

  def __init__(
    self,
    *,
    divergence_factor: float,
    until_round: Optional[int] = None,
    report: Callable[[int], None] = lambda _: None,
  ):
    self._factor = divergence_factor
    self._until = until_round
    self._report = report
    self._reported = -math.inf
    self._untrained: Optional[float] = None
    # Rounds, so that one that is run again after a resume counts once.
    self._above: set[int] = set()
    self._useless: set[int] = set()

  def look_back(self, rows: Iterable[Mapping[str, Any]]) -> None:
    """Looks at what a run that is gone on with has done so far.

    Raises:
      DivergedError: If it was to be given up.
    """
    for row in rows:
      self._judge(row)

  def __call__(self, row: Mapping[str, Any]) -> None:
    """Looks at a row of metrics.csv.

    Raises:
      DivergedError: If the run is to be given up.
      Paused: If it has come far enough.
    """
    number = int(row['round'])
    if time.monotonic() - self._reported >= _SECONDS_BETWEEN_REPORTS:
      self._reported = time.monotonic()
      self._report(number)
    self._judge(row)
    if self._until is not None and number >= self._until:
      raise Paused()

  def _judge(self, row: Mapping[str, Any]) -> None:
    number = int(row['round'])
    if number == 0:
      value = row.get('validation/loss')
      self._untrained = None if value is None else float(value)
      return
    loss = float(row.get('train/loss', 0.0))
    if not math.isfinite(loss):
      raise DivergedError(f'the training loss of round {number} is {loss}')
    limit = self._factor * (self._untrained or 0.0)
    if _too_many(self._above, number, 0 < limit < loss):
      raise DivergedError(
        f'the training loss of round {number} is {loss:.4g}, and was more than '
        f'{self._factor:g} times that of the untrained model for {_PATIENCE} '
        'rounds'
      )
    count = row.get('clients/count')
    rejected = count is not None and int(count) == int(
      row.get('clients/rejected', 0)
    )
    useless = rejected or bool(row.get('update/non_finite'))
    if _too_many(self._useless, number, useless):
      raise DivergedError(
        f'no update was finite in the {_PATIENCE} rounds up to {number}'
      )


def _too_many(bad: set[int], number: int, is_bad: bool) -> bool:
  """Notes whether a round was bad; tells if it ends a row of bad ones."""
  (bad.add if is_bad else bad.discard)(number)
  return all(number - i in bad for i in range(_PATIENCE))


def run(job: Job, report: Callable[[int], None] = lambda _: None) -> Outcome:
  """Runs a point in this process, or goes on with it.

  Args:
    job: The point.
    report: Is told the round, now and then.

  Raises:
    Stopped: If a signal stopped it.
  """
  settings = job.point.settings
  watch = Watch(
    divergence_factor=job.divergence_factor,
    until_round=job.until_round,
    report=report,
  )
  files.make_folder(job.log.parent)
  with (
    open(job.log, 'a', encoding='utf-8', buffering=1) as log,
    contextlib.redirect_stdout(log),
    contextlib.redirect_stderr(log),
    _redirect_tensorflow(log),
  ):
    try:
      _wait_for_others(settings.folder)
      finished = train.prepare(settings)
      if finished is None:
        metrics = files.RunFolder(settings.folder).metrics
        watch.look_back(tables.RowFile(metrics).numbers)
        train.run(settings, on_row=watch)
      _write_hparams(job.point)
      return Outcome(sweep_store.FINISHED)
    except Paused:
      return Outcome(sweep_store.WAITING)
    except DivergedError as e:
      print(f'Given up: {e}.')
      return Outcome(sweep_store.DIVERGED, str(e))
    except errors.RunError as e:
      print(e)
      return Outcome(sweep_store.FAILED, str(e))
    except Exception as e:  # pylint: disable=broad-exception-caught
      # One run's mistake is recorded and the others go on.
      traceback.print_exc()
      # TensorFlow puts the way there before what went wrong.
      last = (str(e).strip().splitlines() or [''])[-1].strip()
      return Outcome(sweep_store.FAILED, f'{type(e).__name__}: {last[:300]}')
    finally:
      _clean_up()


@contextlib.contextmanager
def _redirect_tensorflow(log: TextIO) -> Iterator[None]:
  """Sends TensorFlow's warnings to a file, which `redirect_stderr` does not.

  Its logger holds on to the stream that it was made with. Runs of one process
  trace the same functions over and over, which it warns of.
  """
  before = {handler: handler.stream for handler in _tensorflow_handlers()}
  for handler in before:
    handler.setStream(log)
  try:
    yield
  finally:
    # A handler that TensorFlow made meanwhile took the log for standard error.
    for handler in _tensorflow_handlers():
      handler.setStream(before.get(handler, sys.__stderr__))


def _tensorflow_handlers() -> list[logging.StreamHandler]:
  return [
    handler
    for handler in logging.getLogger('tensorflow').handlers
    if isinstance(handler, logging.StreamHandler)
  ]


def _wait_for_others(folder: pathlib.Path) -> None:
  """Waits while another process is at work in a run's folder.

  A worker whose sweep was killed saves its run, while the sweep that goes on
  may come to the same run.

  Raises:
    Stopped: If a signal came meanwhile.
  """
  inside = files.RunFolder(folder)
  signals = stopping.Signals()
  if inside.is_busy():
    print(f'Another process is at work in {folder}: waiting for its end.')
  with signals.handled(), signals.interruptible():
    while inside.is_busy():
      time.sleep(_SECONDS_BETWEEN_LOOKS)


def _clean_up() -> None:
  """Frees what Keras keeps of the models of a run."""
  import gc  # pylint: disable=g-import-not-at-top

  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  tf.keras.backend.clear_session()
  gc.collect()


def _write_hparams(point: grids.Point) -> None:
  """Adds to a run's events what TensorBoard's HParams view shows.

  Once a run is over: the loop writes its events afresh whenever it starts.
  """
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tensorboard.plugins.hparams import api  # pylint: disable=g-import-not-at-top

  measures = results.load(point.settings.folder).measures()
  folder = files.RunFolder(point.settings.folder).tensorboard
  if not folder.is_dir() or list(folder.glob(f'*{_EVENTS_SUFFIX}')):
    return  # A run that was finished before and has them.
  values = {
    k: _number(v)
    for k, v in (point.flags or {'task': point.settings.task}).items()
  }
  writer = tf.summary.create_file_writer(
    str(folder), filename_suffix=_EVENTS_SUFFIX
  )
  with writer.as_default(step=0):
    api.hparams(values, trial_id=point.name)
    for name, value in measures.items():
      tf.summary.scalar(f'result/{name}', value)
  writer.close()


def write_hparams_config(
  folder: pathlib.Path, points: list[grids.Point]
) -> None:
  """Writes which hyperparameters and results the HParams view has."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tensorboard.plugins.hparams import api  # pylint: disable=g-import-not-at-top

  if folder.is_dir():
    for old in folder.glob(f'*{_EVENTS_SUFFIX}'):
      old.unlink()
  flags = list(dict.fromkeys(f for p in points for f in p.flags))
  hparams = []
  for flag in flags:
    values = [
      _number(v)
      for v in dict.fromkeys(p.flags[flag] for p in points if flag in p.flags)
    ]
    if len({type(v) for v in values}) == 1:
      hparams.append(api.HParam(flag, api.Discrete(values)))
    else:
      hparams.append(api.HParam(flag))
  writer = tf.summary.create_file_writer(
    str(folder), filename_suffix=_EVENTS_SUFFIX
  )
  with writer.as_default(step=0):
    api.hparams_config(
      hparams=hparams,
      metrics=[api.Metric(f'result/{m}') for m in sweep_store.MEASURES],
    )
  writer.close()


def _number(text: str) -> Any:
  try:
    return float(text)
  except ValueError:
    return text


def serve(connection: Any) -> None:
  """The main function of a worker process.

  Args:
    connection: Hands it jobs, `None` for no more, and takes ('round', number)
      and ('outcome', outcome).
  """
  _end_with_parent()

  def report(number: int) -> None:
    try:
      connection.send(('round', number))
    except OSError as e:
      # Nobody listens any more; the run is saved and this process ends.
      raise stopping.Stopped(signal.SIGTERM) from e

  while True:
    try:
      job = connection.recv()
    except EOFError:
      return
    if job is None:
      return
    with open(job.log, 'a', encoding='utf-8') as log:
      # What TensorFlow or the system says of a crash belongs to the run.
      os.dup2(log.fileno(), 1)
      os.dup2(log.fileno(), 2)
    try:
      outcome = run(job, report)
    except (stopping.Stopped, KeyboardInterrupt):
      with contextlib.suppress(OSError):
        connection.send(('outcome', Outcome(sweep_store.WAITING, 'stopped')))
      return
    connection.send(('outcome', outcome))


def _end_with_parent() -> None:
  """Stops this process, its run saved, when the sweep's process is gone."""
  import multiprocessing  # pylint: disable=g-import-not-at-top
  from multiprocessing import connection  # pylint: disable=g-import-not-at-top

  parent = multiprocessing.parent_process()
  assert parent is not None

  def wait() -> None:
    connection.wait([parent.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)

  threading.Thread(target=wait, daemon=True).start()
