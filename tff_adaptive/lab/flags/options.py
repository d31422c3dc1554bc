"""The flags of one command, beside those of a run."""

import difflib
import textwrap
from collections.abc import Sequence
from typing import Any

from tff_adaptive import errors
from tff_adaptive import parameters


def refusal(error: parameters.ParameterError) -> errors.SettingsError:
  """Converts an error about a hyperparameter to one about its flag."""
  return errors.SettingsError(error.told(lambda name: f'--{name}'))


def entry(parameter: parameters.Parameter, default: Any = ...) -> list[str]:
  """Renders a flag's lines in the help.

  Args:
    parameter: The parameter that the flag sets.
    default: The default to show; by default the parameter's own.
  """
  head = f'  --{parameter.name}'
  if parameter.choices is not None:
    head += '={' + ','.join(parameter.choices) + '}'
  text = parameter.help
  shown = parameter.default if default is ... else default
  if not any(shown is none for none in (None, False, '', parameters.REQUIRED)):
    text += f' Default: {shown}.'
  indent = ' ' * 6
  lines = textwrap.wrap(
    text, 76, initial_indent=indent, subsequent_indent=indent
  )
  return [head, *lines]


def refuse_words(words: Sequence[str]) -> None:
  """Raises `SettingsError` if positional arguments are left over."""
  if words:
    raise errors.SettingsError(
      f'{words[0]!r} is not a flag; flags are written --name=value.'
    )


class Options:
  """Flags with defaults, parsed from a command line.

  They are parsed before the flags of the run, to which other arguments are
  passed on unchanged.
  """

  def __init__(
    self,
    *declared: parameters.Parameter,
    repeated: Sequence[parameters.Parameter] = (),
  ):
    """Declares the flags.

    Args:
      *declared: Flags that may be given once.
      repeated: Flags that may be given several times; their value is a list.
    """
    self._declared = {p.name: p for p in declared}
    self._repeated = {p.name: p for p in repeated}

  @property
  def names(self) -> set[str]:
    """The names of the flags."""
    return {*self._declared, *self._repeated}

  def split(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns values by name, and the remaining arguments.

    Raises:
      SettingsError: If a value is not accepted.
    """
    values: dict[str, Any] = {
      p.name: p.default for p in self._declared.values()
    }
    values.update({name: [] for name in self._repeated})
    given = set()
    rest = []
    waiting = list(arguments)
    while waiting:
      word = waiting.pop(0)
      name, equals, text = word.lstrip('-').partition('=')
      positive = self._declared.get(name.removeprefix('no'))
      if not equals and positive and positive.kind is bool:
        # --NAME and --noNAME, as absl's flags have them.
        equals, text = '=', str(positive.name == name).lower()
        name = positive.name
      parameter = self._declared.get(name) or self._repeated.get(name)
      if not word.startswith('-') or parameter is None:
        rest.append(word)
        continue
      if not equals:
        if waiting:
          text = waiting.pop(0)
        else:
          raise errors.SettingsError(f'--{name} needs a value.')
      try:
        value = parameter.parse(text)
      except parameters.ParameterError as e:
        raise refusal(e) from e
      if name in self._repeated:
        values[name].append(value)
      elif name in given:
        raise errors.SettingsError(f'--{name} is given twice.')
      else:
        given.add(name)
        values[name] = value
    return values, rest

  def read(self, arguments: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Like `split`, but refuses unknown flags among the remaining arguments.

    Raises:
      SettingsError: If a value is not accepted or a flag is unknown.
    """
    values, rest = self.split(arguments)
    for word in rest:
      if word.startswith('-'):
        name = word.lstrip('-').partition('=')[0]
        known = [*self._declared, *self._repeated]
        close = difflib.get_close_matches(name, known, n=1) or known
        has = ' or '.join(f'--{c}' for c in close) or 'none'
        raise errors.SettingsError(
          f'This command has no flag --{name}; it accepts {has}.'
        )
    return values, rest

  def help(self) -> str:
    """Renders the flags, one paragraph each."""
    declared = (*self._repeated.values(), *self._declared.values())
    return '\n'.join(line for p in declared for line in entry(p))
