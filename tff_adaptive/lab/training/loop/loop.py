"""The training loop: rounds, evaluation, records, checkpoints, resumption."""

import collections
import contextlib
import dataclasses
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import best
from tff_adaptive.lab.recording import checkpoints as checkpoints_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks as hooks_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import progress as progress_lib
from tff_adaptive.lab.recording import records as records_lib
from tff_adaptive.lab.recording import tensorboard
from tff_adaptive.lab.training import accounting
from tff_adaptive.lab.training.data import client_failures
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.evaluation import (
  client_tests as client_tests_lib,
)
from tff_adaptive.lab.training.evaluation import evaluator as evaluator_lib
from tff_adaptive.lab.training.evaluation import validation
from tff_adaptive.lab.training.loop import early_stopping as early_stopping_lib
from tff_adaptive.lab.training.loop import rounds as rounds_lib
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.lab.training.participation import availability


@dataclasses.dataclass(frozen=True)
class Parts:
  """The parts of a run that the training loop uses.

  Attributes:
    task: The task.
    formula: The method's update rules, as text.
    cohort_fn: Maps a round's number to its clients' ids.
    rounds: The rounds, with their state.
    evaluator: The evaluator of the model.
    clients: The training clients, with their data.
    splits: The validation and test splits.
    goal: The metric that rounds are compared by.
    participation: The clients that answer in each round; `None` if all do
      without delay.
    ledger: The privacy accountant; `None` for a run without privacy.
    directions: Whether higher is better, for metrics where this is known.
    client_tests: The per-client tests of the trained model; `None` without.
  """

  task: tff.simulation.baselines.BaselineTask
  formula: str
  cohort_fn: Callable[[int], Sequence[str]]
  rounds: rounds_lib.Rounds
  evaluator: evaluator_lib.Evaluator
  clients: data_lib.Clients
  splits: validation.Splits
  goal: early_stopping_lib.Goal
  participation: Optional[availability.Participation] = None
  ledger: Optional[accounting.Ledger] = None
  directions: Mapping[str, bool] = dataclasses.field(default_factory=dict)
  client_tests: Optional[client_tests_lib.ClientTests] = None

  def columns(self, number: int) -> dict[str, Any]:
    """Returns a round's columns on privacy and participation."""
    sources = [s for s in (self.ledger, self.participation) if s is not None]
    return {k: v for s in sources for k, v in s.columns(number).items()}

  def keeper_of_best(self, folder: files.RunFolder) -> best.Best:
    """Builds the hook that saves the best round."""
    group = self.goal.column.partition('/')[0]
    return best.Best(
      folder.checkpoints,
      self.goal,
      lambda: self.rounds.models('validation')[group],
      run=folder.identity,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Intervals:
  """The length of a run, and its intervals of evaluation and checkpoints.

  Attributes:
    total_rounds: Number of rounds; they are numbered from 1.
    rounds_per_eval: Rounds between evaluations; the model is also evaluated
      before the first round and after the last.
    rounds_per_checkpoint: Rounds between checkpoints; one is also written after
      the last round.
  """

  total_rounds: int
  rounds_per_eval: int
  rounds_per_checkpoint: int

  @classmethod
  def of(cls, settings: settings_lib.Settings) -> 'Intervals':
    """Returns those of a run's settings."""
    names = [field.name for field in dataclasses.fields(cls)]
    return cls(**{name: getattr(settings, name) for name in names})

  def evaluates(self, round_number: int) -> bool:
    return (
      round_number % self.rounds_per_eval == 0
      or round_number == self.total_rounds
    )

  def checkpoints(self, round_number: int) -> bool:
    return (
      round_number % self.rounds_per_checkpoint == 0
      or round_number == self.total_rounds
    )


class Clock:
  """A timer of seconds by phase: 'data', 'train', 'evaluate' and others."""

  def __init__(self) -> None:
    self.spent: dict[str, float] = collections.defaultdict(float)
    self._start = self._last = time.perf_counter()

  def lap(self, what: str) -> None:
    """Adds the seconds since the last lap to a phase."""
    now = time.perf_counter()
    self.spent[what] += now - self._last
    self._last = now

  def train_lap(self, aggregated_before: Optional[float]) -> None:
    """Adds the seconds since the last lap to training and aggregation.

    Args:
      aggregated_before: `runtime.aggregation_seconds()` before the round.
    """
    self.lap('train')
    aggregated = runtime.aggregation_seconds()
    if aggregated_before is not None and aggregated is not None:
      seconds = aggregated - aggregated_before
      self.spent['train'] -= seconds
      self.spent['aggregate'] += seconds

  @property
  def columns(self) -> dict[str, float]:
    """A round's columns of metrics.csv: seconds in total and by phase."""
    parts = ['data', 'train', 'aggregate', 'evaluate']
    if 'aggregate' not in self.spent:  # Then it is in `train`.
      parts.remove('aggregate')
    return {
      'seconds': round(time.perf_counter() - self._start, 6),
      **{f'seconds/{what}': round(self.spent[what], 6) for what in parts},
    }

  def add_to(self, totals: dict[str, float]) -> None:
    """Adds the seconds of each phase to totals by phase, in place."""
    for what, seconds in self.spent.items():
      totals[what] += seconds


def charge(
  row: dict[str, Any], parts: Parts, number: int, before: Mapping[str, Any]
) -> None:
  """Adds to a round's row what was sent, and the clients' virtual time.

  Args:
    row: The row, with the process' columns; changed in place.
    parts: The run's.
    number: The round's number.
    before: The row of the round before.
  """
  traffic = parts.rounds.traffic
  if traffic is not None:
    row['bytes_down'] = traffic.down
    row.setdefault('bytes_up', traffic.up)
  row.update(parts.columns(number))
  if (
    availability.ROUND_SECONDS in row
    and metric_names.VIRTUAL_SECONDS not in row
  ):
    total = float(before.get(metric_names.VIRTUAL_SECONDS) or 0)
    total += row[availability.ROUND_SECONDS]
    row[metric_names.VIRTUAL_SECONDS] = round(total, 6)


class Training:
  """The training of one run.

  A row of metrics.csv is written before the checkpoint of its round, and rows
  after the checkpoint that a run resumes from are dropped, so that the file and
  the state agree whenever the run is killed.
  """

  def __init__(
    self,
    parts: Parts,
    *,
    folder: files.RunFolder,
    intervals: Intervals,
    progress: Optional[progress_lib.Progress] = None,
    signals: Optional[stopping.Signals] = None,
    patience: Optional[int] = None,
    hooks: Sequence[Any] = (),
    max_rejected_clients: Optional[int] = None,
  ):
    """Restores the last checkpoint, if there is one.

    Args:
      parts: The process with its initial state, data and evaluation.
      folder: The run's folder; entered by the caller.
      intervals: Number of rounds, and intervals of evaluation and checkpoints.
      progress: The progress display; on standard output by default.
      signals: The handler of SIGINT and SIGTERM; none by default.
      patience: As `early_stopping.EarlyStopping` takes it.
      hooks: The caller's listeners, each a `recording.hooks.Hook` or an object
        with some of its methods.
      max_rejected_clients: As `ClientFailureHandler` takes `most`.

    Raises:
      RunError: If there are checkpoints, but none can be used.
    """
    self._parts = parts
    self._rounds = parts.rounds
    self._folder = folder
    self._intervals = intervals
    self._progress = progress or progress_lib.Progress(intervals.total_rounds)
    self._signals = signals or stopping.Signals()
    self._early_stopping = early_stopping_lib.EarlyStopping(
      parts.goal, patience
    )
    self._best = parts.keeper_of_best(folder)
    say = self._progress.say
    self._checkpoints = checkpoints_lib.Checkpoints(
      folder.checkpoints, run=folder.identity, warn=say
    )
    checkpoint = self._checkpoints.load_latest(
      self._rounds.program_state, self._rounds.restore, records_lib.ROW_SUMS
    )
    self._resumed_from = None if checkpoint is None else checkpoint.round_number
    # The last complete round; -1 before the evaluation of the untrained model.
    self._done = -1 if self._resumed_from is None else self._resumed_from
    self._saved = self._done
    self._records = records_lib.Records(folder, checkpoint)
    # A round is complete once recorded by these; then listeners are notified.
    self._recorders = hooks_lib.HookList(
      [self._records, tensorboard.TensorBoard(folder.tensorboard)]
    )
    self._listeners = hooks_lib.HookList(
      [
        self._progress,
        self._early_stopping,
        self._best,
        *(hooks_lib.Guarded(h, say) for h in hooks),
      ]
    )
    self._failure_handler = client_failures.ClientFailureHandler(
      self._rounds,
      data_lib.Prefetcher(
        parts.clients, parts.cohort_fn, intervals.total_rounds
      ),
      most=max_rejected_clients,
      say=say,
    )
    self._spent: dict[str, float] = collections.defaultdict(float)
    hparams = folder.read_hparams() or {}
    self._settings: Mapping[str, Any] = hparams.get('settings', {})

  def run(self) -> early_stopping_lib.Result:
    """Trains, or resumes training, until the run ends.

    Raises:
      RunError: If data cannot be read, results cannot be written, or too many
        clients of a round were excluded; the last complete round is saved if
        possible.
      Stopped: If a signal stopped the run; the last complete round is saved.
    """
    try:
      self._start()
      if self._done < 0:
        self._look_at_untrained_model()
      while self._done < self._intervals.total_rounds and not self._over:
        self._run_round()
      self._save_last_round()
      self._test()
    except stopping.Stopped as e:
      try:
        self._save_stopped()
      except errors.RunError as failed:
        self._end(hooks_lib.FAILED, failed)
        raise
      self._end(hooks_lib.STOPPED, e)
      raise
    except BaseException as e:
      # A failed runtime, for example. Keeps the rounds so far, unless it is
      # writing that failed.
      if isinstance(e, (Exception, SystemExit)):
        with contextlib.suppress(errors.RunError):
          self._save_last_round()
      self._end(hooks_lib.FAILED, e)
      raise
    self._end(hooks_lib.FINISHED)
    self._failure_handler.sum_up()
    return early_stopping_lib.Result(
      self._records.rows, dict(self._spent), self._resumed_from
    )

  def _start(self) -> None:
    """Replays the rows of a resumed run, and notifies hooks of the start."""
    self._early_stopping.look_back(self._records.rows)
    if self._done < self._intervals.total_rounds and not self._over:
      self._records.forget_final()
    event = hooks_lib.Start(
      folder=self._folder.path,
      identity=self._folder.identity,
      settings=self._settings,
      total_rounds=self._intervals.total_rounds,
      resumed_from=self._resumed_from,
      rows=self._records.rows,
      dropped=self._records.dropped,
    )
    self._recorders.start(event)
    self._listeners.start(event)
    early_stopping_lib.check_finite(self._records.rows, self._settings)

  @property
  def _over(self) -> bool:
    """Whether early stopping has ended the run."""
    return self._early_stopping.reason is not None

  def _look_at_untrained_model(self) -> None:
    """Evaluates the model before the first round, as round 0."""
    with self._signals.interruptible():
      values = self._evaluate(self._parts.splits.validation(0))
    event = hooks_lib.Round(row={'round': 0, **values})
    self._recorders.round(event)
    self._done = 0
    self._tell(event, values)

  def _run_round(self) -> None:
    """Runs the next round; evaluates and saves it if these are due."""
    clock = Clock()
    number = self._done + 1
    # Clients' kept states are written while a round runs.
    self._folder.check_owned()
    before = self._rounds.snapshot()
    try:
      reported, values = self._train(number, clock)
      event = hooks_lib.Round(
        row=self._row(number, reported, values, clock),
        steps=self._rounds.step_records,
      )
      self._folder.check_owned()
      self._recorders.round(event)
    except BaseException:
      # A round saved while the error propagates must have its row.
      self._rounds.roll_back(before)
      raise
    self._done = number
    clock.lap('rest')
    if self._intervals.checkpoints(number):
      self._save()
      clock.lap('checkpoint')
    clock.add_to(self._spent)
    self._tell(event, values)
    early_stopping_lib.check_finite(self._records.rows, self._settings)
    self._signals.check()

  def _tell(self, event: hooks_lib.Round, values: Mapping[str, Any]) -> None:
    """Notifies listeners of a round, and of the evaluation after it."""
    if values:
      self._listeners.evaluation(
        hooks_lib.Evaluation(round_number=event.number, values=values)
      )
    self._listeners.round(event)

  def _train(
    self, number: int, clock: Clock
  ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Trains a round; returns its columns, and its evaluation if one is due."""
    values: Mapping[str, Any] = {}
    with self._signals.interruptible():
      cohort = self._parts.cohort_fn(number)
      datasets = self._failure_handler.read(number, cohort)
      clock.lap('data')
      aggregated = runtime.aggregation_seconds()
      reported = self._failure_handler.run(number, cohort, datasets)
      clock.train_lap(aggregated)
      if self._intervals.evaluates(number):
        values = self._evaluate(self._parts.splits.validation(number))
        clock.lap('evaluate')
    return reported, values

  def _row(
    self,
    number: int,
    reported: Mapping[str, Any],
    values: Mapping[str, Any],
    clock: Clock,
  ) -> dict[str, Any]:
    # Sums over clients of what does not add up would mean nothing.
    not_sums = '|'.join(map(re.escape, self._parts.evaluator.not_sums))
    row = {
      'round': number,
      **{
        name: value
        for name, value in reported.items()
        if not re.fullmatch(rf'train/({not_sums})(_\d+)*', name)
      },
      **values,
      **clock.columns,
    }
    charge(row, self._parts, number, self._records.rows[-1])
    return row

  def _evaluate(
    self, batches: data_lib.Batches, split: str = 'validation'
  ) -> Mapping[str, Any]:
    """Evaluates the model and its average; returns metrics by column."""
    try:
      return {
        f'{group}/{name}': value
        for group, weights in self._rounds.models(split).items()
        for name, value in self._parts.evaluator.evaluate(
          weights, batches
        ).items()
      }
    except tf.errors.OpError as e:
      raise errors.RunError(
        f'The model cannot be evaluated on the {split} data: '
        f'{client_failures.explain(e).rstrip(".")}.'
      ) from e

  def _test(self) -> None:
    """Evaluates the trained model on the test split, unless already done."""
    tested = hooks_lib.group(self._records.rows[-1], 'test')
    # Cells are empty where a final evaluation was dropped, as the run went on.
    if any(value not in ('', None) for value in tested.values()):
      return
    clock = Clock()
    with self._signals.interruptible():
      values = self._evaluate(self._parts.splits.test(), 'test')
      clients: list[Any] = []
      if self._parts.client_tests is not None:
        more, clients = self._parts.client_tests(
          self._rounds.model_weights(), self._rounds.weights_of
        )
        values = {**values, **more}
    event = hooks_lib.Evaluation(
      round_number=self._done, values=values, final=True, clients=clients
    )
    self._folder.check_owned()
    self._recorders.evaluation(event)
    self._listeners.evaluation(event)
    clock.lap('test')
    clock.add_to(self._spent)

  def _save(self) -> None:
    self._folder.check_owned()
    # Both first: a checkpoint requires the rows and the best model so far.
    self._best.write()
    sums = self._records.sync(self._done)
    self._checkpoints.save(self._rounds.program_state, self._done, sums)
    self._saved = self._done
    self._best.prune(self._done)

  def _save_last_round(self) -> None:
    """Saves the last complete round, unless it is saved already."""
    if self._done > max(self._saved, 0):
      self._save()

  def _save_stopped(self) -> None:
    """Saves the last complete round, and reports it."""
    self._save_last_round()
    if self._saved > 0:
      self._progress.say(
        f'Stopped after round {self._saved} of {self._intervals.total_rounds}, '
        'which is saved; the same command resumes from there.'
      )
    else:
      self._progress.say('Stopped before the first round was completed.')

  def _end(self, status: str, error: Optional[BaseException] = None) -> None:
    """Notifies hooks of the end of the run, whether or not it succeeded."""
    event = hooks_lib.End(
      status=status,
      round_number=self._done,
      reason=self._early_stopping.reason
      if error is None
      else errors.reason(error),
    )
    if status == hooks_lib.FINISHED and self._over:
      self._progress.say(
        f'Ended after round {self._done} of {self._intervals.total_rounds}: '
        f'{self._early_stopping.reason}.'
      )
    for hook in (self._listeners, self._recorders):
      try:
        hook.end(event)
      except (errors.RunError, stopping.Stopped) as e:
        self._progress.say(
          f'A hook failed at the end of the run: {errors.reason(e)}.'
        )
