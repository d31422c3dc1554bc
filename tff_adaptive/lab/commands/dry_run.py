"""Description of an experiment, for --dry_run."""

from typing import Any, Optional

import tasks
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training.participation import availability
from tff_adaptive.lab.training.participation import cohorts


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
  lines += [description.describe(built.pieces), '']
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
  on_gpu = bool(tf.config.list_logical_devices('GPU'))
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
  whose = settings.plan.method.whose_data(
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
