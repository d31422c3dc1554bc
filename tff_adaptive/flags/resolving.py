"""From flags to the settings of a run.

Flags that nothing would look at are refused. Errors name flags; whether as
--flag or as `keyword` is for the caller to say.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any
from typing import Optional

import tasks
from tff_adaptive import builders
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.flags import client_tests
from tff_adaptive.flags import flag_table
from tff_adaptive.flags import presets
from tff_adaptive.flags import runtime_flags
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.optimizers import mixes
from tff_adaptive.privacy import mechanism as privacy

# Of surrogates only those that stand for bytes can be in a folder's name.
_NAME = re.compile(
  r'(?!\.)[^/\\\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]{1,200}'
)
_NO_PATH = re.compile(r'[\x00\ud800-\udc7f\udd00-\udfff]')
# How much is set apart for validation, unless told.
_SHARES = {'examples': 0.5, 'clients': 0.1}
# Values by flag.
Given = Mapping[str, Any]


def with_preset(
  table: flag_table.FlagTable, given: Given
) -> tuple[dict[str, Any], Optional[presets.Preset]]:
  """The flags given with those of the preset among them, and the preset.

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
  of_run, of_method, of_task = _split(table, given)
  general = _general(table, of_run)
  values, flag_of = _hyperparameters(table, of_method)
  _fill_in(values, general)
  with parameters.renamed({**flag_table.DECIDED, **flag_of}):
    chosen = _choose(general, of_run, flag_of)
    plan = plan_lib.resolve(chosen, values)
    _check_accounting(table, general, plan, flag_of)
    _check_epochs(general['client_epochs_per_round'], plan, flag_of)
  if general['client_steps_per_round'] and not plan.method.has_clients:
    raise parameters.ParameterError(
      'client_steps_per_round',
      '{} would be ignored: {algorithm}={method} has no clients.',
      method=plan.method.name,
    )
  _check_owners(table, flag_of, plan)
  client_tests.resolve(general, plan)
  examples = general['num_validation_examples']
  resolved: dict[str, Any] = dict(
    plan=plan,
    task_options=_task_options(table, of_task, general, of_run),
    num_validation_examples=None if examples == -1 else examples,
    runtime_options=runtime_flags.options(general),
    record=tuple(filter(None, (general['record'] or '').split(','))),
  )
  as_given = {f.name for f in dataclasses.fields(settings_lib.Settings)}
  return settings_lib.Settings(
    **{name: general[name] for name in as_given - resolved.keys()}, **resolved
  )


def _split(
  table: flag_table.FlagTable, given: Given
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
  """Values of general flags, of hyperparameters, and of tasks' options."""
  groups: tuple[dict[str, Any], ...] = ({}, {}, {})
  for name, value in given.items():
    kind, _ = table.find(name).owner
    place = 0 if name in table.general else 2 if kind == 'task' else 1
    groups[place][name] = value
  return groups[0], groups[1], groups[2]


def _general(table: flag_table.FlagTable, of_run: Given) -> dict[str, Any]:
  """The general flags, those that were not given included."""
  general = {
    name: flag.parameter.check(of_run[name])
    if name in of_run
    else flag.parameter.default
    for name, flag in table.general.items()
  }
  _check_task(general['task'])
  accepted = tasks.parameters_of(general['task'])
  for flag, option in settings_lib.shared_flags(general['task']).items():
    if flag not in of_run and not accepted[option].required:
      general[flag] = accepted[option].default
  there = tasks.info(general['task']).num_clients
  if there is not None and 'clients_per_round' not in of_run:
    general['clients_per_round'] = min(general['clients_per_round'], there)
  if general['num_validation_examples'] == 0:
    raise parameters.ParameterError(
      'num_validation_examples',
      '{} must be -1 for all or at least 1, got 0.',
    )
  if (
    general['validation_sample'] == 'drawn'
    and general['num_validation_examples'] == -1
  ):
    raise parameters.ParameterError(
      'validation_sample',
      '{}=drawn would be ignored: {num_validation_examples}=-1 evaluates on '
      'all examples; give their number.',
    )
  _set_validation(general)
  _check_target(general['target_metric'])
  name = general['experiment_name']
  if name is not None and not _NAME.fullmatch(name):
    raise parameters.ParameterError(
      'experiment_name',
      '{} must be the name of one folder, of at most 200 letters, without '
      'slashes or control characters and not starting with a dot, got '
      '{name!r}.',
      name=name[:80],
    )
  root = general['root_output_dir']
  if not root or _NO_PATH.search(root):
    raise parameters.ParameterError(
      'root_output_dir', '{} must name a folder, got {root!r}.', root=root[:80]
    )
  return general


def _check_task(task: str) -> None:
  """Refuses a name that no task has."""
  if not tasks.is_place(task) and task not in tasks.names():
    raise parameters.ParameterError(
      'task',
      '{} must be one of {names}, or PACKAGE.MODULE:FUNCTION of a function '
      'that returns a task, got {given!r}{hint}.',
      names=', '.join(repr(name) for name in tasks.names()),
      hint=parameters.suggestion(task, tasks.names()),
      given=task,
    )


def _check_function(flag: str, place: str) -> None:
  """Refuses the name of a function that is not there."""
  try:
    tasks.look_up(place)
  except tasks.OwnCodeError as e:
    raise parameters.ParameterError(
      flag, '{}={place}: {told}', place=place, told=str(e)
    ) from e


def _set_validation(general: dict[str, Any]) -> None:
  """Fills in what is set apart for validation."""
  split = general['validation_split']
  if split is None:
    is_problem = tasks.info(general['task']).test_is_problem
    split = 'test' if is_problem else 'examples'
    general['validation_split'] = split
  share = general['validation_share']
  if split == 'test' and share is not None:
    raise parameters.ParameterError(
      'validation_share',
      '{}={share:g} would be ignored: {validation_split}=test sets nothing '
      'apart.',
      share=share,
    )
  if share is None:
    general['validation_share'] = _SHARES.get(split)


def _check_target(target: Optional[str]) -> None:
  if target is None:
    return
  name, _, value = target.rpartition(':')
  try:
    fits = bool(name) and math.isfinite(float(value))
  except ValueError:
    fits = False
  if not fits:
    raise parameters.ParameterError(
      'target_metric',
      '{} must be NAME:VALUE, such as accuracy:0.95, got {target!r}.',
      target=target,
    )


def _hyperparameters(
  table: flag_table.FlagTable, of_method: Given
) -> tuple[dict[str, Any], dict[str, str]]:
  """The hyperparameters that flags set, and which flags these are."""
  values: dict[str, Any] = {}
  flag_of: dict[str, str] = {}
  for name, value in of_method.items():
    public = table.find(name).public
    if public in values:
      raise parameters.ParameterError(
        name,
        f'{{{flag_of[public]}}} and {{}} set the same hyperparameter; give one '
        'of them.',
      )
    values[public], flag_of[public] = value, name
  return values, flag_of


def _choose(
  general: Given, of_run: Given, flag_of: Mapping[str, str]
) -> plan_lib.Plan:
  """The method that is asked for, or that the optimizers make."""
  client, server = general['client_optimizer'], general['server_optimizer']
  if general['algorithm'] is None:
    # Plain averaging has no momentum; asking for it asks for fedavgm.
    method = methods.of_server(server, asked=flag_of)
    return plan_lib.choose(method.name, client, server)
  return plan_lib.choose(
    general['algorithm'],
    client if 'client_optimizer' in of_run else None,
    server if 'server_optimizer' in of_run else None,
  )


def _fill_in(values: dict[str, Any], general: Given) -> None:
  """Adds the hyperparameters that follow from others and from the run."""
  for side in optimizers.SIDES:
    # The decay in steps is stated in shares of the whole run.
    if values.get(f'{side}_lr_schedule') == 'step_decay':
      values.setdefault(f'{side}_lr_decay_steps', general['total_rounds'])
  if values.get('delay_unit') == 'epochs':
    values.setdefault('local_epochs', general['client_epochs_per_round'])
  named = builders.parameters_of(privacy.SIGNATURE).keys() & values.keys()
  if privacy.is_asked({name: values[name] for name in named}):
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


def _check_epochs(
  epochs: int, plan: plan_lib.Plan, flag_of: Mapping[str, str]
) -> None:
  """Holds what the optimizers call epochs against the data's."""
  for name in ('local_epochs', 'epochs_mix', 'client_epochs'):
    if name not in flag_of:
      continue
    times = given = plan.values[name]
    if name != 'local_epochs':
      times = mixes.longest(
        plan.values['epochs_mix'], plan.values['client_epochs']
      )
    if times != epochs:
      raise parameters.ParameterError(
        name,
        '{}={given} asks for clients that iterate their data {times} times, '
        'but {client_epochs_per_round} is {epochs}.',
        given=given,
        times=times,
        epochs=epochs,
      )


def _check_accounting(
  table: flag_table.FlagTable,
  general: Given,
  plan: plan_lib.Plan,
  flag_of: Mapping[str, str],
) -> None:
  """Holds the flags of accounting against those of the mechanism."""
  target = general['target_epsilon']
  if plan.private:
    if target and 'dp_noise_multiplier' in flag_of:
      raise parameters.ParameterError(
        'target_epsilon',
        '{} and {dp_noise_multiplier} both decide the noise; give one of them.',
      )
    return
  if target is not None:
    raise parameters.ParameterError(
      'target_epsilon',
      '{}={target:g} needs {dp_clip_norm} or {dp_adaptive_clipping}: noise '
      'without clipping keeps nothing private.',
      target=target,
    )
  for name in ('dp_delta', 'dp_sampling', 'dp_accounting'):
    if general[name] != table.general[name].parameter.default:
      raise parameters.ParameterError(
        name,
        '{}={given} would be ignored: without {dp_clip_norm} nothing is kept '
        'private.',
        given=general[name],
      )


def _task_options(
  table: flag_table.FlagTable, of_task: Given, general: Given, of_run: Given
) -> dict[str, Any]:
  """The options of the task."""
  task = general['task']
  options = {p.name: p.default for p in tasks.parameters_of(task).values()}
  shared = settings_lib.shared_flags(task)
  shared |= {'cache_dir': 'cache_dir'} if 'cache_dir' in options else {}
  for common, option in shared.items():
    if common in of_run or options[option] is not parameters.REQUIRED:
      options[option] = general[common]
  for common in settings_lib.FLAGS_OF_TASKS:
    if common in of_run and common not in shared:
      raise parameters.ParameterError(
        common,
        '{}={given} would be ignored: {task}={chosen} has no argument for it.',
        given=general[common],
        chosen=task,
      )
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
    ignored = 'synthetic data come from no file'
  elif not (tasks.info(task).files or tasks.info(task).own):
    ignored = f'the task {task} reads no file'
  if general['cache_dir'] is not None and ignored:
    raise parameters.ParameterError(
      'cache_dir',
      '{}={given} would be ignored: {ignored}.',
      given=general['cache_dir'],
      ignored=ignored,
    )
  return options
