"""Resolution of flags to the settings of a run.

Flags without effect are refused. Errors refer to flags by name; the caller
formats them as --flag or `keyword`.
"""

import dataclasses
from collections.abc import Collection
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import general as general_lib
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import run_flags
from tff_adaptive.lab.flags import runtime_flags
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.flags import task_options
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism as privacy

# Values by flag.
Given = Mapping[str, Any]


def with_preset(
  table: flag_table.FlagTable, given: Given
) -> tuple[dict[str, Any], Optional[presets.Preset]]:
  """Adds the flags of a preset to those given; returns the preset too.

  Args:
    table: All flags.
    given: Values by flag; they override the preset's.

  Raises:
    ParameterError: If the preset or a flag is unknown.
  """
  set_by_user = {table.find(name).public for name in given}
  if 'preset' not in given:
    return dict(given), None
  preset = presets.load(given['preset'])
  added = {
    name: table.find(name).parameter.read(text)
    for name, text in preset.flags.items()
    if table.find(name).public not in set_by_user
  }
  return {**added, **given}, preset


def settings(**given: Any) -> settings_lib.Settings:
  """Builds the settings of a run from keyword arguments.

  Example:

    >>> from tff_adaptive import training
    >>> settings = training.settings(
    ...   task='digits', algorithm='fedadam', client_learning_rate=0.1
    ... )
    >>> settings.total_rounds, settings.clients_per_round
    (200, 10)
    >>> settings.hyperparameters['client_learning_rate']
    0.1

  Args:
    **given: The flags of the command line as keywords (`main.py --helpfull`
      lists them), such as task='digits', algorithm='fedadam', total_rounds=5,
      client_learning_rate=0.1, digits_alpha=0.3 or preset='PAPER/TASK/METHOD'.

  Returns:
    The settings, an argument of `training.run`.

  Raises:
    ParameterError: If a keyword or its value is not accepted; the message is
      one sentence.
  """
  table = flag_table.FlagTable()
  table.know(given.get('task'))
  return resolve(table, with_preset(table, given)[0])


def resolve(table: flag_table.FlagTable, given: Given) -> settings_lib.Settings:
  """Resolves flags to settings, checking every value once.

  Args:
    table: All flags.
    given: Values by flag, without a preset's name.

  Raises:
    ParameterError: If a flag is not accepted; the message is one sentence.
  """
  of_run = {n: v for n, v in given.items() if n in table.general}
  of_task = {n: v for n, v in given.items() if n in table.task}
  general = run_flags.resolve(table, of_run)
  of_method = {
    name: (table.find(name), value)
    for name, value in given.items()
    if name not in of_run and name not in of_task
  }
  asked = {flag.public for flag, _ in of_method.values()}
  method, optimizer = _choose(general, of_run, asked)
  values, flag_of = _hyperparameters(of_method, optimizer)
  _fill_in(values, general)
  with parameters.renamed({**flag_table.DECIDED, **flag_of}):
    plan = plan_lib.resolve(
      method.name,
      client_optimizer=optimizer['client'],
      server_optimizer=optimizer['server'],
      **values,
    )
    run_flags.check(general, plan, flag_of)
  examples = general['num_validation_examples']
  resolved: dict[str, Any] = dict(
    plan=plan,
    task_options=task_options.resolve(table, of_task, general, of_run),
    num_validation_examples=None if examples == -1 else examples,
    runtime_options=runtime_flags.options(general),
    record=tuple(filter(None, (general['record'] or '').split(','))),
  )
  for field in dataclasses.fields(general_lib.AsGiven):
    resolved[field.name] = general[field.name]
  return settings_lib.Settings(
    task=general['task'], runtime=general['runtime'], **resolved
  )


def _choose(
  general: Given, of_run: Given, asked: Collection[str]
) -> tuple[methods.Method, dict[str, Any]]:
  """Returns the requested method, or the one that the optimizers define."""
  if general['algorithm'] is None:
    # fedavg has no momentum, so a given momentum selects fedavgm.
    method = methods.of_server(general['server_optimizer'], asked)
    given = general
  else:
    method, given = methods.find(general['algorithm']), of_run
  return method, plan_lib.optimizers_of(
    method, given.get('client_optimizer'), given.get('server_optimizer')
  )


def _hyperparameters(
  of_method: Mapping[str, tuple[flag_table.Flag, Any]],
  optimizer: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
  """Returns hyperparameters set by flags, and the flags that set them.

  Raises:
    ParameterError: If two flags set the same hyperparameter, or a flag belongs
      to an optimizer that is not used.
  """
  values: dict[str, Any] = {}
  flag_of: dict[str, str] = {}
  for name, (flag, value) in of_method.items():
    side, owner = flag.owner
    if owner and optimizer[side] != owner:
      raise parameters.UnusedError(
        name,
        '{}={given} would be ignored: the {side} optimizer is {chosen}.',
        given=value,
        side=side,
        chosen=optimizer[side],
      )
    if flag.public in values:
      raise parameters.ParameterError(
        name,
        f'{{{flag_of[flag.public]}}} and {{}} set the same hyperparameter; '
        'give one of them.',
      )
    values[flag.public], flag_of[flag.public] = value, name
  return values, flag_of


def _fill_in(values: dict[str, Any], general: Given) -> None:
  """Adds hyperparameters that follow from others and from the run."""
  for side in optimizers.SIDES:
    schedule = values.get(f'{side}_lr_schedule')
    if schedule == 'step_decay':
      # Step decay is defined relative to the whole run.
      values.setdefault(f'{side}_lr_decay_steps', general['total_rounds'])
    elif schedule in schedules.TO_MINIMUM:
      before = (f'{side}_lr_warmup_steps', f'{side}_lr_stable_steps')
      left = general['total_rounds'] - sum(values.get(n) or 0 for n in before)
      values.setdefault(f'{side}_lr_decay_steps', max(left, 1))
  if values.get('delay_unit') == 'epochs':
    values.setdefault('local_epochs', general['client_epochs_per_round'])
  if privacy.is_asked(values):
    values['dp_clients_per_round'] = general['clients_per_round']
