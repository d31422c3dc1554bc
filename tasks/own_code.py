"""Functions that people name on the command line, 'package.module:function'.

Whether there is such a function and which arguments it takes is read off its
source, so that a wrong flag is told before anything heavy is imported. Only
what the source does not tell (a function that another module defines, a default
that is computed) is found by importing the module.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import pathlib
import sys
import traceback
import types
import typing
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Optional
from typing import Union

from tff_adaptive import builders
from tff_adaptive import errors
from tff_adaptive import parameters

# Top-level packages of this project, which hide a module of the same name.
_OURS = ('tasks', 'tff_adaptive')
_PLAIN = (bool, int, float, str)
_NO_FUNCTION = (ast.Constant, ast.Dict, ast.List, ast.Set, ast.Tuple)


class OwnCodeError(ValueError):
  """A function that was named cannot be used; the message is a sentence."""


class _NotReadError(Exception):
  """The source does not tell; importing the module would."""


@dataclasses.dataclass(frozen=True)
class Function:
  """A function that somebody named.

  Attributes:
    place: Its name, 'package.module:function'.
    parameters: Its arguments that a flag can set, by name.
    summary: The first sentence of its docstring, without a full stop.
  """

  place: str
  parameters: Mapping[str, parameters.Parameter]
  summary: str = ''


def is_place(name: str) -> bool:
  """Tells whether a name is meant to name a function."""
  return ':' in name


def look_up(place: str, *, importing: bool = True) -> Function:
  """Finds a function and its arguments.

  Args:
    place: 'package.module:function'. The module may be in the current folder.
    importing: Whether the module may be imported, if its source does not tell.

  Raises:
    OwnCodeError: If there is no such function, one of its arguments can be no
      flag and has no default, or (only if `importing` is false) if its source
      does not tell.
  """
  try:
    return _read(place)
  except _NotReadError as e:
    if not importing:
      raise OwnCodeError(f'{place} is not known before it is imported.') from e
    return _imported(place)


def load(place: str) -> Callable[..., Any]:
  """Imports a function.

  Raises:
    OwnCodeError: If its module cannot be imported or has no such function.
  """
  module_name, name = _split(place)
  _put_current_folder_in_path()
  try:
    module = importlib.import_module(module_name)
  except Exception as e:
    raise OwnCodeError(
      f'{module_name} cannot be imported: {failure(e, module_name)}.'
    ) from e
  if not hasattr(module, name):
    file = getattr(module, '__file__', None)
    raise OwnCodeError(_no_function(file or module_name, name, module_name))
  found = getattr(module, name)
  if not callable(found) or isinstance(found, type):
    kind = 'a class' if isinstance(found, type) else f'{type(found).__name__}'
    raise OwnCodeError(f'{place} is no function but {kind}.')
  return found


def failure(error: BaseException, module_name: str) -> str:
  """Says what somebody's code raised, and in which line of it."""
  told = f'{type(error).__name__}: {errors.reason(error)}'
  for ours in _OURS:
    if f"'{ours}" in told:
      told += _hint(ours).rstrip('.)') + ')'
  module = sys.modules.get(module_name)
  file = getattr(module, '__file__', None)
  if file is None:
    found = _find(module_name)
    file = None if found is None else found.origin
  lines = [
    number
    for frame, number in traceback.walk_tb(error.__traceback__)
    if file is not None and frame.f_code.co_filename == file
  ]
  return f'{told} (line {lines[-1]} of {file})' if lines else told


def _split(place: str) -> tuple[str, str]:
  """Takes module and function apart."""
  module, _, function = place.partition(':')
  words = [*module.split('.'), function]
  if not all(word.isidentifier() for word in words):
    raise OwnCodeError(
      f'{place!r} names no function; what is wanted is '
      'PACKAGE.MODULE:FUNCTION, such as my_data:hospital.'
    )
  return module, function


def _put_current_folder_in_path() -> None:
  """Lets modules of the current folder be imported, as a script's could."""
  try:
    here = os.getcwd()
  except OSError:  # It was deleted.
    return
  if here not in sys.path and '' not in sys.path:
    sys.path.insert(0, here)


def _find(module: str) -> Any:
  """Finds a module's spec without importing the packages that it is in."""
  _put_current_folder_in_path()
  importlib.invalidate_caches()
  first, *rest = module.split('.')
  loaded = sys.modules.get(first)
  spec: Any = None
  if loaded is not None and first in _OURS:
    spec = loaded.__spec__
  else:
    spec = importlib.machinery.PathFinder.find_spec(first, sys.path)
  name = first
  for part in rest:
    name = f'{name}.{part}'
    folders = None if spec is None else spec.submodule_search_locations
    finder = importlib.machinery.PathFinder
    spec = None if folders is None else finder.find_spec(name, folders)
  if spec is not None:
    return spec
  try:  # Packages that are installed by a finder of their own.
    return importlib.util.find_spec(module)
  except ModuleNotFoundError:
    return None
  except Exception as e:
    package = module.rpartition('.')[0] or module
    raise OwnCodeError(
      f'{package} cannot be imported: {type(e).__name__}: {errors.reason(e)}.'
    ) from e


def _no_function(where: Any, name: str, module: str) -> str:
  return f'{where} defines no function {name}.{_hint(module)}'


def _hint(module: str) -> str:
  """Says that a name is taken, where that may be what is wrong."""
  first = module.partition('.')[0]
  if first not in _OURS:
    return ''
  return (
    f' (`{first}` is a package of this program; a module of your own needs '
    'another name.)'
  )


@functools.cache
def _read(place: str) -> Function:
  """Reads a function's arguments off its source.

  Raises:
    OwnCodeError: If it is seen that there is no such function.
    _NotReadError: If the source does not tell.
  """
  module, name = _split(place)
  spec = _find(module)
  if spec is None:
    raise OwnCodeError(
      f'there is no module {module}, neither in the current folder nor where '
      f'Python looks for packages.{_hint(module)}'
    )
  if spec.origin is None or not spec.origin.endswith('.py'):
    raise _NotReadError()
  try:
    tree = ast.parse(pathlib.Path(spec.origin).read_bytes())
  except (SyntaxError, ValueError) as e:
    line = getattr(e, 'lineno', None)
    where = f'line {line}: ' if line else ''
    raise OwnCodeError(
      f'{spec.origin} is no Python module: {where}{getattr(e, "msg", e)}.'
    ) from e
  except OSError as e:
    raise OwnCodeError(f'{spec.origin} cannot be read: {e}.') from e
  node = _definition(tree, name, spec.origin, module)
  names = _annotation_names(tree)
  docstring = ast.get_docstring(node) or ''
  return _function(
    place, docstring, (_from_ast(a, names) for a in _arguments(node))
  )


def _definition(
  tree: ast.Module, name: str, path: str, module: str
) -> Union[ast.FunctionDef, ast.AsyncFunctionDef]:
  """Finds a function's definition at the top of a module."""
  found: Any = None
  for node in tree.body:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
      found = node if node.name == name else found
    elif name in set(_bound(node)):
      found = node
  if isinstance(found, (ast.FunctionDef, ast.AsyncFunctionDef)):
    return found
  if isinstance(found, ast.ClassDef):
    raise OwnCodeError(f'{module}:{name} is no function but a class.')
  if isinstance(found, (ast.Assign, ast.AnnAssign)) and isinstance(
    found.value, _NO_FUNCTION
  ):
    raise OwnCodeError(f'{module}:{name} is no function but a value.')
  hidden = any(
    isinstance(node, ast.ImportFrom) and node.names[0].name == '*'
    for node in ast.walk(tree)
  ) or any(getattr(node, 'name', None) == '__getattr__' for node in tree.body)
  if found is None and not hidden:
    raise OwnCodeError(_no_function(path, name, module))
  raise _NotReadError()


def _bound(node: ast.AST) -> Iterator[str]:
  """Yields the names that a statement may bind, wherever in it."""
  for part in ast.walk(node):
    if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
      yield part.id
    elif isinstance(part, ast.alias):
      yield part.asname or part.name.partition('.')[0]
    elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
      yield part.name


@dataclasses.dataclass(frozen=True)
class _Argument:
  """An argument in a function's source."""

  name: str
  annotation: Optional[ast.expr]
  default: Optional[ast.expr]
  positional: bool = False


def _arguments(
  node: Union[ast.FunctionDef, ast.AsyncFunctionDef],
) -> Iterator[_Argument]:
  first = [*node.args.posonlyargs, *node.args.args]
  defaults: list[Any] = [None] * (len(first) - len(node.args.defaults))
  defaults += node.args.defaults
  for index, (argument, default) in enumerate(
    zip(first, defaults, strict=True)
  ):
    positional = index < len(node.args.posonlyargs)
    yield _Argument(argument.arg, argument.annotation, default, positional)
  for argument, default in zip(
    node.args.kwonlyargs, node.args.kw_defaults, strict=True
  ):
    yield _Argument(argument.arg, argument.annotation, default)


def _annotation_names(tree: ast.Module) -> dict[str, Any]:
  """Lists the names that annotations may use without an import."""
  names = {**vars(typing), 'typing': typing, 'parameters': parameters}
  known = {
    'typing': typing,
    'types': types,
    'tff_adaptive.parameters': parameters,
  }
  for node in tree.body:
    if isinstance(node, ast.Import):
      for alias in node.names:
        if alias.asname and alias.name in known:
          names[alias.asname] = known[alias.name]
    elif isinstance(node, ast.ImportFrom):
      for alias in node.names:
        module = known.get(node.module or '')
        whole = known.get(f'{node.module}.{alias.name}')
        value = whole or getattr(module, alias.name, None)
        if value is not None:
          names[alias.asname or alias.name] = value
  return names


def _from_ast(
  argument: _Argument, names: dict[str, Any]
) -> tuple[str, Any, Any, bool]:
  """Returns name, annotation, default, and whether it has no keyword."""
  default: Any = parameters.REQUIRED
  if argument.default is not None:
    try:
      default = ast.literal_eval(argument.default)
    except ValueError as e:
      raise _NotReadError() from e
  annotation: Any = parameters.REQUIRED
  if argument.annotation is not None:
    text = argument.annotation
    try:
      if isinstance(text, ast.Constant) and isinstance(text.value, str):
        text = ast.parse(text.value, mode='eval').body
      # The expression is the function's own source, as importing it runs it.
      annotation = eval(ast.unparse(text), names)  # pylint: disable=eval-used
    except Exception as e:
      if default is None or default is parameters.REQUIRED:
        raise _NotReadError() from e
  return argument.name, annotation, default, argument.positional


def _imported(place: str) -> Function:
  """Reads a function's arguments off the function."""
  function = load(place)
  try:
    signature = inspect.signature(function, eval_str=True)
  except NameError:
    signature = inspect.signature(function)
  except (TypeError, ValueError) as e:
    raise OwnCodeError(f'{place} does not tell its arguments.') from e
  kinds = inspect.Parameter
  return _function(
    place,
    inspect.getdoc(function) or '',
    (
      (p.name, p.annotation, p.default, p.kind is kinds.POSITIONAL_ONLY)
      for p in signature.parameters.values()
      if p.kind not in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD)
    ),
  )


def _function(
  place: str,
  docstring: str,
  arguments: Iterable[tuple[str, Any, Any, bool]],
) -> Function:
  """Makes a function's description of its arguments."""
  helps = builders.argument_help(docstring)
  flags = {}
  for name, annotation, default, positional in arguments:
    parameter = parameters.Parameter(
      name, _meant(annotation, default), default, helps.get(name, '')
    )
    can_be = parameter.kind in (*_PLAIN, object) and not positional
    if can_be:
      flags[name] = parameter
    elif parameter.required:
      raise OwnCodeError(
        f'the argument `{name}` of {place} has no default, and no flag can '
        'set it: that takes a keyword that is annotated as str, int, float, '
        'bool or a Literal of words.'
      )
  first = docstring.strip().partition('\n')[0].rstrip('.')
  return Function(place, types.MappingProxyType(flags), first)


def _meant(annotation: Any, default: Any) -> Any:
  """Returns an argument's type by its annotation, or else by its default."""
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
