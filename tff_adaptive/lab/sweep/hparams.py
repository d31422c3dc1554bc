"""Entries of a sweep's runs in TensorBoard's HParams view."""

import pathlib
from collections.abc import Sequence
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
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tensorboard.plugins.hparams import api  # pylint: disable=g-import-not-at-top

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
  writer = tf.summary.create_file_writer(str(folder), filename_suffix=_SUFFIX)
  with writer.as_default(step=0):
    api.hparams(values, trial_id=point.name)
    for name, value in measures.items():
      tf.summary.scalar(f'result/{name}', value)
  writer.close()


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
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  from tensorboard.plugins.hparams import api  # pylint: disable=g-import-not-at-top

  if folder.is_dir():
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
      hparams.append(api.HParam(flag, api.Discrete(values)))
    else:
      hparams.append(api.HParam(flag))
  writer = tf.summary.create_file_writer(str(folder), filename_suffix=_SUFFIX)
  with writer.as_default(step=0):
    api.hparams_config(
      hparams=hparams,
      metrics=[api.Metric(f'result/{m}') for m in measures],
    )
  writer.close()


def _value(text: str) -> Union[float, str]:
  number = grids.number(text)
  return text if number is None else number
