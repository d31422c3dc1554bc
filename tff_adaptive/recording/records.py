"""What a run writes of its rounds: rows, clients' step sizes, TensorBoard."""

import contextlib
import shutil
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.recording import files
from tff_adaptive.recording import row_sums
from tff_adaptive.recording import step_records


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


class Records:
  """The records of a run, up to a round that it goes on from.

  Attributes:
    rows: Of metrics.csv.
    dropped: How many rows there were of later rounds; they are gone.
  """

  def __init__(
    self,
    folder: files.RunFolder,
    last_round: int,
    warn: Callable[[str], None] = print,
  ):
    """Reads what there is and drops what is of later rounds.

    Args:
      folder: The run's, entered by the caller.
      last_round: The round of the checkpoint that the run goes on from; -1 if
        it starts afresh.
      warn: Is told, in a sentence, if rows cannot be checked.

    Raises:
      RunError: If rows before that are missing or damaged, or files cannot be
        read or written.
    """
    self._metrics = files.RowFile(folder.metrics)
    self._step_sizes = step_records.StepFile(folder.step_sizes)
    self._sums = (
      row_sums.RowSums(folder.row_sums, self._metrics),
      row_sums.RowSums(folder.step_sums, self._step_sizes),
    )
    if last_round >= 0:
      for sums in self._sums:
        sums.check(last_round, warn)
    self.dropped = self._metrics.drop_after(last_round)
    self._step_sizes.drop_after(last_round)
    if last_round >= 0 and (
      not self.rows or int(self.rows[-1]['round']) != last_round
    ):
      raise errors.RunError(
        f'{folder.metrics} lacks rounds before the checkpoint of round '
        f'{last_round}; {files.ADVICE} to start afresh.'
      )
    self._board = _TensorBoard(folder.tensorboard, self.rows)

  @property
  def rows(self) -> list[dict[str, str]]:
    return self._metrics.rows

  def add(
    self,
    row: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]] = (),
  ) -> None:
    """Adds a round's row, and the step sizes of its clients."""
    for record in steps:
      self._step_sizes.append({'round': row['round'], **record})
    self._metrics.append(row)
    self._board.add(row)

  def extend_last(self, values: Mapping[str, Any]) -> None:
    """Adds values to the last round's row."""
    self._metrics.extend_last(values)
    self._board.add({'round': int(self.rows[-1]['round']), **values})

  def sync(self) -> None:
    """Makes the rows last, and keeps their check sums."""
    for sums in self._sums:
      sums.save()

  def close(self) -> None:
    self._board.close()
