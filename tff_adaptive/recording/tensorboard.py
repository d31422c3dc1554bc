"""The rows of metrics.csv as TensorBoard scalars."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.recording import hooks


class TensorBoard(hooks.Hook):
  """A recorder for TensorBoard.

  TFF's `TensorBoardReleaseManager` only adds: after a resume the rounds that
  are run again would show twice. Here the events are written anew from the rows
  that are kept.
  """

  def __init__(self, folder: pathlib.Path):
    """Writes nothing yet; what is in `folder` goes when the run starts."""
    self._folder = folder
    self._writer: Any = None

  def start(self, event: hooks.Start) -> None:
    """Writes the rows that are there.

    Raises:
      RunError: If they cannot be written.
    """
    shutil.rmtree(self._folder, ignore_errors=True)
    with self._complaints():
      self._writer = tf.summary.create_file_writer(str(self._folder))
    for row in event.rows:
      values = {name: float(v) for name, v in row.items() if v}
      self._add(int(row['round']), values)

  def round(self, event: hooks.Round) -> None:
    self._add(event.number, event.row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    if event.final:  # Others are in the row of their round.
      self._add(event.round_number, event.values)

  def end(self, event: hooks.End) -> None:
    if self._writer is not None:
      with self._complaints():
        self._writer.close()

  def _add(self, number: int, values: Mapping[str, Any]) -> None:
    # One record a row: an operation for each value costs more, in time and in
    # memory that TensorFlow keeps.
    summary = tf.compat.v1.Summary(
      value=[
        tf.compat.v1.Summary.Value(tag=name, simple_value=float(value))
        for name, value in values.items()
        if name != 'round'
      ]
    )
    with self._complaints(), self._writer.as_default():
      tf.summary.experimental.write_raw_pb(
        summary.SerializeToString(), step=number
      )

  @contextlib.contextmanager
  def _complaints(self) -> Iterator[None]:
    try:
      yield
    except tf.errors.OpError as e:
      raise errors.RunError(
        f'{self._folder} cannot be written: {errors.reason(e)}.'
      ) from e
