"""The settings of a run, made of flags.

Flags that nothing would look at are refused. Errors name flags; whether as
--flag or as `keyword` is for the caller to say.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.flags import flag_table
from tff_adaptive.flags import presets
from tff_adaptive.flags import run_flags
from tff_adaptive.flags import runtime_flags
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.flags import task_options
from tff_adaptive.privacy import mechanism as privacy

# Values by flag.
Given = Mapping[str, Any]


def with_preset(
  table: flag_table.FlagTable, given: Given
) -> tuple[dict[str, Any], Optional[presets.Preset]]:
  """Adds the flags of a preset to those given; returns the preset too.

  Args:
    table: All flags.
    given: Values by flag; each overrides the preset's.

  Raises:
    ParameterError: If there is no such preset, or no flag of a name.
  """
  said = {table.find(name).public for name in given}
  if 'preset' not in given:
    return dict(given), None
  preset = presets.load(given['preset'])
  added = {
    name: table.find(name).parameter.read(text)
    for name, text in preset.flags.items()
    if table.find(name).public not in said
  }
  return {**added, **given}, preset


def settings(**given: Any) -> settings_lib.Settings:
  """Makes the settings of a run.

  Args:
    **given: The flags of the command line as keywords (`main.py --helpfull`
      lists them): task='digits', algorithm='fedadam', total_rounds=5,
      client_learning_rate=0.1, digits_alpha=0.3, preset='PAPER/TASK/METHOD'.

  Raises:
    ParameterError: In one sentence, what is wrong.
  """
  table = flag_table.FlagTable()
  table.know(given.get('task'))
  return resolve(table, with_preset(table, given)[0])


def resolve(table: flag_table.FlagTable, given: Given) -> settings_lib.Settings:
  """Puts flags together, checking every value once.

  Args:
    table: All flags.
    given: Values by flag, without a preset's name.

  Raises:
    ParameterError: In one sentence, what is wrong.
  """
  of_run = {n: v for n, v in given.items() if n in table.general}
  of_task = {n: v for n, v in given.items() if n in table.task}
  general = run_flags.resolve(table, of_run)
  values, flag_of = _hyperparameters(table, given)
  _fill_in(values, general)
  with parameters.renamed({**flag_table.DECIDED, **flag_of}):
    plan = plan_lib.resolve(**_choice(general, of_run, values), **values)
    run_flags.check(table, general, plan, flag_of)
  _check_owners(table, flag_of, plan)
  examples = general['num_validation_examples']
  resolved: dict[str, Any] = dict(
    plan=plan,
    task_options=task_options.resolve(table, of_task, general, of_run),
    num_validation_examples=None if examples == -1 else examples,
    runtime_options=runtime_flags.options(general),
    record=tuple(filter(None, (general['record'] or '').split(','))),
  )
  as_given = {f.name for f in dataclasses.fields(settings_lib.Settings)}
  return settings_lib.Settings(
    **{name: general[name] for name in as_given - resolved.keys()}, **resolved
  )


def _hyperparameters(
  table: flag_table.FlagTable, given: Given
) -> tuple[dict[str, Any], dict[str, str]]:
  """Returns the hyperparameters that flags set, and these flags."""
  values: dict[str, Any] = {}
  flag_of: dict[str, str] = {}
  for name, value in given.items():
    if name in table.general or name in table.task:
      continue
    public = table.find(name).public
    if public in values:
      raise parameters.ParameterError(
        name,
        f'{{{flag_of[public]}}} and {{}} set the same hyperparameter; give one '
        'of them.',
      )
    values[public], flag_of[public] = value, name
  return values, flag_of


def _choice(general: Given, of_run: Given, asked: Given) -> dict[str, Any]:
  """Chooses the method that is asked for, or that the optimizers make."""
  names = ('client_optimizer', 'server_optimizer')
  if general['algorithm'] is not None:
    chosen = {name: of_run[name] for name in names if name in of_run}
    return {'name': general['algorithm'], **chosen}
  # Plain averaging has no momentum; asking for it asks for fedavgm.
  method = methods.of_server(general['server_optimizer'], asked)
  return {'name': method.name, **{name: general[name] for name in names}}


def _fill_in(values: dict[str, Any], general: Given) -> None:
  """Adds the hyperparameters that follow from others and from the run."""
  for side in optimizers.SIDES:
    # The decay in steps is stated in shares of the whole run.
    if values.get(f'{side}_lr_schedule') == 'step_decay':
      values.setdefault(f'{side}_lr_decay_steps', general['total_rounds'])
  if values.get('delay_unit') == 'epochs':
    values.setdefault('local_epochs', general['client_epochs_per_round'])
  if privacy.is_asked(values):
    values['dp_clients_per_round'] = general['clients_per_round']


def _check_owners(
  table: flag_table.FlagTable, flag_of: Mapping[str, str], plan: plan_lib.Plan
) -> None:
  """Refuses flags of an optimizer that is not the plan's."""
  for public, name in flag_of.items():
    side, owner = table.find(name).owner
    if owner and plan.optimizer[side] != owner:
      raise parameters.UnusedError(
        name,
        '{}={given} would be ignored: the {side} optimizer is {chosen}.',
        given=plan.values[public],
        side=side,
        chosen=plan.optimizer[side],
      )
