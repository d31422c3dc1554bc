"""The hook that writes rows of metrics.csv as TensorBoard scalars."""

import contextlib
import os
import pathlib
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import tensorflow as tf

from tff_adaptive import errors
from tff_adaptive.lab.recording import hooks


class TensorBoard(hooks.Tracker):
  """A hook that records a run for TensorBoard.

  TFF's `TensorBoardReleaseManager` only appends, so that rounds repeated after
  a resume would show twice. This hook rewrites events from the rows that are
  kept. It writes them as records: TensorFlow's summary operations take four
  times as long, and memory that TensorFlow does not free.
  """

  def __init__(self, folder: pathlib.Path):
    """Creates the hook; `folder` is emptied when the run starts."""
    self._folder = folder
    self._writer: Optional[tf.io.TFRecordWriter] = None

  def start(self, event: hooks.Start) -> None:
    """Writes the existing rows.

    Raises:
      RunError: If they cannot be written.
    """
    shutil.rmtree(self._folder, ignore_errors=True)
    with self._complaints():
      self._folder.mkdir(parents=True)
      name = f'events.out.tfevents.{int(time.time())}.{socket.gethostname()}'
      # As bytes, which need not be UTF-8.
      self._writer = tf.io.TFRecordWriter(os.fsencode(self._folder / name))
    self._write(file_version='brain.Event:2')
    self.log_rows(event.rows)

  def log(self, number: int, values: Mapping[str, float]) -> None:
    scalar = tf.compat.v1.Summary.Value
    tagged = [scalar(tag=n, simple_value=v) for n, v in values.items()]
    self._write(step=number, summary=tf.compat.v1.Summary(value=tagged))

  def end(self, event: hooks.End) -> None:
    if self._writer is not None:
      with self._complaints():
        self._writer.close()

  def _write(self, **fields: Any) -> None:
    assert self._writer is not None
    with self._complaints():
      event = tf.compat.v1.Event(wall_time=time.time(), **fields)
      self._writer.write(event.SerializeToString())
      self._writer.flush()

  @contextlib.contextmanager
  def _complaints(self) -> Iterator[None]:
    try:
      yield
    except (tf.errors.OpError, OSError) as e:
      raise errors.RunError(
        f'{self._folder} cannot be written: {errors.reason(e)}.'
      ) from e
