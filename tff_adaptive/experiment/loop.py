"""The training loop: rounds, evaluation, records, checkpoints, resume."""

import collections
import contextlib
import dataclasses
import shutil
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Union

import tensorflow as tf

from tff_adaptive import runtime
from tff_adaptive.experiment import checkpoints as checkpoints_lib
from tff_adaptive.experiment import data as data_lib
from tff_adaptive.experiment import errors
from tff_adaptive.experiment import evaluation
from tff_adaptive.experiment import faults
from tff_adaptive.experiment import figures
from tff_adaptive.experiment import files
from tff_adaptive.experiment import progress as progress_lib
from tff_adaptive.experiment import rounds as rounds_lib
from tff_adaptive.experiment import step_records
from tff_adaptive.experiment import stopping

Batches = Union[tf.data.Dataset, Sequence[Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cadence:
  """How long a run goes on and how often it looks up.

  Attributes:
    total_rounds: Rounds are numbered 1 to this.
    rounds_per_eval: The model is evaluated before the first round, after every
      so many rounds, and after the last.
    rounds_per_checkpoint: A checkpoint is written after every so many rounds
      and after the last.
  """

  total_rounds: int
  rounds_per_eval: int
  rounds_per_checkpoint: int

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


def _prefixed(prefix: str, metrics: Mapping[str, Any]) -> dict[str, Any]:
  return {f'{prefix}/{name}': value for name, value in metrics.items()}


def _group(row: Mapping[str, Any], prefix: str) -> dict[str, Any]:
  return {
    name[len(prefix) + 1 :]: value
    for name, value in row.items()
    if name.startswith(prefix + '/')
  }


class _Clock:
  """Seconds by what they were spent on."""

  def __init__(self) -> None:
    self.spent: dict[str, float] = collections.defaultdict(float)
    self._start = self._last = time.perf_counter()

  def lap(self, what: str) -> None:
    now = time.perf_counter()
    self.spent[what] += now - self._last
    self._last = now

  def train_lap(self, aggregated_before: Optional[float]) -> None:
    """A lap of training, with what aggregation took of it told apart.

    Args:
      aggregated_before: What `runtime.aggregation_seconds` said before.
    """
    self.lap('train')
    aggregated = runtime.aggregation_seconds()
    if aggregated_before is not None and aggregated is not None:
      seconds = aggregated - aggregated_before
      self.spent['train'] -= seconds
      self.spent['aggregate'] += seconds

  @property
  def columns(self) -> dict[str, float]:
    """A round's seconds: in all, and by what they were spent on."""
    parts = ['data', 'train', 'aggregate', 'evaluate']
    if 'aggregate' not in self.spent:  # Then it is in `train`.
      parts.remove('aggregate')
    return {
      'seconds': round(self.total, 6),
      **{f'seconds/{what}': round(self.spent[what], 6) for what in parts},
    }

  def add_to(self, totals: dict[str, float]) -> None:
    for what, seconds in self.spent.items():
      totals[what] += seconds

  @property
  def total(self) -> float:
    return time.perf_counter() - self._start


class _TensorBoard:
  """The rows of metrics.csv as TensorBoard scalars.

  TFF's `TensorBoardReleaseManager` only adds: after a resume the rounds that
  are run again would show twice. Here the events are written anew from the rows
  that are kept.
  """

  def __init__(self, folder: Any, rows: Sequence[Mapping[str, Any]]):
    self._folder = folder
    shutil.rmtree(folder, ignore_errors=True)
    with self._complaints():
      self._writer = tf.summary.create_file_writer(str(folder))
    for row in rows:
      self.add({name: float(v) for name, v in row.items() if v})

  def add(self, row: Mapping[str, Any]) -> None:
    # One record a row: an operation for each value costs more, in time and in
    # memory that TensorFlow keeps.
    summary = tf.compat.v1.Summary(
      value=[
        tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))
        for name, value in row.items()
        if name != 'round'
      ]
    )
    with self._complaints(), self._writer.as_default():
      tf.summary.experimental.write_raw_pb(
        summary.SerializeToString(), step=int(row['round'])
      )

  def close(self) -> None:
    with self._complaints():
      self._writer.close()

  @contextlib.contextmanager
  def _complaints(self) -> Iterator[None]:
    try:
      yield
    except tf.errors.OpError as e:
      raise errors.RunError(
        f'{self._folder} cannot be written: {errors.reason(e)}.'
      ) from e


@dataclasses.dataclass(frozen=True)
class Result:
  """What a run came to.

  Attributes:
    rows: Of metrics.csv.
    seconds: By what they were spent on, in this process.
    resumed_from: The round of the checkpoint it went on from, if any.
  """

  rows: Sequence[Mapping[str, str]]
  seconds: Mapping[str, float]
  resumed_from: Optional[int]


def run(
  rounds: rounds_lib.LearningRounds,
  *,
  clients: data_lib.ClientDatasets,
  cohort_fn: Callable[[int], Sequence[str]],
  evaluator: evaluation.Evaluator,
  validation: Batches,
  test: Callable[[], Batches],
  folder: files.RunFolder,
  cadence: Cadence,
  title: str = '',
  progress: Optional[progress_lib.Progress] = None,
  signals: Optional[stopping.Signals] = None,
  on_row: Optional[Callable[[Mapping[str, Any]], None]] = None,
  columns: Optional[Callable[[int], Mapping[str, Any]]] = None,
  max_rejected_clients: Optional[int] = None,
) -> Result:
  """Trains, or goes on training from the last checkpoint.

  Every row of metrics.csv is written before the checkpoint of its round, and
  rows of rounds after the checkpoint that is resumed from are dropped: so the
  file and the state always tell the same story, whenever the run was killed.

  Args:
    rounds: The process with its initial state.
    clients: The training clients' batches.
    cohort_fn: From the number of a round (1, 2, ...) to its clients.
    evaluator: Evaluates the model.
    validation: What the model is evaluated on during training.
    test: Makes the full test split, which is looked at once, at the end.
    folder: Where everything is written; entered by the caller.
    cadence: How many rounds, how often what.
    title: Over the curves.
    progress: Shows what is going on; standard output unless given.
    signals: Whoever handles SIGINT and SIGTERM; nobody unless given.
    on_row: Is shown every row of metrics.csv once it is written, the first
      one included. It may raise `RunError` to give the run up, or `Stopped` to
      save it and leave.
    columns: From the number of a round to further columns of its row.
    max_rejected_clients: As `faults.Guard` takes `most`.

  Raises:
    RunError: If data cannot be read, results cannot be written, or too many
      clients of a round had to be left out; the last complete round is saved
      where that is possible.
    Stopped: If a signal asked to stop; the last complete round is saved.
  """
  signals = signals or stopping.Signals()
  progress = progress or progress_lib.Progress(cadence.total_rounds)
  checkpoints = checkpoints_lib.Checkpoints(
    folder.checkpoints, warn=progress.say
  )
  loaded = checkpoints.load_latest(rounds.program_state)
  done = -1
  resumed_from = None
  if loaded is not None:
    done, state = loaded
    rounds.restore(state)
    resumed_from = done
  metrics = files.RowFile(folder.metrics)
  dropped = metrics.drop_after(done)
  step_sizes = step_records.StepFile(folder.step_sizes)
  step_sizes.drop_after(done)
  if loaded is not None:
    if not metrics.rows or int(metrics.rows[-1]['round']) != done:
      raise errors.RunError(
        f'{folder.metrics} lacks rounds before the checkpoint of round '
        f"{done}; restore it or delete the run's folder to start afresh."
      )
    progress.say(f'Resuming after round {done}.')
    progress = progress.from_round(done + 1)
  if dropped and done >= 0:
    progress.say(
      f'{dropped} rounds after that checkpoint were not saved; they are run '
      'again.'
    )
  board = _TensorBoard(folder.tensorboard, metrics.rows)
  guard = faults.Guard(
    rounds, clients, most=max_rejected_clients, say=progress.say
  )
  spent: dict[str, float] = collections.defaultdict(float)
  saved = done
  try:
    if done < 0:
      with signals.interruptible():
        values = evaluator.evaluate(rounds.model_weights(), validation)
      row = {'round': 0, **_prefixed('validation', values)}
      metrics.append(row)
      board.add(row)
      progress.round_done(0, {}, values)
      done = 0
      if on_row is not None:
        on_row(row)
    while done < cadence.total_rounds:
      clock = _Clock()
      number = done + 1
      values = collections.OrderedDict()
      before = rounds.snapshot()
      try:
        with signals.interruptible():
          cohort = cohort_fn(number)
          datasets = guard.read(number, cohort)
          clock.lap('data')
          aggregated = runtime.aggregation_seconds()
          reported = guard.run(number, cohort, datasets)
          clock.train_lap(aggregated)
          if cadence.evaluates(number):
            values = evaluator.evaluate(rounds.model_weights(), validation)
            clock.lap('evaluate')
        row = {
          'round': number,
          **reported,
          **_prefixed('validation', values),
          **clock.columns,
        }
        if rounds.traffic is not None:
          row['bytes_down'] = rounds.traffic.down
          row['bytes_up'] = rounds.traffic.up
        if columns is not None:
          row.update(columns(number))
        for record in rounds.step_records:
          step_sizes.append({'round': number, **record})
        metrics.append(row)
        board.add(row)
      except BaseException:
        # What is saved on the way out must be a round that has its row.
        rounds.roll_back(before)
        raise
      done = number
      clock.lap('rest')
      if cadence.checkpoints(number):
        metrics.sync()
        checkpoints.save(rounds.program_state, number)
        saved = number
        clock.lap('checkpoint')
      clock.add_to(spent)
      progress.round_done(number, _group(row, 'train'), values)
      if on_row is not None:
        on_row(row)
      signals.check()
    if not _group(metrics.rows[-1], 'test'):
      clock = _Clock()
      with signals.interruptible():
        values = evaluator.evaluate(rounds.model_weights(), test())
      metrics.extend_last(_prefixed('test', values))
      board.add({'round': done, **_prefixed('test', values)})
      clock.lap('test')
      clock.add_to(spent)
  except stopping.Stopped:
    if done > max(saved, 0):
      checkpoints.save(rounds.program_state, done)
      saved = done
    if saved > 0:
      progress.say(
        f'Stopped after round {saved} of {cadence.total_rounds}, which is '
        'saved; the same command goes on from there.'
      )
    else:
      progress.say('Stopped before the first round was complete.')
    raise
  except Exception:
    # A runtime that broke down, say. What was trained until then is kept, if
    # it is not writing that does not work.
    if done > max(saved, 0):
      with contextlib.suppress(errors.RunError):
        checkpoints.save(rounds.program_state, done)
    raise
  finally:
    progress.end_line()
    with contextlib.suppress(errors.RunError):
      board.close()
  guard.sum_up()
  figures.draw_curves(metrics.rows, folder.curves, title)
  figures.draw_step_sizes(metrics.rows, folder.step_figure, title)
  return Result(metrics.rows, dict(spent), resumed_from)
