"""Runs loaded from their folders, without TensorFlow."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import health
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lazy import pandas as pd

# Settings over which results are averaged.
SEEDS = ('seed', 'client_datasets_random_seed')
_EVERY_RUN_HAS = {
  'task': str,
  'algorithm': str,
  'total_rounds': int,
  'clients_per_round': int,
}


@dataclasses.dataclass(frozen=True)
class Run:
  """One run, loaded from its folder.

  Attributes:
    path: The folder.
    settings: The settings in hparams.json, by flag.
    rows: Rows of metrics.csv, as numbers by column, without empty cells.
    clients: The numbers of clients.csv, one row per client on which the trained
      model was tested; empty if it was not.
    sweep: The sweep that the run belongs to, if any.
    directions: Whether higher is better, by metric, as far as the run or the
      caller says so.
    lost: Whether its sweep counts it as diverged, failed or pruned, even if
      that was in its last round.
  """

  path: pathlib.Path
  settings: Mapping[str, Any]
  rows: Sequence[Mapping[str, float]]
  clients: pd.DataFrame = dataclasses.field(
    default_factory=lambda: pd.DataFrame()
  )
  sweep: Optional[sweeps.SweepRecord] = None
  directions: Mapping[str, bool] = dataclasses.field(default_factory=dict)
  lost: bool = False

  @property
  def chose(self) -> bool:
    """Whether the run was used to select configurations, not for results."""
    tuned_on = self.sweep and self.sweep.tuned_on
    return tuned_on is not None and tuned_on == self.settings.get('seed')

  @property
  def seeds(self) -> tuple[Any, ...]:
    """The values of `SEEDS`."""
    return tuple(self.settings.get(name) for name in SEEDS)

  @property
  def name(self) -> str:
    return self.path.name

  @property
  def rounds(self) -> int:
    """The last round that has a row."""
    return int(self.rows[-1]['round']) if self.rows else 0

  @property
  def finished(self) -> bool:
    """Whether the run has ended, possibly before its last round."""
    return (
      not self.lost
      and (
        self.rounds == self.settings['total_rounds']
        # Only the final model is evaluated on the test split.
        or any(c.startswith('test/') for row in self.rows[-1:] for c in row)
      )
    )

  @functools.cached_property
  def concerns(self) -> tuple[str, ...]:
    """Sentences about problems of the model at the last evaluation."""
    return tuple(health.concerns(self.rows).values())

  @functools.cached_property
  def metric(self) -> Optional[str]:
    """The task's first metric besides the loss, if it has one."""
    for split in ('validation', 'train'):
      found = [c for c in self.columns if c.startswith(f'{split}/')]
      if found:
        names = [column.partition('/')[2] for column in found]
        return metric_names.main_metric(dict.fromkeys(names))
    return None

  @property
  def rises(self) -> Optional[bool]:
    """Whether a higher metric is better; `None` if it is not known."""
    return metric_names.higher_is_better(self.metric, self.directions)

  @functools.cached_property
  def columns(self) -> list[str]:
    return list(dict.fromkeys(c for row in self.rows for c in row))

  @functools.cached_property
  def table(self) -> pd.DataFrame:
    """The rows as a table, NaN in empty cells."""
    return pd.DataFrame(list(self.rows), columns=self.columns, dtype=float)

  @property
  def seconds(self) -> pd.Series:
    """Seconds by row; 0 in the first round, most of which is tracing."""
    table = self.table.reindex(columns=['round', 'seconds'])
    return table['seconds'].where(table['round'] > 1, 0.0)

  @property
  def quality_column(self) -> str:
    """The column of the model's quality: validation metric or loss."""
    return f'validation/{self.metric or "loss"}'

  def until(self, level: float, column: str) -> Optional[float]:
    """Returns what a run took until its first evaluation at a level.

    Args:
      level: The level of `quality_column`.
      column: 'round', 'virtual/seconds', or 'seconds', which are added up
        after the first round.

    Returns:
      The round or the seconds; `None` if the level was not reached.
    """
    table = self.table
    if self.quality_column not in table or column not in table:
      return None
    better = metric_names.require_direction(self.metric, self.directions)
    found = table[self.quality_column]
    reached = table[found.ge(level) if better else found.le(level)]
    if column == metric_names.VIRTUAL_SECONDS:
      reached = reached[reached[column].notna()]
    if reached.empty:
      return None
    if column == 'seconds':
      return float(self.seconds.loc[: reached.index[0]].sum())
    return float(reached[column].iloc[0])

  @property
  def method(self) -> str:
    """The method: the algorithm, with optimizers that are not its own."""
    return method_of(self.settings)

  @property
  def configuration(self) -> tuple[tuple[str, str], ...]:
    """All settings but the seeds, as text; runs that share it are averaged."""
    settings = sorted(self.settings.items())
    return tuple((k, repr(v)) for k, v in settings if k not in SEEDS)

  def measures(self) -> dict[str, float]:
    """Returns summary figures of the run; see `scores.measures`."""
    return dict(self._measures)

  @functools.cached_property
  def _measures(self) -> dict[str, float]:
    clients = self.settings['clients_per_round']
    return scores.measures(self.rows, self.metric, clients, self.rises)


def common_level(runs: Sequence[Run]) -> Optional[float]:
  """Computes the best level that all runs reach.

  Returns:
    The level; `None` if a run was never evaluated, or the runs have different
    metrics.
  """
  if len({run.metric for run in runs}) != 1:
    return None
  virtual = any(metric_names.VIRTUAL_SECONDS in run.columns for run in runs)
  needed = metric_names.VIRTUAL_SECONDS if virtual else 'round'
  better = runs[0].rises
  best = []
  for run in runs:
    there = run.table.reindex(columns=[needed, run.quality_column])
    values = there[np.isfinite(there).all(axis=1)][run.quality_column]
    if better is None or values.empty:
      return None
    best.append(float(values.max() if better else values.min()))
  return (min if better else max)(best)


def rule_of(
  runs: Sequence[Run], select: Optional[str] = None
) -> scores.SelectionRule:
  """Returns the rule that selects configurations.

  Args:
    runs: The runs.
    select: The rule's name. Unless given, that of the runs' sweep, or the
      default for runs without a sweep or with sweeps of different rules.

  Raises:
    SettingsError: If a sweep names an unknown rule.
  """
  if select is None:
    names = {None if run.sweep is None else run.sweep.select for run in runs}
    select = names.pop() if len(names) == 1 else None
  select = select or scores.default_rule(run.settings for run in runs)
  if select not in scores.RULES:
    raise errors.SettingsError(
      f'The sweep of these runs names the rule {select!r:.40}, which there is '
      'not; give one with --select.'
    )
  return scores.RULES[select]


def method_of(settings: Mapping[str, Any]) -> str:
  """Returns a method's name in tables and figures, from a run's settings."""
  algorithm = str(settings.get('algorithm'))
  name = algorithm
  client = settings.get('client_optimizer')
  method = methods.table().get(algorithm)
  if method is not None:
    if client not in (None, method.client):
      name += f' + {client}'
    server = settings.get('server_optimizer')
    if server not in (None, method.server):
      name += f' / {server}'
  return name


def load(
  path: pathlib.Path, directions: Optional[Mapping[str, bool]] = None
) -> Run:
  """Loads a run's folder.

  Args:
    path: The folder.
    directions: Whether higher is better, by metric; takes precedence over what
      the run says.

  Raises:
    SettingsError: If it is not a run's folder, or its files are damaged.
  """
  folder = files.RunFolder(path)
  if not os.path.isdir(path):
    raise errors.SettingsError(f'{path} is no folder.')
  hparams = folder.read_hparams()
  if hparams is None:
    raise errors.SettingsError(
      f"{path} is no run's folder: it has no {folder.hparams.name}."
    )
  settings = hparams['settings']
  for flag, kind in _EVERY_RUN_HAS.items():
    if not isinstance(settings.get(flag), kind):
      raise errors.SettingsError(
        f"{folder.hparams} does not hold a run's settings: --{flag} is "
        f'{repr(settings[flag])[:40] if flag in settings else "missing"}; '
        f'{tables.ADVICE}.'
      )
  try:
    rows = tables.RowFile(folder.metrics).numbers
  except errors.RunError as e:
    raise errors.SettingsError(str(e)) from e
  return Run(
    path,
    settings,
    rows,
    _read_clients(path / 'clients.csv'),
    # A sweep's runs are in a folder of its own.
    sweeps.read(path.resolve().parent.parent),
    metric_names.merge_directions(hparams.get('metric_directions'), directions),
  )


def _read_clients(path: pathlib.Path) -> pd.DataFrame:
  """Reads a table of single clients, without their names.

  Raises:
    SettingsError: If the table is damaged.
  """
  with files.reading(path, 'a table of clients', tables.ADVICE):
    if (content := files.read_if_there(path)) is None:
      return pd.DataFrame()
    table = tables.parse(content.decode('utf-8')).drop(
      columns='client', errors='ignore'
    )
    return table.replace('', 'nan').astype(float)


def find(
  folder: pathlib.Path, directions: Optional[Mapping[str, bool]] = None
) -> tuple[list[Run], list[str]]:
  """Loads every run in and below a folder.

  Args:
    folder: The folder.
    directions: As for `load`.

  Returns:
    The runs, sorted by path, and a sentence for each folder that could not be
    read.

  Raises:
    SettingsError: If the folder does not exist.
  """
  if not os.path.isdir(folder):
    raise errors.SettingsError(f'{folder} is no folder.')
  found, complaints = [], []
  for path in sorted(folder.rglob('hparams.json')):
    try:
      found.append(load(path.parent, directions))
    except errors.SettingsError as e:
      complaints.append(str(e))
  lost: set[pathlib.Path] = set()
  for place in {run.path.resolve().parent for run in found if run.sweep}:
    try:
      rows = sweeps.read_rows(place.parent)
      lost |= {
        place / name for name, status, _ in rows if status in sweeps.LOST
      }
      finished = [name for name, status, _ in rows if status == sweeps.FINISHED]
      here = [
        run.name
        for run in found
        if run.finished and run.path.resolve().parent == place
      ]
      away = sweeps.describe_away(place.parent, finished, here)
      # Where the whole sweep was looked at.
      if away and folder.resolve() in (place, *place.parents):
        complaints.append(away)
    except errors.SettingsError as e:
      complaints.append(str(e))
  return [
    dataclasses.replace(run, lost=run.path.resolve() in lost) for run in found
  ], complaints
