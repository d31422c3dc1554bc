"""`main.py train`, or `main.py` alone: one run.

Importing this module imports no TensorFlow.
"""

import os
from collections.abc import Sequence
from typing import Any, Optional

import tasks
from tff_adaptive.lab import training
from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import cohorts
from tff_adaptive.lazy import pandas as pd


def main(arguments: Sequence[str]) -> int:
  """Runs or resumes an experiment; returns the exit code."""
  parsed = parsing.Flags().parse(arguments)
  if parsed.dry_run:
    print(describe(parsed.settings, parsed.preset))
    return 0
  result = training.run(parsed.settings)
  folder = files.RunFolder(parsed.settings.folder)
  print(summary(result.rows, folder, result.seconds))
  return 0


def describe(
  settings: settings_lib.Settings, preset: Optional[presets.Preset] = None
) -> str:
  """Describes the resolved experiment as text; trains and writes nothing.

  Args:
    settings: The experiment's settings.
    preset: The published settings that they are based on, if any.

  Raises:
    SettingsError: If the experiment could not run.
  """
  experiment.build_trackers(settings)
  experiment.prepare(settings)
  experiment.check_data(settings)
  experiment.announce()
  experiment.set_runtime(settings)
  # TensorFlow is imported when it is needed, and TFF after its runtime is set.
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.algorithms import description
  from tff_adaptive.lab.training import traffic as communication

  task = experiment.create_task(settings)
  cohorts.cohorts_of(settings, task.datasets.train_data.client_ids)
  built = experiment.build(settings, task)
  lines = [] if preset is None else [preset.describe()]
  lines += [*_heading(settings, task), '']
  lines += [description.describe(built.components), '']
  if built.ledger is not None:
    lines += [built.ledger.describe(), '']
  lines.append('settings')
  for name, value in settings.identity.items():
    if value is not None:
      lines.append(f'  --{name}={value}')
  lines.append('')
  if built.process is None:
    lines.append('bytes per round: none (nothing is sent)')
    return '\n'.join(lines)
  try:
    traffic = communication.of_process(built.process)
    cohort = settings.clients_per_round
    lines.append(
      f'bytes per round: each client receives {traffic.down:,} and sends '
      f'{traffic.up:,}; cohort total {traffic.down * cohort:,} and '
      f'{traffic.up * cohort:,}'
    )
  except ValueError as e:
    lines.append(f'bytes per round: unknown, because {e}')
    return '\n'.join(lines)
  if settings.runtime != 'native':
    lines.append(_describe_lockstep(settings, traffic.down))
  return '\n'.join(lines)


def _describe_lockstep(settings: settings_lib.Settings, received: int) -> str:
  """Says whether clients train together, and why."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  from tff_adaptive.runtime import sharing  # pylint: disable=g-import-not-at-top

  choice = settings.vectorize_clients or 'auto'
  devices = settings.runtime_options.get('devices', ['GPU'])
  on_gpu = any('GPU' in device.upper() for device in devices) and bool(
    tf.config.list_logical_devices('GPU')
  )
  how = 'one at a time'
  if sharing.train_together(choice, received, on_gpu):
    how = 'together, if the model allows it'
  why = 'by --vectorize_clients'
  if choice == 'auto':
    why = f'a client receives {received / 2**20:.2f} MiB'
  return f'clients train {how} ({why})'


def _heading(settings: settings_lib.Settings, task: Any) -> list[str]:
  """Describes the run, its clients and its task's published settings."""
  info = tasks.info(settings.task)
  whose = settings.configuration.method.whose_data(
    settings.clients_per_round, len(task.datasets.train_data.client_ids)
  )
  lines = [
    f'experiment   {settings.name}',
    f'results      {settings.folder}',
    f'task         {info.name}: {tasks.summary(info.name)}',
    f'model        {info.model or _size_of_model(task)}',
    f'clients      {whose}, {settings.total_rounds:,} rounds',
    f'runtime      {settings.runtime}',
  ]
  if words := availability.describe(settings):
    lines.append(f'time         {words}')
  if info.published:
    lines.append(
      f'published    {info.published.rounds:,} rounds of '
      f'{info.published.clients_per_round} clients, batches of '
      f'{info.published.batch_size}, epochs {info.published.epochs} '
      f'({info.published.source})'
    )
  return lines


def _size_of_model(task: Any) -> str:
  """Describes a model by its number of trainable weights."""
  import numpy as np  # pylint: disable=g-import-not-at-top

  variables = task.model_fn().trainable_variables
  count = sum(int(np.prod(v.shape)) for v in variables)
  return f'{count:,} weights'


# Groups of per-client tests, and what is said after them.
_CLIENT_TESTS = {'per_client': '', 'per_client_tuned': ', fine-tuned'}


def summary(rows: Any, folder: files.RunFolder, seconds: Any = None) -> str:
  """Renders the summary of a run as text.

  Args:
    rows: Rows of metrics.csv, as text by column.
    folder: The run's folder.
    seconds: Seconds by phase; empty or `None` if the run was finished before.
  """
  table = pd.DataFrame(list(rows)).apply(pd.to_numeric, errors='coerce')
  splits = {
    split: part
    for split in ('train', 'validation', 'test')
    if not (part := _last(table, split)).empty
  }
  names = [
    name
    for name in dict.fromkeys(n for part in splits.values() for n in part.index)
    if name != 'round'
    and (name == 'num_examples' or not name.startswith('num_'))
  ]
  # Rows that a resumed run has read begin with the loss.
  names.sort(key=lambda name: (name == 'num_examples', name == 'loss'))
  cells = [['', 'round', *map(metric_names.short, names)]]
  for split, part in splits.items():
    values = [part.get(name) for name in names]
    shown = ['' if v is None else formatting.number(v) for v in values]
    if 'num_examples' in part:
      shown[names.index('num_examples')] = f'{part["num_examples"]:,.0f}'
    cells.append([split, f'{part["round"]:.0f}', *shown])
  lines = formatting.aligned(cells, left=1)
  for group, when in _CLIENT_TESTS.items():
    lines += _clients(_last(table, group), when)
  lines += _virtual(table)
  evaluation = (folder.read_hparams() or {}).get('evaluation')
  if evaluation:
    lines.append(f'splits   {evaluation}')
  privacy = _last(table, 'privacy')
  if not privacy.empty:
    lines.append(
      f'privacy  epsilon = {privacy["epsilon"]:.4g} at delta = '
      f'{privacy["delta"]:g} after round {privacy["round"]:.0f}'
    )
  if seconds:
    parts = ', '.join(
      f'{what} {value:.1f} s' for what, value in seconds.items()
    )
    lines.append(f'{sum(seconds.values()):.1f} s: {parts}')
  lines.append(f'curves   {os.path.relpath(folder.curves)}')
  lines.append(f'metrics  {os.path.relpath(folder.metrics)}')
  return '\n'.join(lines)


def _last(table: Any, group: str) -> Any:
  """Returns the last row of a group's columns, and its round, as a series."""
  part = table.filter(regex=f'^{group}/').dropna(how='all')
  if part.empty:
    return pd.Series(dtype=float)
  last = part.iloc[-1].dropna().rename(lambda n: n.removeprefix(f'{group}/'))
  last['round'] = table['round'][part.index[-1]]
  return last


def _clients(last: Any, when: str) -> list[str]:
  """Renders the per-client tests, a line per group; empty without them."""
  found = [n.removesuffix('/mean') for n in last.index if n.endswith('/mean')]
  name = metric_names.main_metric(dict.fromkeys(found)) or 'loss'
  if name not in found:
    return []
  # One that is not finite is left out, and the worst of no known direction.
  spread = ', '.join(
    f'{words} {formatting.number(last[column])}'
    for part, words in (('std', 'std'), ('worst_decile', 'worst tenth'))
    if (column := f'{name}/{part}') in last
  )
  mean = formatting.number(last[f'{name}/mean'])
  return [
    f'clients  {metric_names.short(name)} {mean}{spread and f" ({spread})"} '
    f'over {last["clients"]:,.0f}{when}'
  ]


def _virtual(table: Any) -> list[str]:
  """Renders virtual time, answers and staleness; empty if not simulated."""
  lines = []
  if metric_names.VIRTUAL_SECONDS in table:
    time = table[metric_names.VIRTUAL_SECONDS].max()
    lines.append(f'time     {formatting.duration(time)} of virtual time')
  if 'virtual/selected' in table:
    drawn, answered, dropped, late = (
      int(table[name].sum())
      for name in (
        'virtual/selected',
        'clients/count',
        'virtual/dropped',
        'virtual/late',
      )
    )
    line = (
      f'answers  {answered:,} of {drawn:,} clients drawn; {dropped:,} dropped '
      f'out, {late:,} came too late'
    )
    # In asynchronous runs only.
    if under_way := drawn - answered - dropped - late:
      line += f', {under_way:,} still under way'
    lines.append(line)
  if 'staleness/mean' in table:
    # Mean of rounds, weighted by the number of answers that counted.
    ages = table.dropna(subset='staleness/mean')
    counts = ages['clients/count']
    mean = (ages['staleness/mean'] * counts).sum() / counts.sum()
    lines.append(
      f'stale    {formatting.number(mean)} server steps on average, '
      f'{table["staleness/max"].max():,.0f} at most'
    )
  return lines
