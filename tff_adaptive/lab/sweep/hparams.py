"""Entries of a sweep's runs in TensorBoard's HParams view.

Written as records, without TensorFlow, whose import takes longer than all else
that a sweep does at its end.
"""

import pathlib
import socket
import time
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any
from typing import Union

from tff_adaptive.lab.recording import files
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes

_SUFFIX = '.hparams'


def write_values(point: grids.Point) -> None:
  """Writes a run's hyperparameters and results for TensorBoard's HParams view.

  Called after a run has ended, because the loop rewrites its events on every
  start.
  """
  from tensorboard.plugins.hparams import summary_v2  # pylint: disable=g-import-not-at-top
  from tensorboard.plugins.scalar import summary_v2 as scalars  # pylint: disable=g-import-not-at-top

  measures = outcomes.measures_of(
    runs.load(point.folder), point.settings.target_metric
  )
  folder = files.RunFolder(point.folder).tensorboard
  if not folder.is_dir() or list(folder.glob(f'*{_SUFFIX}')):
    return  # Written when the run finished in an earlier process.
  values = {
    k: _value(v)
    for k, v in (point.flags or {'task': point.identity['task']}).items()
  }
  results = (
    scalars.scalar_pb(f'result/{name}', value)
    for name, value in measures.items()
  )
  _write(folder, [summary_v2.hparams_pb(values, point.name), *results])


def write_axes(
  folder: pathlib.Path,
  points: Sequence[grids.Point],
  measures: Sequence[str],
) -> None:
  """Writes the columns of TensorBoard's HParams view.

  Args:
    folder: The folder to write to.
    points: The points of the sweep.
    measures: Names of results.
  """
  from tensorboard.plugins.hparams import summary_v2  # pylint: disable=g-import-not-at-top

  files.make_folder(folder)
  for old in folder.glob(f'*{_SUFFIX}'):
    old.unlink()
  flags = list(dict.fromkeys(f for p in points for f in p.flags))
  hparams = []
  for flag in flags:
    values = [
      _value(v)
      for v in dict.fromkeys(p.flags[flag] for p in points if flag in p.flags)
    ]
    if len({type(v) for v in values}) == 1:
      hparams.append(summary_v2.HParam(flag, summary_v2.Discrete(values)))
    else:
      hparams.append(summary_v2.HParam(flag))
  metrics = [summary_v2.Metric(f'result/{m}') for m in measures]
  _write(folder, [summary_v2.hparams_config_pb(hparams, metrics)])


def _write(folder: pathlib.Path, summaries: Iterable[Any]) -> None:
  """Writes a file of events with summaries of step 0."""
  from tensorboard.compat.proto import event_pb2  # pylint: disable=g-import-not-at-top
  from tensorboard.summary.writer import record_writer  # pylint: disable=g-import-not-at-top

  now = time.time()
  name = f'events.out.tfevents.{int(now)}.{socket.gethostname()}{_SUFFIX}'
  with open(folder / name, 'wb') as file:
    writer = record_writer.RecordWriter(file)
    for event in (
      event_pb2.Event(file_version='brain.Event:2'),
      *(event_pb2.Event(summary=summary) for summary in summaries),
    ):
      event.wall_time = now
      writer.write(event.SerializeToString())


def _value(text: str) -> Union[float, str]:
  number = grids.number(text)
  return text if number is None else number
