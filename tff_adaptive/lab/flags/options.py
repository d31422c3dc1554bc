"""Parsing of a command's own flags, and their help."""

import difflib
import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from absl import flags as absl_flags

from tff_adaptive import errors
from tff_adaptive import parameters


def refusal(error: parameters.ParameterError) -> errors.SettingsError:
  """Converts an error about a hyperparameter to one about its flag."""
  return errors.SettingsError(error.told(lambda name: f'--{name}'))


def default_of(value: Any) -> str:
  """Describes a default; empty for one that says nothing."""
  if any(value is none for none in (None, False, '', parameters.REQUIRED)):
    return ''
  return f' Default: {value}.'


def render(groups: Mapping[str, Iterable[parameters.Parameter]]) -> str:
  """Renders the help of flags, by title; without a title, '' stands for it."""
  lines = []
  for title, flags in groups.items():
    lines += [title] if title else []
    for flag in flags:
      choices = '' if flag.choices is None else f'={{{",".join(flag.choices)}}}'
      lines.append(f'  --{flag.name}{choices}')
      for text in f'{flag.help}{default_of(flag.default)}'.split('\n'):
        lines += textwrap.wrap(
          text, 76, initial_indent=' ' * 6, subsequent_indent=' ' * 6
        )
  return '\n'.join(lines)


class Options:
  """Flags of a command, parsed by absl; values stay text until checked.

  Attributes:
    values: absl's flag values.
  """

  def __init__(
    self,
    *declared: parameters.Parameter,
    repeated: Sequence[parameters.Parameter] = (),
  ):
    """Declares the flags.

    Args:
      *declared: Flags with one value; the last one given counts.
      repeated: Flags that may be given several times; their value is a list.
    """
    self.values = absl_flags.FlagValues()
    self.values.set_gnu_getopt(True)
    self._declared: dict[str, parameters.Parameter] = {}
    for parameter in repeated:
      self._define(parameter, repeated=True)
    for parameter in declared:
      self._define(parameter)

  def _define(
    self, parameter: parameters.Parameter, repeated: bool = False
  ) -> None:
    self._declared[parameter.name] = parameter
    parser = absl_flags.ArgumentParser[str]()
    serializer = absl_flags.ArgumentSerializer[str]()
    flag: absl_flags.Flag
    if parameter.kind is bool:
      flag = absl_flags.BooleanFlag(parameter.name, None, parameter.help)
      # Accepts `--name`, `--noname` and `--name=...`.
      flag.parser = parser
    else:
      kind = absl_flags.MultiFlag if repeated else absl_flags.Flag
      flag = kind(parser, serializer, parameter.name, None, parameter.help)
    absl_flags.DEFINE_flag(flag, self.values)

  def expand(self, arguments: Sequence[str]) -> list[str]:
    """Replaces each --flagfile by the flags in its file.

    Raises:
      SettingsError: If a file cannot be read as text.
    """
    try:
      return self.values.read_flags_from_files(list(arguments), True)
    except (absl_flags.Error, OSError, ValueError) as e:
      raise errors.SettingsError(
        f'The file that --flagfile names cannot be read as text: '
        f'{errors.reason(e)}.'
      ) from e

  def texts(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the texts of given flags by name, and the remaining arguments.

    Raises:
      SettingsError: If a flag has no value, or one that it cannot have.
    """
    arguments = self.expand(arguments)
    self.values.unparse_flags()
    for name in self.values:
      self.values[name].unparse()
    try:
      rest = self.values(['main.py', *arguments], known_only=True)[1:]
    except (absl_flags.Error, ValueError) as e:
      raise errors.SettingsError(f'{errors.reason(e)}.') from e
    given = {
      name: self.values[name].value
      for name in self.values
      if self.values[name].present
    }
    return given, rest

  def split(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns values by name, defaults included, and the remaining arguments.

    Raises:
      SettingsError: If a value is not accepted.
    """
    given, rest = self.texts(arguments)
    values: dict[str, Any] = {}
    for name, parameter in self._declared.items():
      text = given.get(name)
      try:
        if isinstance(self.values[name], absl_flags.MultiFlag):
          values[name] = [parameter.parse(one) for one in text or ()]
        else:
          values[name] = (
            parameter.default if text is None else parameter.parse(f'{text}')
          )
      except parameters.ParameterError as e:
        raise refusal(e) from e
    return values, rest

  def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Like `split`, but refuses unknown flags among the remaining arguments.

    Raises:
      SettingsError: If a value is not accepted or a flag is unknown.
    """
    values, words = self.split(arguments)
    self.refuse_unknown(words)
    return values, words

  def refuse_unknown(self, words: Sequence[str]) -> None:
    """Raises `SettingsError` if a flag is among the remaining arguments."""
    for word in words:
      name = word.lstrip('-').partition('=')[0]
      # A run of a sweep is a folder such as client_learning_rate=0.1.
      if name in ('', word) or '/' in name or os.path.exists(word):
        continue
      raise refusal(self.unknown(name))

  def unknown(self, name: str) -> parameters.ParameterError:
    """Builds the error about a flag that the command does not have."""
    close = difflib.get_close_matches(name, self._declared, n=1)
    has = ' or '.join(f'{{{c}}}' for c in close or self._declared)
    return parameters.ParameterError(
      name, f'This command has no flag {{}}; it accepts {has}.'
    )

  def help(self) -> str:
    """Renders the flags, one paragraph each."""
    return render({'': self._declared.values()})
