"""The training loop: rounds, evaluation, records, checkpoints, resume."""

import collections
import contextlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.recording import best as best_lib
from tff_adaptive.recording import checkpoints as checkpoints_lib
from tff_adaptive.recording import curves as figures
from tff_adaptive.recording import files
from tff_adaptive.recording import hooks as hooks_lib
from tff_adaptive.recording import metric_names
from tff_adaptive.recording import progress as progress_lib
from tff_adaptive.recording import records as records_lib
from tff_adaptive.recording import tensorboard
from tff_adaptive.training import ahead
from tff_adaptive.training import availability
from tff_adaptive.training import averaging
from tff_adaptive.training import cadence as cadence_lib
from tff_adaptive.training import clock as clock_lib
from tff_adaptive.training import data as data_lib
from tff_adaptive.training import ending as ending_lib
from tff_adaptive.training import evaluation
from tff_adaptive.training import faults
from tff_adaptive.training import protocols
from tff_adaptive.training import result
from tff_adaptive.training import stopping

Row = Mapping[str, Any]
ClientTests = Callable[[Any], tuple[Row, list[Any]]]


def run(
  rounds: protocols.Rounds,
  *,
  clients: protocols.Clients,
  cohort_fn: Callable[[int], Sequence[str]],
  evaluator: evaluation.Evaluator,
  validation: Callable[[int], data_lib.Batches],
  test: Callable[[], data_lib.Batches],
  folder: files.RunFolder,
  cadence: cadence_lib.Cadence,
  title: str = '',
  progress: Optional[progress_lib.Progress] = None,
  signals: Optional[stopping.Signals] = None,
  ending: Optional[ending_lib.Ending] = None,
  best: Optional[best_lib.Best] = None,
  client_tests: Optional[ClientTests] = None,
  hooks: Sequence[Any] = (),
  columns: Optional[Callable[[int], Mapping[str, Any]]] = None,
  max_rejected_clients: Optional[int] = None,
) -> result.Result:
  """Trains, or goes on training from the last checkpoint.

  Every row of metrics.csv is written before the checkpoint of its round, and
  rows of rounds after the checkpoint that is resumed from are dropped: so the
  file and the state always tell the same story, whenever the run was killed.

  Args:
    rounds: The process with its initial state.
    clients: The training clients' batches.
    cohort_fn: From the number of a round (1, 2, ...) to its clients.
    evaluator: Evaluates the model.
    validation: From the number of a round to what the model is evaluated on
      after it; 0 for the untrained model.
    test: Makes the full test split, which is looked at once, at the end.
    folder: Where everything is written; entered by the caller.
    cadence: How many rounds, how often what.
    title: Over the curves.
    progress: Shows what is going on; standard output unless given.
    signals: Whoever handles SIGINT and SIGTERM; nobody unless given.
    ending: The rules that end the run before its last round; none unless given.
    best: Keeps the model of the best round; nobody unless given.
    client_tests: Tests the trained model on single clients, once, at the end;
      returns values by column, and a row a client.
    hooks: Listeners from outside, each a `recording.hooks.Hook` or an object
      with some of its methods.
    columns: From the number of a round to further columns of its row.
    max_rejected_clients: As `faults.Guard` takes `most`.

  Raises:
    RunError: If data cannot be read, results cannot be written, or too many
      clients of a round had to be left out; the last complete round is saved
      where that is possible.
    Stopped: If a signal asked to stop; the last complete round is saved.
  """
  progress = progress or progress_lib.Progress(cadence.total_rounds)
  training = _Training(
    rounds,
    clients=clients,
    cohort_fn=cohort_fn,
    evaluator=evaluator,
    validation=validation,
    folder=folder,
    cadence=cadence,
    progress=progress,
    signals=signals or stopping.Signals(),
    ending=ending or ending_lib.Ending(ending_lib.NO_GOAL),
    best=best,
    hooks=hooks,
    columns=columns,
    max_rejected_clients=max_rejected_clients,
  )
  try:
    training.start()
    if training.done < 0:
      training.look_at_untrained_model()
    while training.done < cadence.total_rounds and not training.over:
      training.run_round()
    training.save_last_round()
    training.test(test, client_tests)
    training.end(hooks_lib.FINISHED)
  except stopping.Stopped as e:
    training.save_stopped()
    training.end(hooks_lib.STOPPED, e)
    raise
  except BaseException as e:
    # A runtime that broke down, say. What was trained until then is kept, if
    # it is not writing that does not work.
    if isinstance(e, Exception):
      with contextlib.suppress(errors.RunError):
        training.save_last_round()
    training.end(hooks_lib.FAILED, e)
    raise
  training.guard.sum_up()
  rows = training.records.rows
  figures.draw_curves(rows, folder.curves, title)
  figures.draw_step_sizes(rows, folder.step_figure, title)
  return result.Result(rows, dict(training.spent), training.resumed_from)


class _Training:
  """A run under way.

  Attributes:
    done: The last complete round; -1 if not even the untrained model was
      evaluated.
    resumed_from: The round of the checkpoint it went on from, if any.
    records: What is written of the rounds.
    guard: Runs the rounds.
    spent: Seconds by what they were spent on.
  """

  def __init__(
    self,
    rounds: protocols.Rounds,
    *,
    clients: protocols.Clients,
    cohort_fn: Callable[[int], Sequence[str]],
    evaluator: evaluation.Evaluator,
    validation: Callable[[int], data_lib.Batches],
    folder: files.RunFolder,
    cadence: cadence_lib.Cadence,
    progress: progress_lib.Progress,
    signals: stopping.Signals,
    ending: ending_lib.Ending,
    best: Optional[best_lib.Best],
    hooks: Sequence[Any],
    columns: Optional[Callable[[int], Mapping[str, Any]]],
    max_rejected_clients: Optional[int],
  ):
    """Goes back to the last checkpoint; see `run`."""
    self._rounds = rounds
    self._cohort_fn = cohort_fn
    self._evaluator = evaluator
    self._validation = validation
    self._cadence = cadence
    self._signals = signals
    self._columns = columns or (lambda number: {})
    self._checkpoints = checkpoints_lib.Checkpoints(
      folder.checkpoints, run=folder.identity, warn=progress.say
    )
    checkpoint = self._checkpoints.load_latest(
      rounds.program_state, rounds.restore, records_lib.TABLES
    )
    self.resumed_from = None if checkpoint is None else checkpoint.round_number
    self.done = -1 if self.resumed_from is None else self.resumed_from
    self._saved = self.done
    self._folder = folder
    self._progress = progress
    self._ending = ending
    self._best = best
    self.records = records_lib.Records(folder, checkpoint)
    # A round is complete once these have it; then others are told.
    self._recorders = hooks_lib.Several(
      [self.records, tensorboard.TensorBoard(folder.tensorboard)]
    )
    self._listeners = hooks_lib.Several(
      [
        progress,
        ending,
        *([] if best is None else [best]),
        *(hooks_lib.Guarded(h, progress.say) for h in hooks),
      ]
    )
    self.guard = faults.Guard(
      rounds,
      ahead.Ahead(clients, cohort_fn, cadence.total_rounds),
      most=max_rejected_clients,
      say=progress.say,
    )
    self.spent: dict[str, float] = collections.defaultdict(float)

  def start(self) -> None:
    """Tells of the start."""
    self._ending.look_back(self.records.rows)
    if self.done < self._cadence.total_rounds and not self.over:
      self.records.forget_final()
    hparams = self._folder.read_hparams() or {}
    event = hooks_lib.Start(
      folder=self._folder.path,
      identity=self._folder.identity,
      settings=hparams.get('settings', {}),
      total_rounds=self._cadence.total_rounds,
      resumed_from=self.resumed_from,
      rows=self.records.rows,
      dropped=self.records.dropped,
    )
    self._recorders.start(event)
    self._listeners.start(event)

  @property
  def over(self) -> bool:
    """Whether the run ends before its last round."""
    return self._ending.reason is not None

  def look_at_untrained_model(self) -> None:
    """Evaluates the model before the first round, as round 0."""
    with self._signals.interruptible():
      values = self._evaluate(self._validation(0))
    event = hooks_lib.Round(row={'round': 0, **values})
    self._recorders.round(event)
    self.done = 0
    self._tell(event, values)

  def run_round(self) -> None:
    """Runs the next round, evaluates, records and saves as the cadence says."""
    clock = clock_lib.Clock()
    number = self.done + 1
    before = self._rounds.snapshot()
    try:
      reported, values = self._train(number, clock)
      event = hooks_lib.Round(
        row=self._row(number, reported, values, clock),
        steps=self._rounds.step_records,
      )
      self._recorders.round(event)
    except BaseException:
      # What is saved on the way out must be a round that has its row.
      self._rounds.roll_back(before)
      raise
    self.done = number
    clock.lap('rest')
    if self._cadence.checkpoints(number):
      self._save()
      clock.lap('checkpoint')
    clock.add_to(self.spent)
    self._tell(event, values)
    self._signals.check()

  def _tell(self, event: hooks_lib.Round, values: Mapping[str, Any]) -> None:
    """Tells listeners of a round, and of the evaluation after it."""
    if values:
      self._listeners.evaluation(
        hooks_lib.Evaluation(round_number=event.number, values=values)
      )
    self._listeners.round(event)

  def _train(
    self, number: int, clock: clock_lib.Clock
  ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Trains a round; returns its report, and the evaluation if one is due."""
    values: Mapping[str, Any] = {}
    with self._signals.interruptible():
      cohort = self._cohort_fn(number)
      datasets = self.guard.read(number, cohort)
      clock.lap('data')
      aggregated = runtime.aggregation_seconds()
      reported = self.guard.run(number, cohort, datasets)
      clock.train_lap(aggregated)
      if self._cadence.evaluates(number):
        values = self._evaluate(self._validation(number))
        clock.lap('evaluate')
    return reported, values

  def _row(
    self,
    number: int,
    reported: Mapping[str, Any],
    values: Mapping[str, Any],
    clock: clock_lib.Clock,
  ) -> dict[str, Any]:
    row = {
      'round': number,
      **reported,
      **values,
      **clock.columns,
    }
    if self._rounds.traffic is not None:
      row['bytes_down'] = self._rounds.traffic.down
      row['bytes_up'] = self._rounds.traffic.up
    row.update(self._columns(number))
    if (
      availability.ROUND_SECONDS in row
      and metric_names.VIRTUAL_SECONDS not in row
    ):
      before = float(
        self.records.rows[-1].get(metric_names.VIRTUAL_SECONDS) or 0
      )
      total = before + row[availability.ROUND_SECONDS]
      row[metric_names.VIRTUAL_SECONDS] = round(total, 6)
    return row

  def _evaluate(
    self, batches: data_lib.Batches, split: str = 'validation'
  ) -> Row:
    """Evaluates the model, and its average; returns values by column."""
    return {
      f'{group}/{name}': value
      for group, weights in averaging.models_of(self._rounds, split).items()
      for name, value in self._evaluator.evaluate(weights, batches).items()
    }

  def test(
    self,
    make_split: Callable[[], data_lib.Batches],
    client_tests: Optional[ClientTests],
  ) -> None:
    """Evaluates the trained model on test data, unless that was done."""
    if hooks_lib.group(self.records.rows[-1], 'test'):
      return
    clock = clock_lib.Clock()
    with self._signals.interruptible():
      values = self._evaluate(make_split(), 'test')
      clients: list[Any] = []
      if client_tests is not None:
        more, clients = client_tests(self._rounds.model_weights())
        values = {**values, **more}
    event = hooks_lib.Evaluation(
      round_number=self.done, values=values, final=True, clients=clients
    )
    self._recorders.evaluation(event)
    self._listeners.evaluation(event)
    clock.lap('test')
    clock.add_to(self.spent)

  def _save(self) -> None:
    # The rows first: a checkpoint needs those up to its round.
    sums = self.records.sync(self.done)
    self._checkpoints.save(self._rounds.program_state, self.done, sums)
    self._saved = self.done
    if self._best is not None:
      self._best.prune(self.done)

  def save_last_round(self) -> None:
    """Saves the last complete round, unless it is saved."""
    if self.done > max(self._saved, 0):
      self._save()

  def save_stopped(self) -> None:
    """Saves the last complete round and says so."""
    self.save_last_round()
    if self._saved > 0:
      self._progress.say(
        f'Stopped after round {self._saved} of {self._cadence.total_rounds}, '
        'which is saved; the same command goes on from there.'
      )
    else:
      self._progress.say('Stopped before the first round was complete.')

  def end(self, status: str, error: Optional[BaseException] = None) -> None:
    """Tells of the end, however it came."""
    event = hooks_lib.End(
      status=status,
      round_number=self.done,
      reason=self._ending.reason if error is None else errors.reason(error),
    )
    if status == hooks_lib.FINISHED and self.over:
      self._progress.say(
        f'Ended after round {self.done} of {self._cadence.total_rounds}: '
        f'{self._ending.reason}.'
      )
    for hook in (self._listeners, self._recorders):
      with contextlib.suppress(errors.RunError):
        hook.end(event)
