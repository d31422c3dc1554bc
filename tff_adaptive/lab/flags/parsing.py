"""Parsing of the command line with absl, and its help.

This module imports no TensorFlow, so that help, listings and errors about flags
are immediate.
"""

import dataclasses
import itertools
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import resolving
from tff_adaptive.lab.flags import settings as settings_lib

_DRY_RUN = parameters.Parameter(
  'dry_run', bool, False, 'Print the resolved experiment without training.'
)
# Flags that may be given several times; their texts are joined by commas.
_REPEATED = frozenset({'lora_also_train', 'lora_targets', 'freeze', 'trackers'})


@dataclasses.dataclass(frozen=True)
class Parsed:
  """A parsed command line.

  Attributes:
    settings: The settings of the run.
    dry_run: Whether to print the settings instead of running them.
    preset: The preset that they are based on, if any.
  """

  settings: settings_lib.Settings
  dry_run: bool
  preset: Optional[presets.Preset] = None


class Flags(options.Options):
  """The flags of a run."""

  def __init__(self) -> None:
    """Declares the flags of all methods and of the program's own tasks."""
    super().__init__()
    try:
      self._table = flag_table.FlagTable(_DRY_RUN)
    except parameters.ParameterError as e:  # Of an extension's declaration.
      raise options.refusal(e) from e
    self._declare(self._table.flags.values())

  def _declare(self, flags: Iterable[flag_table.Flag]) -> None:
    for flag in flags:
      self._define(flag.parameter, repeated=flag.name in _REPEATED)

  def know(self, *tasks: Any) -> None:
    """Adds the flags of users' own tasks; see `FlagTable.know`.

    Raises:
      SettingsError: If a task's function does not exist, or a name is taken.
    """
    for task in tasks:
      try:
        self._declare(self._table.know(task))
      except parameters.ParameterError as e:
        raise options.refusal(e) from e

  def kind(self, name: str) -> type:
    """Returns the type of a flag's values."""
    return self._table.find(name).parameter.kind

  def tunes(self, name: str) -> bool:
    """Returns whether a flag is a hyperparameter of methods or optimizers."""
    return name in self._table.algorithm

  def parse(self, arguments: Sequence[str]) -> Parsed:
    """Parses a command line.

    Args:
      arguments: The arguments without the names of program and command.

    Raises:
      SettingsError: If a flag is not accepted; the message is one sentence.
    """
    return self.resolve(self.given(arguments))

  def resolve(self, texts: Mapping[str, str]) -> Parsed:
    """Resolves flags, given as text by name.

    Raises:
      SettingsError: If a flag is not accepted; the message is one sentence.
    """
    self.know(texts.get('task'))
    given: Mapping[str, Any] = {}
    typed: dict[str, Any] = {}
    preset = None
    try:
      for name, text in texts.items():
        typed[name] = self._table.find(name).parameter.read(text)
      dry_run = _DRY_RUN.check(typed.pop('dry_run', _DRY_RUN.default))
      given, preset = resolving.with_preset(self._table, typed)
      settings = resolving.resolve_preset(self._table, given, typed)
    except parameters.ParameterError as e:
      refusal = options.refusal(e)
      added = [name for name in e.names if name in given and name not in typed]
      if added and preset is not None:
        raise errors.SettingsError(
          f'{refusal} (--{added[0]} is set by --preset={preset.name}.)'
        ) from e
      raise refusal from e
    return Parsed(settings=settings, dry_run=dry_run, preset=preset)

  def given(self, arguments: Sequence[str]) -> dict[str, str]:
    """Returns the text of each flag on a command line and in its flag files.

    Raises:
      SettingsError: If a flag is unknown or has no value.
    """
    arguments = self.expand(arguments)
    self.know(*tasks_named(arguments))  # The set of flags depends on the task.
    texts, words = self.texts(arguments)
    self.refuse_unknown(words)
    if words:
      raise errors.SettingsError(
        f'{words[0]!r} is not a flag; flags are written --name=value.'
      )
    return {
      name: ','.join(text) if isinstance(text, list) else str(text)
      for name, text in texts.items()
    }

  def unknown(self, name: str) -> parameters.ParameterError:
    """Builds the error about an unknown flag."""
    return self._table.unknown(name)

  def help(self, full: bool = False) -> str:
    """Renders the flags that most users need, or all of them."""
    return (_all_flags if full else _usual_flags)(self._table)

  def help_of_task(self, task: str) -> str:
    """Renders the flags of a task.

    Raises:
      ParameterError: If there is no such task.
    """
    resolving.check_task(task)
    self.know(task)
    return _flags_of_task(self._table, task)


def tasks_named(arguments: Sequence[str]) -> list[str]:
  """Returns the values of --task on a command line."""
  named = []
  for word, after in itertools.pairwise([*arguments, '']):
    if match := re.fullmatch('--?task(=.*)?', word, re.DOTALL):
      named.append(match[1][1:] if match[1] else after)
  return named


# General flags of the short help; the full help shows the others.
_SECTIONS = {
  'What to train:': (
    'preset',
    'task',
    'algorithm',
    'client_optimizer',
    'server_optimizer',
  ),
  'Training:': (
    'total_rounds',
    'clients_per_round',
    'client_epochs_per_round',
    'client_batch_size',
    'max_elements_per_client',
    'client_datasets_random_seed',
    'seed',
  ),
  'Privacy (with --dp_clip_norm and --dp_noise_multiplier):': (
    'target_epsilon',
    'dp_delta',
  ),
  'Evaluation and output:': (
    'rounds_per_eval',
    'validation_split',
    'num_validation_examples',
    'rounds_per_checkpoint',
    'experiment_name',
    'root_output_dir',
  ),
  'Data and machine:': (
    'cache_dir',
    'data',
    'cache_mib',
    'runtime',
    'max_concurrent_clients',
    'ray_address',
    'dry_run',
  ),
}
# Takers of a hyperparameter are listed by name up to this many.
_MOST_TAKERS = 8
# Hyperparameters of the short help.
_USUAL = (
  'client_learning_rate',
  'server_learning_rate',
  'client_lr_schedule',
  'server_lr_schedule',
  'client_weighting',
  'proximal_strength',
  'aggregator',
  'dp_clip_norm',
  'dp_noise_multiplier',
)


def _usual_flags(table: flag_table.FlagTable) -> str:
  """Renders the flags that most users need, by group."""
  groups = {
    title: [table.general[name].parameter for name in names]
    for title, names in _SECTIONS.items()
  }
  title = 'Hyperparameters (main.py list shows which method takes which):'
  groups[title] = [_shared(table.algorithm[name]) for name in _USUAL]
  return (
    f'{options.render(groups)}\n\n'
    '--task=TASK --help lists the flags of a task too, --helpfull all flags;\n'
    '--flagfile=FILE reads flags from a file.'
  )


def _all_flags(table: flag_table.FlagTable) -> str:
  """Renders all flags."""
  shown = {name for names in _SECTIONS.values() for name in names}
  advanced = [f for name, f in table.general.items() if name not in shown]
  groups = {
    '\nAdvanced:': [flag.parameter for flag in advanced],
    '\nAll hyperparameters:': [
      _by_taker(flag) for _, flag in sorted(table.algorithm.items())
    ],
    '\nSpecific to one task:': [
      flag.parameter for _, flag in sorted(table.task.items())
    ],
  }
  return f'{_usual_flags(table)}\n{options.render(groups)}'


def _flags_of_task(table: flag_table.FlagTable, task: str) -> str:
  """Renders the flags of a task."""
  own = [f.parameter for f in table.flags.values() if f.task == task]
  return options.render({f'\nOf --task={task}:': own})


def _shared(flag: flag_table.Flag) -> parameters.Parameter:
  """Returns a flag's parameter without its default, which takers set.

  Its text is that of most takers.
  """
  text = statistics.mode(parameter.help for _, parameter in flag.takers)
  return flag.parameter.named(flag.name, default=None, help=text)


def _by_taker(flag: flag_table.Flag) -> parameters.Parameter:
  """Returns a flag's parameter with a text for each taker, if texts differ."""
  meanings: dict[str, dict[str, Any]] = {}
  for taker, parameter in flag.takers:
    meanings.setdefault(parameter.help, {})[taker] = parameter.default
  if len(meanings) < 2:
    return _shared(flag)
  texts = []
  for text, takers in meanings.items():
    several = len(takers) > _MOST_TAKERS
    who = 'the other methods' if several else ', '.join(takers)
    defaults = [*dict.fromkeys(takers.values())]
    default = options.default_of(defaults[0]) if len(defaults) == 1 else ''
    texts.append(f'{who}: {text}{default}')
  return flag.parameter.named(flag.name, default=None, help='\n'.join(texts))
