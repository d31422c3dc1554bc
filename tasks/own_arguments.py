"""Arguments of functions that users name on the command line."""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Optional
from typing import Union

from tasks import own_code
from tff_adaptive import parameters

_PLAIN = (bool, int, float, str)


@dataclasses.dataclass(frozen=True)
class Function:
  """A function named by a user.

  Attributes:
    place: Name of the function, 'package.module:function'.
    parameters: Its arguments that can be set by flags, by name.
    summary: The first line of its docstring, without a full stop.
  """

  place: str
  parameters: Mapping[str, parameters.Parameter]
  summary: str = ''


@functools.cache
def look_up(place: str) -> Function:
  """Imports a function and inspects its arguments.

  Args:
    place: 'package.module:function', where the current folder is searched too.

  Raises:
    OwnCodeError: If there is no such function, or an argument without a default
      cannot be set by a flag.
  """
  function = own_code.load(place)
  try:
    # Quoted annotations may use names that the module does not import.
    signature = inspect.signature(function, locals=vars(typing), eval_str=True)
  except NameError:
    signature = inspect.signature(function)
  except (TypeError, ValueError) as e:
    raise own_code.OwnCodeError(
      f'The signature of {place} cannot be inspected.'
    ) from e
  docstring = inspect.getdoc(function) or ''
  helps = parameters.argument_help(docstring)
  flags = {}
  for argument in signature.parameters.values():
    if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD):
      continue
    name = argument.name
    parameter = parameters.Parameter(
      name,
      _meant(argument.annotation, argument.default),
      argument.default,
      helps.get(name, ''),
    )
    is_keyword = argument.kind is not argument.POSITIONAL_ONLY
    if parameter.kind in (*_PLAIN, object) and is_keyword:
      flags[name] = parameter
    elif parameter.required:
      raise own_code.OwnCodeError(
        f'the argument `{name}` of {place} has no default, and no flag can set '
        'it: that requires a keyword argument annotated as str, int, float, '
        'bool or a Literal of strings.'
      )
  first = docstring.strip().partition('\n')[0].rstrip('.')
  return Function(place, types.MappingProxyType(flags), first)


def _meant(annotation: Any, default: Any) -> Any:
  """Returns an argument's type: its annotation, or else its default's type."""
  unsaid = annotation in (parameters.REQUIRED, Any, object)
  if unsaid or isinstance(annotation, str):
    if default is parameters.REQUIRED:
      return str
    return Optional[str] if default is None else type(default)
  if typing.get_origin(annotation) in (Union, types.UnionType):
    members = set(typing.get_args(annotation))
    plain = members - {type(None)}
    if plain == {int, float}:
      return Optional[float] if type(None) in members else float
    if str in plain:
      return Optional[str] if type(None) in members else str
  if typing.get_origin(annotation) is Literal:
    words = typing.get_args(annotation)
    if not all(isinstance(word, str) for word in words):
      return type(words[0])
  return annotation
