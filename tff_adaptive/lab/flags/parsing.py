"""Parsing of the command line with absl.

This module imports no TensorFlow, so that help, listings and errors about flags
are immediate.
"""

import dataclasses
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

from absl import flags as absl_flags

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import help as flag_help
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.flags import resolving
from tff_adaptive.lab.flags import settings as settings_lib

_DRY_RUN = parameters.Parameter(
  'dry_run', bool, False, 'Print the resolved experiment without training.'
)
# Flags that may be given several times; their texts are joined by commas.
_REPEATED = frozenset({'lora_also_train', 'lora_targets', 'freeze', 'record'})


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


class Flags:
  """The flags of the command line.

  Attributes:
    values: absl's flag values, to which callers may add flags.
  """

  def __init__(self) -> None:
    """Defines all flags."""
    self.values = absl_flags.FlagValues()
    self.values.set_gnu_getopt(True)
    self._table = flag_table.FlagTable(_DRY_RUN)
    for flag in self._table.flags.values():
      self._define(flag)

  def know(self, *tasks: Any) -> None:
    """Adds the flags of users' own tasks; see `FlagTable.know`.

    Raises:
      SettingsError: If a task's function does not exist, or a name is taken.
    """
    for task in tasks:
      try:
        added = self._table.know(task)
      except parameters.ParameterError as e:
        raise options.refusal(e) from e
      for flag in added:
        self._define(flag)

  def kind(self, name: str) -> type:
    """Returns the type of a flag's values."""
    return self._table.find(name).parameter.kind

  def _define(self, flag: flag_table.Flag) -> None:
    """Defines a flag whose value is unparsed text.

    Parsing it may depend on other flags.
    """
    name, text = flag.name, flag.parameter.help
    parser = absl_flags.ArgumentParser[str]()
    serializer = absl_flags.ArgumentSerializer[str]()
    defined: absl_flags.Flag
    if flag.parameter.kind is bool:
      defined = absl_flags.BooleanFlag(name, None, text)
      # Accepts `--name`, `--noname` and `--name=...`.
      defined.parser = parser
    else:
      several = name in _REPEATED
      kind = absl_flags.MultiFlag if several else absl_flags.Flag
      defined = kind(parser, serializer, name, None, text)
    absl_flags.DEFINE_flag(defined, self.values)

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
      settings = resolving.resolve(self._table, given)
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
    try:
      # The set of flags depends on the task.
      arguments = self.values.read_flags_from_files(list(arguments), True)
      self.know(*tasks_named(arguments))
      self.values.unparse_flags()
      for name in self.values:
        self.values[name].unparse()
      rest = self.values(['main.py', *arguments])[1:]
    except absl_flags.UnrecognizedFlagError as e:
      raise options.refusal(self._table.unknown(e.flagname)) from e
    except absl_flags.Error as e:
      message = errors.reason(e).removeprefix('ERROR:: ')
      raise errors.SettingsError(f'{message}.') from e
    # Errors that absl does not convert.
    except (OSError, UnicodeDecodeError) as e:
      raise errors.SettingsError(
        f'The file that --flagfile names cannot be read as text: {e}.'
      ) from e
    except ValueError as e:  # `--nodry_run=3`, a file's name with a NUL.
      raise errors.SettingsError(
        f'The flags cannot be read: {errors.reason(e)}.'
      ) from e
    except RecursionError as e:  # absl compares names letter by letter.
      raise errors.SettingsError(
        'One of the flag names has hundreds of letters, and no flag has; see '
        'main.py --help.'
      ) from e
    options.refuse_words(rest)
    return {
      name: _text(self.values[name].value)
      for name in self.values
      if self.values[name].present
    }

  def help(self, full: bool = False) -> str:
    """Renders the flags that most users need, or all of them."""
    return (flag_help.full if full else flag_help.usual)(self._table)


def tasks_named(arguments: Sequence[str]) -> list[str]:
  """Returns the values of --task on a command line."""
  named = []
  for place, word in enumerate(arguments):
    if word == '--':
      break
    match = re.fullmatch('--?task(?:=(.*))?', word, re.DOTALL)
    if match and match.group(1) is not None:
      named.append(match.group(1))
    elif match:
      named += arguments[place + 1 : place + 2]
  return named


def _text(value: Any) -> str:
  return ','.join(value) if isinstance(value, list) else str(value)


def words(flags: Mapping[str, str]) -> list[str]:
  """Formats flags as arguments of a command line."""
  return [f'--{name}={text}' for name, text in flags.items()]
