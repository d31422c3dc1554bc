"""All flags of the command line, and what they come to.

Nothing here imports TensorFlow: help, lists and every complaint about a flag
come at once. The flags of tasks, algorithms and optimizers are read from the
signatures of what they configure, so that no name or default stands twice.
"""

import dataclasses
import difflib
import re
import textwrap
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import NoReturn
from typing import Optional

from absl import flags as absl_flags

import tasks
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import privacy
from tff_adaptive import runtime
from tff_adaptive.experiment import errors
from tff_adaptive.experiment import methods
from tff_adaptive.experiment import presets
from tff_adaptive.experiment import settings as settings_lib

_SIDES = ('client', 'server')
# What the product does when nothing is said.
_DEFAULT_TASK = 'digits'
_DEFAULT_OPTIMIZER = {'client': 'delta_sgd', 'server': 'adam'}
# Which algorithm a server optimizer makes.
_ALGORITHM_OF = {
  'adagrad': 'fedadagrad',
  'adam': 'fedadam',
  'ams': 'fedams',
  'sgd': 'fedavg',
  'yogi': 'fedyogi',
}


def runtimes() -> list[str]:
  """The execution contexts that there are, the default first."""
  return [
    name
    for name in ('in_process', 'native', 'remote')
    if hasattr(runtime, f'set_{name}_context')
  ]


# General flags that only the full help shows.
_RARE = ('dp_sampling', 'dp_accounting', 'client_states', 'client_state_mib')

_Seed32 = parameters.Annotated[int, parameters.Range(low=0, high=2**32 - 1)]
_Examples = parameters.Annotated[int, parameters.Range(low=-1)]


def _general() -> dict[str, list[parameters.Parameter]]:
  """The flags that do not depend on a task, an algorithm or an optimizer.

  A default of `None` means that something else decides when the flag is not
  given; it is no value that one could write.
  """
  flag = parameters.Parameter
  names = Literal.__getitem__  # A Literal made of names known at run time.
  return {
    'What to train': [
      flag(
        'preset',
        str,
        None,
        'Published settings, PAPER/TASK/METHOD (main.py list names them); '
        'flags given beside it override its own.',
      ),
      flag(
        'task',
        names(tuple(tasks.names())),
        _DEFAULT_TASK,
        'Data, model, preprocessing and metrics.',
      ),
      flag(
        'algorithm',
        names(tuple(methods.names())),
        None,
        'The method; unless given, the two optimizers decide it.',
      ),
      flag(
        'client_optimizer',
        names(tuple(optimizers.client_names())),
        None,
        'What clients train with; delta_sgd unless the algorithm says '
        'otherwise.',
      ),
      flag(
        'server_optimizer',
        names(tuple(optimizers.server_names())),
        None,
        'What the server applies updates with; adam unless the '
        'algorithm says otherwise.',
      ),
    ],
    'How long, and on whom': [
      flag('total_rounds', parameters.Count, 200, 'Rounds of training.'),
      flag(
        'clients_per_round',
        parameters.Count,
        10,
        'Clients that take part in a round.',
      ),
      flag(
        'client_epochs_per_round',
        parameters.Count,
        1,
        'Passes of a client over its examples in a round.',
      ),
      flag(
        'client_batch_size',
        parameters.Count,
        None,
        "Examples in a client's batch; the task's own unless given.",
      ),
      flag(
        'max_elements_per_client',
        parameters.Count,
        None,
        'Most examples of a client in a round; all unless given.',
      ),
      flag(
        'client_datasets_random_seed',
        _Seed32,
        1,
        'Decides which clients take part, as in the reference.',
      ),
      flag(
        'seed',
        parameters.NonNegativeInt,
        0,
        'Decides everything else that is random.',
      ),
    ],
    'Privacy (with --dp_clip_norm and --dp_noise_multiplier)': [
      flag(
        'target_epsilon',
        parameters.Positive,
        None,
        'Find the noise multiplier that keeps the run within this epsilon, in '
        'place of --dp_noise_multiplier.',
      ),
      flag(
        'dp_delta',
        parameters.Annotated[
          float, parameters.Range(0, 1, open_low=True, open_high=True)
        ],
        None,
        'The delta that epsilon is stated at; 1 / clients^1.1 unless given.',
      ),
      flag(
        'dp_sampling',
        Literal['fixed', 'poisson'],
        'fixed',
        'How cohorts are taken to be drawn: as they are, or independently '
        'client by client, as papers account.',
      ),
      flag(
        'dp_accounting',
        Literal['pld', 'rdp'],
        'pld',
        'By privacy loss distributions or Renyi orders.',
      ),
    ],
    'Looking at it': [
      flag(
        'rounds_per_eval',
        parameters.Count,
        10,
        'Rounds from one evaluation to the next.',
      ),
      flag(
        'num_validation_examples',
        _Examples,
        10_000,
        'Examples of the test split to evaluate on during training; '
        '-1 for all. The whole split is used once, at the end.',
      ),
      flag(
        'rounds_per_checkpoint',
        parameters.Count,
        50,
        'Rounds from one checkpoint to the next.',
      ),
      flag(
        'experiment_name',
        str,
        None,
        "Name of the run's folder; made from the settings unless given.",
      ),
      flag('root_output_dir', str, 'runs', 'Where runs have their folders.'),
      flag(
        'dry_run',
        bool,
        False,
        'Print the resolved experiment and train nothing.',
      ),
    ],
    'Data and machine': [
      flag('cache_dir', str, None, "Folder with the task's data files."),
      flag(
        'data',
        Literal['native', 'synthetic'],
        'native',
        "The task's own data, or small made-up data of the same shapes.",
      ),
      flag(
        'runtime',
        names(tuple(runtimes())),
        runtimes()[0],
        'What runs the computations.',
      ),
      flag(
        'worker_addresses',
        str,
        None,
        'Workers of the remote runtime: host:port, several with commas '
        'between.',
      ),
      flag(
        'max_concurrent_clients',
        parameters.Count,
        None,
        'Clients that are trained at once; the runtime decides unless given. '
        'It changes no result.',
      ),
      flag(
        'cache_mib',
        parameters.NonNegativeInt,
        2048,
        'Memory for decoded examples, in MiB.',
      ),
      flag(
        'client_states',
        Literal['auto', 'memory', 'disk'],
        'auto',
        'Where what clients keep between rounds is (scaffold, moon): in memory '
        "if it fits, else in a file in the run's folder.",
      ),
      flag(
        'client_state_mib',
        parameters.NonNegativeInt,
        2048,
        'Memory for it, in MiB.',
      ),
    ],
  }


class _TextParser(absl_flags.ArgumentParser):
  """Keeps a flag's text: what it may say depends on the other flags."""

  def parse(self, argument):
    return argument


class _CheckedParser(absl_flags.ArgumentParser):
  """Reads a flag whose values are known beforehand."""

  def __init__(self, *, parameter: parameters.Parameter):
    self._parameter = parameter

  def parse(self, argument):
    return _parse(self._parameter, argument, self._parameter.name)


def _parse(parameter: parameters.Parameter, text: str, flag: str) -> Any:
  try:
    return parameter.parse(text, name=f'--{flag}')
  except parameters.ParameterError as e:
    # Not a ValueError, which absl would put words in front of.
    raise errors.SettingsError(str(e)) from e


@dataclasses.dataclass(frozen=True)
class _Flag:
  """A flag whose meaning depends on what is chosen.

  Attributes:
    name: Without the dashes.
    parameter: Of one of those that it configures; for its help.
    public: The hyperparameter of `algorithms.build` or option of
      `tasks.create` that it sets.
    owner: The kind and name of the only thing that it configures, if there is
      just one: ('client', 'adam'), ('task', 'digits').
  """

  name: str
  parameter: parameters.Parameter
  public: str
  owner: Optional[tuple[str, str]] = None


def _algorithm_flags() -> dict[str, _Flag]:
  """A flag for every hyperparameter of any algorithm, by its public name."""
  found: dict[str, parameters.Parameter] = {}
  for name in methods.names():
    for public, parameter in methods.parameters_of(name).items():
      found.setdefault(public, parameter)
  for side in _SIDES:
    for name in getattr(optimizers, f'{side}_names')():
      for argument, parameter in optimizers.parameters_of(side, name).items():
        found.setdefault(optimizers.public_name(side, argument), parameter)
  found.pop('seed')  # One --seed decides that of the algorithm too.
  found.pop('dp_clients_per_round')  # As --clients_per_round.
  return {
    public: _Flag(public, parameter, public)
    for public, parameter in found.items()
  }


def _optimizer_flags() -> dict[str, _Flag]:
  """--{side}_{optimizer}_{argument}, as in the reference."""
  result = {}
  for side in _SIDES:
    for name in getattr(optimizers, f'{side}_names')():
      for argument, parameter in optimizers.parameters_of(side, name).items():
        if argument != 'learning_rate':
          flag = f'{side}_{name}_{argument}'
          public = optimizers.public_name(side, argument)
          result[flag] = _Flag(flag, parameter, public, (side, name))
  return result


def _task_flags() -> dict[str, _Flag]:
  """--{task}_{argument} for what only that task takes."""
  common = {*settings_lib.TASK_FLAGS.values(), 'cache_dir'}
  result = {}
  for task in tasks.names():
    for argument, parameter in tasks.parameters_of(task).items():
      if argument not in common:
        flag = f'{task}_{argument}'
        result[flag] = _Flag(flag, parameter, argument, ('task', task))
  return result


class Flags:
  """The flags of the command line.

  Attributes:
    values: absl's, for whoever wants to add their own.
  """

  def __init__(self):
    """Defines all flags."""
    self.values = absl_flags.FlagValues()
    self.values.set_gnu_getopt(True)
    self._general = _general()
    self._algorithm = _algorithm_flags()
    self._optimizer = _optimizer_flags()
    self._task = _task_flags()
    for group in self._general.values():
      for parameter in group:
        self._define(parameter.name, parameter, checked=True)
    for flag in (
      *self._algorithm.values(),
      *self._optimizer.values(),
      *self._task.values(),
    ):
      self._define(flag.name, flag.parameter, checked=False)

  def _define(
    self, name: str, parameter: parameters.Parameter, checked: bool
  ) -> None:
    if checked:
      parser = _CheckedParser(parameter=parameter)
    else:
      parser = _TextParser()
    if parameter.kind is bool:
      flag = absl_flags.BooleanFlag(name, None, parameter.help)
      flag.parser = parser  # So that `--name`, `--noname`, `--name=...` work.
    else:
      flag = absl_flags.Flag(
        parser, absl_flags.ArgumentSerializer(), name, None, parameter.help
      )
    absl_flags.DEFINE_flag(flag, self.values)

  def parse(self, arguments: Sequence[str]) -> 'Parsed':
    """Reads a command line.

    Args:
      arguments: Without the program's name and the command.

    Raises:
      SettingsError: In one sentence, what is wrong.
    """
    given = self._read(arguments)
    added: dict[str, str] = {}
    preset = None
    if given.get('preset') is not None:
      preset = presets.load(given['preset'])
      said = {self._meaning(name) for name in given}
      added = {
        name: text
        for name, text in preset.flags.items()
        if self._meaning(name) not in said
      }
      given = self._read(
        [*(f'--{k}={v}' for k, v in added.items()), *arguments]
      )
    general = {}
    for group in self._general.values():
      for parameter in group:
        general[parameter.name] = given.pop(parameter.name, parameter.default)
    try:
      settings = self._resolve(general, given)
    except errors.SettingsError as e:
      for name in added:
        if f'--{name}' in str(e):
          raise errors.SettingsError(
            f'{e} (--{name} is a part of --preset={general["preset"]}.)'
          ) from e
      raise
    return Parsed(settings=settings, dry_run=general['dry_run'], preset=preset)

  def _read(self, arguments: Sequence[str]) -> dict[str, Any]:
    """The flags given, by name, those that depend on others as text."""
    self.values.unparse_flags()
    for name in self.values:
      self.values[name].unparse()
    try:
      rest = self.values(['main.py', *arguments])[1:]
    except absl_flags.UnrecognizedFlagError as e:
      self._unknown(e.flagname)
    except absl_flags.Error as e:
      raise errors.SettingsError(f'{str(e).rstrip(".")}.') from e
    if rest:
      raise errors.SettingsError(
        f'{rest[0]!r} is not a flag; flags are written --name=value.'
      )
    return {
      name: self.values[name].value
      for name in self.values
      if self.values[name].present
    }

  def _meaning(self, name: str) -> str:
    """What a flag sets: two flags may set the same hyperparameter."""
    flag = self._optimizer.get(name) or self._algorithm.get(name)
    return name if flag is None else flag.public

  def _unknown(self, name: str) -> NoReturn:
    close = difflib.get_close_matches(name, list(self.values), n=3)
    hint = (
      'similar ones are ' + ', '.join(f'--{c}' for c in close)
      if close
      else 'see main.py --help'
    )
    raise errors.SettingsError(f'There is no flag --{name}; {hint}.')

  def _resolve(
    self, general: Mapping[str, Any], given: Mapping[str, str]
  ) -> settings_lib.Settings:
    """Puts the flags together and refuses those that nothing would look at."""
    algorithm = self._choose_algorithm(general, given)
    optimizer = {side: general[f'{side}_optimizer'] for side in _SIDES}
    if general['algorithm'] is None and optimizer['client'] is None:
      optimizer['client'] = _DEFAULT_OPTIMIZER['client']
    try:
      accepted = dict(
        methods.parameters_of(
          algorithm, optimizer['client'], optimizer['server']
        )
      )
    except parameters.ParameterError as e:
      raise errors.SettingsError(_flagged(str(e))) from e
    accepted.pop('seed')
    accepted.pop('dp_clients_per_round')
    for side in _SIDES:
      own = methods.own_optimizer(algorithm, side)
      optimizer[side] = optimizer[side] or own
    hyperparameters = self._hyperparameters(
      given, algorithm, optimizer, accepted, general
    )
    task = general['task']
    options = self._task_options(given, task, general)
    examples = general['num_validation_examples']
    if examples == 0:
      raise errors.SettingsError(
        '--num_validation_examples must be -1 for all or at least 1, got 0.'
      )
    name = general['experiment_name']
    if name is not None and not re.fullmatch(r'(?!\.)[^/\\\0]+', name):
      raise errors.SettingsError(
        '--experiment_name must be the name of one folder, without slashes '
        f'and not starting with a dot, got {name!r}.'
      )
    if not general['root_output_dir']:
      raise errors.SettingsError(
        "--root_output_dir must name a folder, got ''."
      )
    return settings_lib.Settings(
      task=task,
      task_options=options,
      algorithm=algorithm,
      client_optimizer=optimizer['client'],
      server_optimizer=optimizer['server'],
      hyperparameters=hyperparameters,
      num_validation_examples=None if examples == -1 else examples,
      experiment_name=name,
      runtime_options=_runtime_options(general),
      **{
        key: general[key]
        for key in (
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
          'root_output_dir',
        )
      },
    )

  def _choose_algorithm(
    self, general: Mapping[str, Any], given: Mapping[str, str]
  ) -> str:
    if general['algorithm'] is not None:
      return general['algorithm']
    server = general['server_optimizer'] or _DEFAULT_OPTIMIZER['server']
    # Plain averaging has no momentum; asking for it asks for fedavgm.
    if server == 'sgd' and {'momentum', 'server_sgd_momentum'} & set(given):
      return 'fedavgm'
    return _ALGORITHM_OF[server]

  def _hyperparameters(
    self,
    given: Mapping[str, str],
    algorithm: str,
    optimizer: Mapping[str, str],
    accepted: Mapping[str, parameters.Parameter],
    general: Mapping[str, Any],
  ) -> dict[str, Any]:
    """The hyperparameters of `algorithms.build`, defaults resolved."""
    values: dict[str, Any] = {}
    source: dict[str, str] = {}
    for name, text in given.items():
      flag = self._optimizer.get(name) or self._algorithm.get(name)
      if flag is None:
        continue
      # A value that nobody accepts is the plainer mistake.
      _parse(flag.parameter, text, name)
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
      values[flag.public] = _parse(accepted[flag.public], text, name)
    for side in _SIDES:
      # The decay in steps is stated in shares of the whole run.
      if values.get(f'{side}_lr_schedule') == 'step_decay':
        values.setdefault(f'{side}_lr_decay_steps', general['total_rounds'])
    self._check_privacy(general, values)
    if privacy.is_asked(values):
      values['dp_clients_per_round'] = general['clients_per_round']
      if 'client_weighting' in accepted:
        values.setdefault('client_weighting', 'uniform')
    try:
      methods.check(
        algorithm,
        client_optimizer=optimizer['client'],
        server_optimizer=optimizer['server'],
        **values,
      )
    except parameters.ParameterError as e:
      raise errors.SettingsError(_flagged(str(e))) from e
    return {
      name: values.get(name, parameter.default)
      for name, parameter in accepted.items()
    } | {'dp_clients_per_round': values.get('dp_clients_per_round')}

  def _check_privacy(
    self, general: Mapping[str, Any], values: Mapping[str, Any]
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
    self, given: Mapping[str, str], task: str, general: Mapping[str, Any]
  ) -> dict[str, Any]:
    accepted = tasks.parameters_of(task)
    options = {}
    for name, text in given.items():
      flag = self._task.get(name)
      if flag is None:
        continue
      if flag.owner != ('task', task):
        raise errors.SettingsError(
          f'--{name}={text} would be ignored: --task={task}.'
        )
      options[flag.public] = _parse(accepted[flag.public], text, name)
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

  def help(self) -> str:
    """The flags that most people need, by group."""
    lines = []
    for title, group in self._general.items():
      lines.append(f'{title}:')
      for parameter in group:
        if parameter.name not in _RARE:
          lines.extend(_entry(parameter.name, parameter, parameter.default))
    lines.append('Hyperparameters (main.py list says who takes which):')
    for name in (
      'client_learning_rate',
      'server_learning_rate',
      'client_lr_schedule',
      'server_lr_schedule',
      'client_weighting',
      'proximal_strength',
      'aggregator',
      'dp_clip_norm',
      'dp_noise_multiplier',
    ):
      lines.extend(_entry(name, self._algorithm[name].parameter))
    lines.append(
      '  --client_{optimizer}_{argument}, '
      '--server_{optimizer}_{argument}, --{task}_{argument}'
    )
    lines.append('      Such as --server_adam_beta_1 and --digits_alpha.')
    lines.append('')
    lines.append(
      '--flagfile=FILE reads flags from a file; --helpfull lists all of them.'
    )
    return '\n'.join(lines)

  def help_full(self) -> str:
    """All flags."""
    lines = [self.help(), '', 'Less often needed:']
    for group in self._general.values():
      for parameter in group:
        if parameter.name in _RARE:
          lines.extend(_entry(parameter.name, parameter, parameter.default))
    lines += ['', 'All hyperparameters:']
    for table, title in (
      (self._algorithm, None),
      (self._optimizer, 'Of one optimizer only:'),
      (self._task, 'Of one task only:'),
    ):
      if title:
        lines.append(title)
      for flag in sorted(table.values(), key=lambda f: f.name):
        default = ... if flag.owner is None else flag.parameter.default
        lines.extend(_entry(flag.name, flag.parameter, default))
    return '\n'.join(lines)


def _entry(
  name: str, parameter: parameters.Parameter, default: Any = ...
) -> list[str]:
  """A flag's lines in the help."""
  lines = [f'  --{name}']
  if parameter.choices is not None:
    lines[0] += '={' + ','.join(parameter.choices) + '}'
  text = parameter.help
  unsaid = (None, ..., False, parameters.REQUIRED)
  if not any(default is value for value in unsaid):
    text = f'{text} Default: {default}.'
  lines.extend(
    textwrap.wrap(text, 76, initial_indent=' ' * 6, subsequent_indent=' ' * 6)
  )
  return lines


def _runtime_options(general: Mapping[str, Any]) -> dict[str, Any]:
  """What the chosen execution context is made with."""
  chosen = general['runtime']
  remote = {'worker_addresses': 'addresses'}
  here = {'max_concurrent_clients': 'max_concurrent_clients'}
  used = remote if chosen == 'remote' else here
  for flag in (*remote, *here):
    if flag not in used and general[flag] is not None:
      raise errors.SettingsError(
        f'--{flag}={general[flag]} would be ignored: --runtime={chosen}.'
      )
  options = {
    option: general[flag]
    for flag, option in used.items()
    if general[flag] is not None
  }
  if chosen == 'remote':
    addresses = options.get('addresses', '')
    options['addresses'] = addresses.split(',')
    for address in options['addresses']:
      if not re.fullmatch(r'(\[[\da-fA-F:]+\]|[^\s:\[\]]+):\d{1,5}', address):
        raise errors.SettingsError(
          '--runtime=remote needs --worker_addresses, host:port of each '
          f'worker with commas between, got {addresses!r}.'
        )
  return options


def _flagged(message: str) -> str:
  """A message about keyword arguments, said of flags."""
  message = re.sub(r'`(\w+)`', r'--\1', message)
  return re.sub(r'(?<![-\w])((?:client|server)_lr_\w+)', r'--\1', message)


@dataclasses.dataclass(frozen=True)
class Parsed:
  """A command line, understood.

  Attributes:
    settings: The experiment.
    dry_run: Whether to print it instead of running it.
    preset: The preset that it starts from, if any.
  """

  settings: settings_lib.Settings
  dry_run: bool
  preset: Optional[presets.Preset] = None
