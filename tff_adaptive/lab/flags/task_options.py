"""The options of a task, resolved from flags."""

from collections.abc import Mapping
from typing import Any

import tasks
from tff_adaptive import parameters
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import settings as settings_lib


def resolve(
  table: flag_table.FlagTable,
  of_task: Mapping[str, Any],
  general: Mapping[str, Any],
  of_run: Mapping[str, Any],
) -> dict[str, Any]:
  """Checks the flags of tasks, and returns the options of the chosen task.

  Args:
    table: All flags.
    of_task: Given flags that belong to one task only.
    general: General flags by name.
    of_run: General flags that were given.

  Returns:
    The options by name, except those of `tasks.Options.later` at their
    defaults.

  Raises:
    ParameterError: If a flag is not accepted, would be ignored or is missing.
  """
  task = general['task']
  options = {p.name: p.default for p in tasks.parameters_of(task).values()}
  shared = settings_lib.shared_flags(task)
  for common in settings_lib.TASK_FLAGS:
    if common not in of_run:
      continue
    if common not in shared:
      raise parameters.ParameterError(
        common,
        '{}={given} would be ignored: {task}={chosen} has no such option.',
        given=general[common],
        chosen=task,
      )
    options[shared[common]] = general[common]
  for name, value in of_task.items():
    flag = table.task[name]
    if flag.owner != ('task', task):
      raise parameters.UnusedError(
        name,
        '{}={given} would be ignored: {task}={chosen}.',
        given=value,
        chosen=task,
      )
    options[flag.public] = flag.parameter.check(value)
  for option in tasks.info(task).functions:
    if options[option] is not None:
      _check_function(settings_lib.flag_of(task, option), options[option])
  for option, value in options.items():
    if value is parameters.REQUIRED:
      raise parameters.ParameterError(
        settings_lib.flag_of(task, option),
        '{} must be given: {task}={chosen} has no default for it.',
        chosen=task,
      )
  ignored = ''
  if general['data'] == 'synthetic':
    ignored = 'synthetic data are generated, not read'
  elif not (tasks.info(task).files or tasks.info(task).own):
    ignored = f'the task {task} reads no file'
  if 'cache_dir' in of_run and ignored:
    raise parameters.ParameterError(
      'cache_dir',
      '{}={given} would be ignored: {ignored}.',
      given=general['cache_dir'],
      ignored=ignored,
    )
  return settled(task, options)


def settled(task: str, options: dict[str, Any]) -> dict[str, Any]:
  """Checks that options are consistent; drops later ones at defaults.

  Args:
    task: The task.
    options: All of its options, by name.

  Returns:
    The options, except those of `tasks.Options.later` at their defaults.

  Raises:
    ParameterError: If options are inconsistent; the message names the flags.
  """
  described = tasks.info(task).options
  if described is None:  # A user-defined function checks its own options.
    return options
  try:
    described(**options)
  except parameters.ParameterError as e:
    raise e.renamed(lambda name: settings_lib.flag_of(task, name)) from e
  return {
    name: value
    for name, value in options.items()
    if name not in described.later
    or value != tasks.parameters_of(task)[name].default
  }


def _check_function(flag: str, place: str) -> None:
  """Raises `ParameterError` if a function does not exist."""
  try:
    tasks.look_up(place)
  except tasks.OwnCodeError as e:
    raise parameters.ParameterError(
      flag, '{}={place}: {reason}', place=place, reason=str(e)
    ) from e
