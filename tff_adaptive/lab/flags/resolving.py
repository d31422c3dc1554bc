"""Resolution of flags to the settings of a run.

Errors refer to flags by name; the caller formats them as --flag or `keyword`.
"""

import dataclasses
import re
from collections.abc import Collection, Mapping
from typing import Any, Optional

import tasks
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import general as general_lib
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import runtime_flags
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism as privacy

# Values by flag.
Given = Mapping[str, Any]

# Of surrogates, only those that represent bytes can be in a folder's name.
_NO_PATH = r'\x00\ud800-\udc7f\udd00-\udfff'
_NAME = re.compile(rf'(?!\.)[^/\\\x01-\x1f\x7f{_NO_PATH}]{{1,200}}')
# Default fractions that are set apart for validation and for clients' tests.
_SHARES = {'examples': 0.5, 'clients': 0.1}
_CLIENT_TEST_SHARE = 0.2


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
  if 'preset' not in given:
    return dict(given), None
  preset = presets.load(given['preset'])
  added = {
    name: table.find(name).parameter.read(text)
    for name, text in preset.flags.items()
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
  return resolve_preset(table, with_preset(table, given)[0], given)


def resolve_preset(
  table: flag_table.FlagTable, given: Given, typed: Given
) -> settings_lib.Settings:
  """Like `resolve`, of what `with_preset` returned.

  A preset's options of a task that other flags leave unused, such as `alpha` of
  another partition, are left out.

  Args:
    table: All flags.
    given: Values by flag.
    typed: Those that are not the preset's.
  """
  left = dict(given)
  while True:
    try:
      return resolve(table, left)
    except parameters.UnusedError as e:
      if e.parameter in typed or e.parameter not in table.task:
        raise
      del left[e.parameter]


def resolve(table: flag_table.FlagTable, given: Given) -> settings_lib.Settings:
  """Resolves flags to settings, checking every value once.

  Args:
    table: All flags.
    given: Values by flag, without a preset's name.

  Raises:
    ParameterError: If a flag is not accepted; the message is one sentence.
  """
  general = _general(table, given)
  values = {
    name: value
    for name, value in given.items()
    if table.find(name) is table.algorithm.get(name)
  }
  method, optimizer = _choose(general, given)
  _fill_in(values, general)
  with parameters.renamed(flag_table.DECIDED):
    configuration = configuration_lib.resolve(
      method.name,
      client_optimizer=optimizer['client'],
      server_optimizer=optimizer['server'],
      **values,
    )
    _refuse_unused(table, given, general, configuration)
    _check(general, configuration, given)
  examples = general['num_validation_examples']
  fields = (f.name for f in dataclasses.fields(general_lib.AsGiven))
  return settings_lib.Settings(
    **{name: general[name] for name in fields},
    task=general['task'],
    task_options=_task_options(table, given, general),
    configuration=configuration,
    num_validation_examples=None if examples == -1 else examples,
    trackers=tuple(filter(None, (general['trackers'] or '').split(','))),
    runtime=general['runtime'],
    runtime_options=runtime_flags.options(general),
  )


def check_task(task: str) -> None:
  """Raises `ParameterError` for an unknown task."""
  if not tasks.is_place(task) and task not in tasks.names():
    raise parameters.ParameterError(
      'task',
      '{} must be one of {names}, or PACKAGE.MODULE:FUNCTION of a function '
      'that returns a task, got {given!r}{hint}.',
      names=', '.join(repr(name) for name in tasks.names()),
      hint=parameters.suggestion(task, tasks.names()),
      given=task,
    )


def _general(table: flag_table.FlagTable, given: Given) -> dict[str, Any]:
  """Returns the general flags by name, with defaults filled in."""
  general = {
    name: flag.parameter.check(given[name])
    if name in given
    else flag.parameter.default
    for name, flag in table.general.items()
  }
  task = general['task']
  check_task(task)
  accepted = tasks.parameters_of(task)
  for flag, option in settings_lib.shared_flags(task).items():
    if flag not in given and not accepted[option].required:
      general[flag] = accepted[option].default
  there = tasks.info(task).num_clients
  if there is not None and 'clients_per_round' not in given:
    general['clients_per_round'] = min(general['clients_per_round'], there)
  if general['validation_split'] is None:
    is_problem = tasks.info(task).test_is_problem
    general['validation_split'] = 'test' if is_problem else 'examples'
  if general['validation_share'] is None:
    general['validation_share'] = _SHARES.get(general['validation_split'])
  for flag, fits, must in _FORMATS:
    value = general[flag]
    if value is not None and not fits(value):
      raise parameters.ParameterError(
        flag, f'{{}} must be {must}, got {{value!r}}.', value=str(value)[:80]
      )
  metric_names.parse_directions(general['metric_direction'])
  return general


# Flags with a format, its check, and its description.
_FORMATS = (
  ('num_validation_examples', bool, '-1 (all) or at least 1'),
  (
    'target_metric',
    re.compile(r'.+:(max|min|[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?)').fullmatch,
    'NAME:VALUE, such as accuracy:0.95, or NAME:max or NAME:min',
  ),
  (
    'experiment_name',
    _NAME.fullmatch,
    'a folder name of at most 200 letters, without slashes, control characters '
    'or a leading dot',
  ),
  (
    'root_output_dir',
    re.compile(f'[^{_NO_PATH}]+').fullmatch,
    'the name of a folder',
  ),
  (
    'evaluate_clients',
    re.compile('all|0*[1-9][0-9]{0,8}').fullmatch,
    "'all' or an integer of at least 1",
  ),
)


def _choose(
  general: Given, given: Given
) -> tuple[methods.Method, dict[str, Any]]:
  """Returns the requested method, or the one that the optimizers define."""
  proximal = given.get('proximal_strength')
  if given.get('algorithm') == 'fedavg' and proximal:
    raise parameters.UnusedError(  # An axis of a sweep leaves fedavg out.
      'proximal_strength',
      '{}={given} makes federated averaging FedProx: give {algorithm}=fedprox.',
      given=proximal,
    )
  if general['algorithm'] is not None:
    method = methods.find(general['algorithm'])
  else:
    # fedavg has no momentum, so a given momentum selects fedavgm.
    method = methods.of_server(general['server_optimizer'], given)
    if method.name == 'fedavg' and proximal:
      method = methods.find('fedprox')
    given = general
  return method, configuration_lib.optimizers_of(
    method, given.get('client_optimizer'), given.get('server_optimizer')
  )


def _fill_in(values: dict[str, Any], general: dict[str, Any]) -> None:
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
  private = privacy.is_asked(values)
  if private:
    values['dp_clients_per_round'] = general['clients_per_round']
  if general['client_datasets_random_seed'] is None:
    cohorts = general['seed'] % 2**32 if private else 1
    general['client_datasets_random_seed'] = cohorts


def _refuse_unused(
  table: flag_table.FlagTable,
  given: Given,
  general: Given,
  configuration: configuration_lib.MethodConfiguration,
) -> None:
  """Raises `UnusedError` for a flag that nothing uses."""
  active = [
    name
    for name, value in given.items()
    if (
      value is not None and table.find(name).task not in ('', general['task'])
    )
    or (value is not False and value != table.find(name).parameter.default)
  ]
  for name in active:
    if reason := _why_unused(table.find(name), general, configuration, active):
      value = given[name]
      shown = f'={value:g}' if isinstance(value, float) else f'={value}'
      raise parameters.UnusedError(
        name,
        f'{{}}{{given}} would be ignored{reason}.',
        given='' if value is True else shown,
      )


def _why_unused(
  flag: flag_table.Flag,
  general: Given,
  configuration: configuration_lib.MethodConfiguration,
  active: Collection[str],
) -> str:
  """Says why nothing uses a flag, or without what; empty if something does."""
  name, task, runtime = flag.name, general['task'], general['runtime']
  method, info = configuration.method, tasks.info(task)
  needed = general_lib.NEEDS.get(name, ())
  shared = settings_lib.TASK_FLAGS.keys() - settings_lib.shared_flags(task)
  reasons = (
    (
      name in general_lib.OF_CLIENTS and not method.has_clients,
      f': {{algorithm}}={method.name} has no clients',
    ),
    (
      needed and not {*needed} & {*active},
      ' without ' + ' or '.join(f'{{{other}}}' for other in needed),
    ),
    (
      name == 'evaluate_clients_under_dp' and not configuration.private,
      ': the run is not private',
    ),
    (
      name == 'over_selection' and general['asynchronous'],
      ': with {asynchronous} the server always uses the first answers; '
      '{concurrency} sets the number of clients in training',
    ),
    (
      name == 'validation_share' and general['validation_split'] == 'test',
      ': {validation_split}=test holds nothing out',
    ),
    (
      name == 'validation_sample' and general['num_validation_examples'] == -1,
      ': {num_validation_examples}=-1 evaluates on all examples',
    ),
    (
      runtime not in runtime_flags.takers(name),
      f': {{runtime}}={runtime}',
    ),
    (flag.task not in ('', task), f': {{task}}={task}'),
    (name in shared, f': {{task}}={task} has no such option'),
    (
      name == 'cache_dir' and general['data'] == 'synthetic',
      ': synthetic data are generated, not read',
    ),
    (
      name == 'cache_dir' and not (info.files or info.own),
      f': the task {task} reads no file',
    ),
  )
  return next((why for applies, why in reasons if applies), '')


def _check(
  general: dict[str, Any],
  configuration: configuration_lib.MethodConfiguration,
  given: Given,
) -> None:
  """Checks the general flags against the method; fills in defaults.

  Args:
    general: General flags as returned by `_general`; updated in place.
    configuration: The method with its hyperparameters.
    given: The flags that were given.

  Raises:
    ParameterError: If flags and configuration contradict each other.
  """
  private, asynchronous = configuration.private, general['asynchronous']
  rate = configuration.values.get('client_learning_rate')
  tunes = (
    general['finetune_epochs'] and general['finetune_learning_rate'] is None
  )
  fedex = general['lora_rule'] == 'fedex'
  late = (
    '{} cannot be combined with differential privacy: which clients answer in '
    'time depends on their numbers of examples, and cohorts must not depend on '
    'the data.'
  )
  speed = '{} and {client_seconds_per_example} both set the speed of clients.'
  corrects = (
    '{}=fedex corrects the mean of the adapters by what each client sends, but '
  )
  for applies, name, problem in (
    (
      private and general['target_epsilon'] and 'dp_noise_multiplier' in given,
      'target_epsilon',
      '{} and {dp_noise_multiplier} both set the noise; give one of them.',
    ),
    (
      private
      and general['evaluate_clients']
      and not general['evaluate_clients_under_dp'],
      'evaluate_clients',
      '{} records metrics of individual clients, which differential privacy '
      'does not protect; give {evaluate_clients_under_dp} to allow it.',
    ),
    (
      private
      and general['client_dropout']
      and configuration.values['dp_adaptive_clipping']
      and configuration.values['dp_clip_quantile'] != 0.5,
      'client_dropout',
      '{} cannot be combined with {dp_adaptive_clipping} and another '
      '{dp_clip_quantile} than 0.5: clients that drop out count as half above '
      'and half below the norm.',
    ),
    (private and general['over_selection'], 'over_selection', late),
    (private and general['deadline'], 'deadline', late),
    (private and asynchronous, 'asynchronous', late),
    *(
      (general['client_seconds_per_example'] and general[name], name, speed)
      for name in ('client_seconds_per_step', 'client_devices')
    ),
    (
      asynchronous
      and configuration.method.needs_one_version(
        configuration.build('own') or configuration.method.options()
      ),
      'asynchronous',
      '{} cannot be combined with {algorithm}={method}: its server aggregates '
      'measurements at one model, and asynchronous clients start from '
      'different models.',
    ),
    (
      tunes and not rate,
      'finetune_epochs',
      '{} needs {finetune_learning_rate}: the clients of this run have no '
      'learning rate to default to.',
    ),
    (
      fedex and not configuration.method.has_clients,
      'lora_rule',
      f'{corrects}{{algorithm}} has no clients; use lora or ffa.',
    ),
    (
      fedex and asynchronous,
      'lora_rule',
      f'{corrects}with {{asynchronous}} clients start from different models; '
      'use lora or ffa.',
    ),
    (
      fedex
      and configuration.method.has_clients
      and configuration.aggregation.formula,
      'lora_rule',
      f'{corrects}the chosen aggregation hides individual updates from the '
      'server; use lora or ffa.',
    ),
  ):
    if applies:
      raise parameters.ParameterError(
        name, problem, method=configuration.method.name
      )
  _check_epochs(general, configuration, given)
  if tunes:
    general['finetune_learning_rate'] = rate
  for name, needed, value in (
    ('client_test_share', 'evaluate_clients', _CLIENT_TEST_SHARE),
    ('concurrency', 'asynchronous', general['clients_per_round']),
    ('staleness', 'asynchronous', 'polynomial'),
  ):
    if general[needed] and general[name] is None:
      general[name] = value


def _check_epochs(
  general: Given,
  configuration: configuration_lib.MethodConfiguration,
  given: Given,
) -> None:
  """Checks the optimizers' epochs against those of the data."""
  epochs = general['client_epochs_per_round']
  counted = configuration.values.get('local_epochs') or (
    epochs > 1 and ('epochs_mix' in configuration.values)
  )
  for name in ('client_steps_per_round', 'max_elements_per_client'):
    if counted and given.get(name) is not None:
      raise parameters.ParameterError(
        name,
        '{} cannot be combined with local epochs that an optimizer counts, '
        'which it would cut short.',
      )
  mixed = 'epochs_mix' in configuration.values and 'client_epochs' not in given
  for name in ('local_epochs', 'epochs_mix', 'client_epochs'):
    if name not in given and not (name == 'epochs_mix' and mixed):
      continue
    times = value = configuration.values[name]
    if name != 'local_epochs':
      times = configuration.build('client').mix.longest
    if times != epochs:
      raise parameters.ParameterError(
        name,
        '{}={given} needs {times} passes over the client data, but '
        '{client_epochs_per_round} is {epochs}.',
        given=value,
        times=times,
        epochs=epochs,
      )


def _task_options(
  table: flag_table.FlagTable, given: Given, general: Given
) -> dict[str, Any]:
  """Checks the flags of the chosen task and returns its options by name.

  Raises:
    ParameterError: If a flag is not accepted or missing, or if options
      contradict each other.
  """
  task = general['task']
  info = tasks.info(task)
  options = {p.name: p.default for p in tasks.parameters_of(task).values()}
  for name, option in settings_lib.shared_flags(task).items():
    if name in given:
      options[option] = general[name]
  for name in given.keys() & table.task.keys():
    flag = table.task[name]
    options[flag.option] = flag.parameter.check(given[name])
  for option, value in options.items():
    name = settings_lib.flag_of(task, option)
    if value is parameters.REQUIRED:
      raise parameters.ParameterError(
        name,
        '{} must be given: {task}={chosen} has no default for it.',
        chosen=task,
      )
    if option in info.functions and value is not None:
      try:
        tasks.look_up(value)
      except tasks.OwnCodeError as e:
        raise parameters.ParameterError(
          name, '{}={place}: {reason}', place=value, reason=str(e)
        ) from e
  described = info.options
  if described is None:  # A user-defined function checks its own options.
    return options
  try:
    described(**options)
  except parameters.ParameterError as e:
    raise e.renamed(lambda name: settings_lib.flag_of(task, name)) from e
  # Later options at their defaults are no part of the identity.
  return {
    name: value
    for name, value in options.items()
    if name not in described.later
    or value != tasks.parameters_of(task)[name].default
  }
