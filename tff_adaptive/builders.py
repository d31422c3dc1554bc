"""Functions that take hyperparameters, by place, read without importing them.

A place is 'package.module:function'. Tables of optimizers, methods and tasks
name their builders so: what a builder takes is known, and checked, before
anything heavy is imported.
"""

import ast
import functools
import importlib
import importlib.util
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import Union

from tff_adaptive import parameters


@functools.cache
def parameters_of(place: str) -> Mapping[str, parameters.Parameter]:
  """Reads the keyword-only parameters of a function; see `read`.

  Args:
    place: 'package.module:function'; the module need not be imported.

  Raises:
    LookupError: If there is no such module or function.
  """
  module, _, function = place.partition(':')
  try:
    spec = importlib.util.find_spec(module)
  except ModuleNotFoundError:
    spec = None
  if spec is None or spec.origin is None:
    raise LookupError(f'{place}: Python finds no module {module}.')
  return read(spec.origin, function)


def load(place: str, *, checks: bool = True) -> Callable[..., Any]:
  """Imports a function.

  Args:
    place: 'package.module:function'.
    checks: Whether it is to check its arguments itself, where it is `checked`.
  """
  module, _, function = place.partition(':')
  found = getattr(importlib.import_module(module), function)
  return found if checks else getattr(found, 'unchecked', found)


_ANY = ast.Name('Any')


@functools.cache
def read(
  path: Union[str, pathlib.Path], function: str
) -> Mapping[str, parameters.Parameter]:
  """Reads a function's keyword-only parameters without importing its module.

  Annotations may use `parameters`, `typing` and Python's own types; defaults
  are literals. That is all that a hyperparameter needs, and it is what keeps
  this readable without importing TensorFlow.

  Args:
    path: The Python file.
    function: The function's name, defined at the top of that file.

  Returns:
    The parameters by name, in the order of the signature.

  Raises:
    LookupError: If the file defines no such function, or one of its parameters
      uses more than that.
  """
  source = pathlib.Path(path).read_text(encoding='utf-8')
  for node in ast.parse(source).body:
    if isinstance(node, ast.FunctionDef) and node.name == function:
      break
  else:
    raise LookupError(f'{path} defines no function {function}.')
  names = {
    **vars(typing),
    'parameters': types.SimpleNamespace(**vars(parameters)),
    'typing': typing,
  }
  helps = argument_help(ast.get_docstring(node) or '')
  result = {}
  for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
    try:
      # The expression is the builder's own source, not a user's text.
      annotation = eval(ast.unparse(argument.annotation or _ANY), names)  # pylint: disable=eval-used
      value = (
        parameters.REQUIRED if default is None else ast.literal_eval(default)
      )
    except (NameError, ValueError) as e:
      raise LookupError(
        f'{path} must annotate `{argument.arg}` of {function} with '
        "`parameters`, `typing` and Python's own types, and give it a literal "
        f'as default: {e}.'
      ) from e
    result[argument.arg] = parameters.Parameter(
      argument.arg, annotation, value, helps.get(argument.arg, '')
    )
  return types.MappingProxyType(result)


def argument_help(docstring: str) -> dict[str, str]:
  """Reads `Args:` or `Attributes:` of a docstring: each one on one line."""
  match = re.search(
    r'^(?:Args|Attributes):\n(.*?)(?=^\S|\Z)',
    docstring,
    re.MULTILINE | re.DOTALL,
  )
  if match is None:
    return {}
  helps: dict[str, str] = {}
  current: list[str] = []
  for line in textwrap.dedent(match.group(1)).splitlines():
    start = re.match(r'([a-z_][\w, ]*): (.*)', line)
    if start:
      current = [name.strip() for name in start.group(1).split(',')]
      for name in current:
        helps[name] = start.group(2).strip()
    elif line.strip():
      for name in current:
        helps[name] += ' ' + line.strip()
  return helps
