"""What the flags given come to: the settings of an experiment.

Flags that nothing would look at are refused.
"""

import re
from collections.abc import Mapping
from typing import Any

import tasks
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import declaration as flag_table
from tff_adaptive.flags import methods
from tff_adaptive.flags import runtime as runtime_flags
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.optimizers import mixes
from tff_adaptive.privacy import mechanism as privacy

# What the product does when nothing is said.
_DEFAULT_OPTIMIZER = {'client': 'delta_sgd', 'server': 'adam'}
_USUAL_COHORT = 10
# Which algorithm a server optimizer makes.
_ALGORITHM_OF = {
  'adagrad': 'fedadagrad',
  'adam': 'fedadam',
  'ams': 'fedams',
  'sgd': 'fedavg',
  'yogi': 'fedyogi',
}
# Flags that are settings as they stand.
_AS_GIVEN = (
  'task',
  'experiment_name',
  'total_rounds',
  'clients_per_round',
  'rounds_per_eval',
  'rounds_per_checkpoint',
  'target_epsilon',
  'dp_delta',
  'dp_sampling',
  'dp_accounting',
  'client_datasets_random_seed',
  'seed',
  'runtime',
  'cache_mib',
  'client_states',
  'client_state_mib',
  'max_rejected_clients',
  'root_output_dir',
)


def parse(parameter: parameters.Parameter, text: str, flag: str) -> Any:
  try:
    return parameter.parse(text, name=f'--{flag}')
  except parameters.ParameterError as e:
    # Not a ValueError, which absl would put words in front of.
    raise errors.SettingsError(str(e)) from e


def resolve(
  table: flag_table.Table,
  general: Mapping[str, Any],
  given: Mapping[str, str],
) -> settings_lib.Settings:
  """Puts the flags together and refuses those that nothing would look at.

  Args:
    table: All flags.
    general: The flags that do not depend on others, defaults filled in.
    given: The text of the others that were given.

  Raises:
    SettingsError: In one sentence, what is wrong.
  """
  _check_general(general)
  if general['clients_per_round'] is None:
    there = tasks.info(general['task']).num_clients or _USUAL_COHORT
    general = {**general, 'clients_per_round': min(_USUAL_COHORT, there)}
  algorithm = _choose_algorithm(general, given)
  optimizer = {side: general[f'{side}_optimizer'] for side in flag_table.SIDES}
  if general['algorithm'] is None and optimizer['client'] is None:
    optimizer['client'] = _DEFAULT_OPTIMIZER['client']
  try:
    accepted = dict(
      methods.parameters_of(algorithm, optimizer['client'], optimizer['server'])
    )
  except parameters.ParameterError as e:
    raise errors.SettingsError(_flagged(str(e))) from e
  accepted.pop('seed')
  accepted.pop('dp_clients_per_round')
  for side in flag_table.SIDES:
    own = methods.own_optimizer(algorithm, side)
    optimizer[side] = optimizer[side] or own
  values = _given_hyperparameters(table, given, algorithm, optimizer, accepted)
  hyperparameters = _complete(values, algorithm, optimizer, accepted, general)
  examples = general['num_validation_examples']
  return settings_lib.Settings(
    task_options=_task_options(table, given, general['task'], general),
    algorithm=algorithm,
    client_optimizer=optimizer['client'],
    server_optimizer=optimizer['server'],
    hyperparameters=hyperparameters,
    num_validation_examples=None if examples == -1 else examples,
    runtime_options=runtime_flags.options(general),
    **{key: general[key] for key in _AS_GIVEN},
  )


def _check_general(general: Mapping[str, Any]) -> None:
  if general['num_validation_examples'] == 0:
    raise errors.SettingsError(
      '--num_validation_examples must be -1 for all or at least 1, got 0.'
    )
  name = general['experiment_name']
  if name is not None and not re.fullmatch(
    r'(?!\.)[^/\\\x00-\x1f\x7f]{1,200}', name
  ):
    raise errors.SettingsError(
      '--experiment_name must be the name of one folder, of at most 200 '
      'letters, without slashes or control characters and not starting with a '
      f'dot, got {name[:80]!r}.'
    )
  if not general['root_output_dir']:
    raise errors.SettingsError("--root_output_dir must name a folder, got ''.")


def _choose_algorithm(
  general: Mapping[str, Any], given: Mapping[str, str]
) -> str:
  if general['algorithm'] is not None:
    return general['algorithm']
  server = general['server_optimizer'] or _DEFAULT_OPTIMIZER['server']
  # Plain averaging has no momentum; asking for it asks for fedavgm.
  if server == 'sgd' and {'momentum', 'server_sgd_momentum'} & set(given):
    return 'fedavgm'
  return _ALGORITHM_OF[server]


def _complete(
  values: dict[str, Any],
  algorithm: str,
  optimizer: Mapping[str, str],
  accepted: Mapping[str, parameters.Parameter],
  general: Mapping[str, Any],
) -> dict[str, Any]:
  """The hyperparameters of `algorithms.build`, from those given."""
  _check_privacy(general, values)
  _fill_in(values, accepted, general)
  try:
    methods.check(
      algorithm,
      client_optimizer=optimizer['client'],
      server_optimizer=optimizer['server'],
      **values,
    )
  except parameters.ParameterError as e:
    raise errors.SettingsError(_flagged(str(e))) from e
  _check_epochs(general['client_epochs_per_round'], values)
  return {
    name: values.get(name, parameter.default)
    for name, parameter in accepted.items()
  } | {'dp_clients_per_round': values.get('dp_clients_per_round')}


def _given_hyperparameters(
  table: flag_table.Table,
  given: Mapping[str, str],
  algorithm: str,
  optimizer: Mapping[str, str],
  accepted: Mapping[str, parameters.Parameter],
) -> dict[str, Any]:
  """The hyperparameters among the flags given, by public name."""
  values: dict[str, Any] = {}
  source: dict[str, str] = {}
  for name, text in given.items():
    flag = table.hyperparameter(name)
    if flag is None:
      continue
    # A value that nobody accepts is the plainer mistake.
    parse(flag.parameter, text, name)
    if flag.owner is not None:
      side, owner = flag.owner
      if optimizer[side] != owner:
        raise errors.SettingsError(
          f'--{name}={text} would be ignored: the {side} optimizer is '
          f'{optimizer[side]}.'
        )
    if flag.public not in accepted:
      takes = ', '.join(f'--{a}' for a in sorted(accepted))
      raise errors.SettingsError(
        f'--{name}={text} would be ignored by the algorithm {algorithm} '
        f'with client optimizer {optimizer["client"]} and server optimizer '
        f'{optimizer["server"]}, which accept {takes}.'
      )
    if flag.public in source:
      raise errors.SettingsError(
        f'--{source[flag.public]} and --{name} set the same '
        'hyperparameter; give one of them.'
      )
    source[flag.public] = name
    values[flag.public] = parse(accepted[flag.public], text, name)
  return values


def _fill_in(
  values: dict[str, Any],
  accepted: Mapping[str, parameters.Parameter],
  general: Mapping[str, Any],
) -> None:
  """Adds the hyperparameters that follow from others and from the run."""
  for side in flag_table.SIDES:
    # The decay in steps is stated in shares of the whole run.
    if values.get(f'{side}_lr_schedule') == 'step_decay':
      values.setdefault(f'{side}_lr_decay_steps', general['total_rounds'])
  if values.get('delay_unit') == 'epochs':
    values.setdefault('local_epochs', general['client_epochs_per_round'])
  if privacy.is_asked(values):
    values['dp_clients_per_round'] = general['clients_per_round']
    if 'client_weighting' in accepted:
      values.setdefault('client_weighting', 'uniform')


def _check_epochs(epochs: int, values: Mapping[str, Any]) -> None:
  """Holds what the optimizers call epochs against the data's."""
  meant = dict(values)
  if 'epochs_mix' in values:
    meant['epochs_mix'] = max(
      mixes.read_counts(values['epochs_mix'], 'epochs_mix')
    )
  for name in ('local_epochs', 'epochs_mix'):
    if meant.get(name) not in (None, epochs):
      raise errors.SettingsError(
        f'--{name}={values[name]} asks for clients that iterate their data '
        f'{meant[name]} times, but --client_epochs_per_round is {epochs}.'
      )


def _check_privacy(
  general: Mapping[str, Any], values: Mapping[str, Any]
) -> None:
  """Holds the flags of accounting against those of the mechanism."""
  if privacy.is_asked(values):
    if general['target_epsilon'] and 'dp_noise_multiplier' in values:
      raise errors.SettingsError(
        '--target_epsilon and --dp_noise_multiplier both decide the noise; '
        'give one of them.'
      )
    return
  if general['target_epsilon'] is not None:
    raise errors.SettingsError(
      f'--target_epsilon={general["target_epsilon"]:g} needs --dp_clip_norm '
      'or --dp_adaptive_clipping: noise without clipping keeps nothing '
      'private.'
    )
  usual = {'dp_delta': None, 'dp_sampling': 'fixed', 'dp_accounting': 'pld'}
  for name, default in usual.items():
    if general[name] != default:
      raise errors.SettingsError(
        f'--{name}={general[name]} would be ignored: without --dp_clip_norm '
        'nothing is kept private.'
      )


def _task_options(
  table: flag_table.Table,
  given: Mapping[str, str],
  task: str,
  general: Mapping[str, Any],
) -> dict[str, Any]:
  accepted = tasks.parameters_of(task)
  options = {}
  for name, text in given.items():
    flag = table.task.get(name)
    if flag is None:
      continue
    if flag.owner != ('task', task):
      raise errors.SettingsError(
        f'--{name}={text} would be ignored: --task={task}.'
      )
    options[flag.public] = parse(accepted[flag.public], text, name)
  for shared, option in settings_lib.TASK_FLAGS.items():
    options[option] = general[shared]
  ignored = None
  if general['data'] == 'synthetic':
    ignored = 'synthetic data come from no file'
  elif not tasks.info(task).files:
    ignored = f'the task {task} reads no file'
  if general['cache_dir'] is not None and ignored is not None:
    raise errors.SettingsError(
      f'--cache_dir={general["cache_dir"]} would be ignored: {ignored}.'
    )
  return {
    name: options.get(
      name,
      general['cache_dir'] if name == 'cache_dir' else parameter.default,
    )
    for name, parameter in accepted.items()
  }


def _flagged(message: str) -> str:
  """A message about keyword arguments, said of flags."""
  # Schedules are named without quotes.
  return re.sub(
    r'(?<![-\w])((?:client|server)_lr_\w+)',
    r'--\1',
    runtime_flags.flagged(message),
  )
