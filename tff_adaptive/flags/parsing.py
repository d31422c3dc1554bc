"""The flags of the command line: read, and understood.

Nothing here imports TensorFlow: help, lists and every complaint about a flag
come at once.
"""

import dataclasses
import difflib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NoReturn
from typing import Optional

from absl import flags as absl_flags

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import declaration as flag_table
from tff_adaptive.flags import help as flag_help
from tff_adaptive.flags import meaning as flag_meaning
from tff_adaptive.flags import options
from tff_adaptive.flags import presets
from tff_adaptive.flags import settings as settings_lib


class _TextParser(absl_flags.ArgumentParser):
  """Keeps a flag's text: what it may say depends on the other flags."""

  def parse(self, argument: Any) -> Any:
    return argument


class _CheckedParser(absl_flags.ArgumentParser):
  """Reads a flag whose values are known beforehand."""

  def __init__(self, *, parameter: parameters.Parameter):
    self._parameter = parameter

  def parse(self, argument: Any) -> Any:
    return flag_meaning.parse(self._parameter, argument, self._parameter.name)


class Flags:
  """The flags of the command line.

  Attributes:
    values: absl's, for whoever wants to add their own.
  """

  def __init__(self) -> None:
    """Defines all flags."""
    self.values = absl_flags.FlagValues()
    self.values.set_gnu_getopt(True)
    self._table = flag_table.Table()
    for parameter in self._table.independent():
      self._define(parameter.name, parameter, checked=True)
    for flag in self._table.dependent():
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
      said = {self._table.meaning(name) for name in given}
      added = {
        name: text
        for name, text in preset.flags.items()
        if self._table.meaning(name) not in said
      }
      given = self._read([*words(added), *arguments])
    general = {
      parameter.name: given.pop(parameter.name, parameter.default)
      for parameter in self._table.independent()
    }
    try:
      settings = flag_meaning.resolve(self._table, general, given)
    except errors.SettingsError as e:
      for name in added:
        if f'--{name}' in str(e):
          raise errors.SettingsError(
            f'{e} (--{name} is a part of --preset={general["preset"]}.)'
          ) from e
      raise
    return Parsed(settings=settings, dry_run=general['dry_run'], preset=preset)

  def given(self, arguments: Sequence[str]) -> dict[str, str]:
    """The text of each flag on a command line, and in flag files it names.

    Raises:
      SettingsError: If a flag is unknown, or has a value that is wrong
        whatever the others are.
    """
    return {name: str(value) for name, value in self._read(arguments).items()}

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
      told = errors.reason(e).removeprefix('ERROR:: ')
      raise errors.SettingsError(f'{told}.') from e
    # What absl lets through.
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
        'One of the flags has a name of hundreds of letters, which there is '
        'not; see main.py --help.'
      ) from e
    options.refuse_words(rest)
    return {
      name: self.values[name].value
      for name in self.values
      if self.values[name].present
    }

  def _unknown(self, name: str) -> NoReturn:
    close = difflib.get_close_matches(name, list(self.values), n=3)
    hint = (
      'similar ones are ' + ', '.join(f'--{c}' for c in close)
      if close
      else 'see main.py --help'
    )
    raise errors.SettingsError(f'There is no flag --{name}; {hint}.')

  def help(self) -> str:
    """The flags that most people need, by group."""
    return flag_help.usual(self._table)

  def help_full(self) -> str:
    """All flags."""
    return flag_help.full(self._table)


def words(flags: Mapping[str, str]) -> list[str]:
  """Flags as arguments of a command line."""
  return [f'--{name}={text}' for name, text in flags.items()]


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
