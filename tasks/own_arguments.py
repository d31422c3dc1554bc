"""The arguments of functions that users name on the command line.

Whether there is such a function and which arguments it takes is read from its
source, so that a wrong flag is reported before anything heavy is imported. Only
what the source does not tell (a function that another module defines, a default
that is computed) is found by importing the module.
"""

import ast
import dataclasses
import functools
import inspect
import pathlib
import types
import typing
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Optional
from typing import Union

from tasks import own_code
from tff_adaptive import builders
from tff_adaptive import parameters

_PLAIN = (bool, int, float, str)
_NO_FUNCTION = (ast.Constant, ast.Dict, ast.List, ast.Set, ast.Tuple)


class _NotReadError(Exception):
  """The source does not tell; importing the module would."""


@dataclasses.dataclass(frozen=True)
class Function:
  """A function that a user named.

  Attributes:
    place: Its name, 'package.module:function'.
    parameters: Its arguments that a flag can set, by name.
    summary: The first sentence of its docstring, without a full stop.
  """

  place: str
  parameters: Mapping[str, parameters.Parameter]
  summary: str = ''


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
      raise own_code.OwnCodeError(
        f'{place} is not known before it is imported.'
      ) from e
    return _imported(place)


@functools.cache
def _read(place: str) -> Function:
  """Reads a function's arguments from its source.

  Raises:
    OwnCodeError: If it is seen that there is no such function.
    _NotReadError: If the source does not tell.
  """
  module, name = own_code.split(place)
  spec = own_code.find(module)
  if spec is None:
    raise own_code.OwnCodeError(
      f'there is no module {module}, neither in the current folder nor where '
      f'Python looks for packages.{own_code.hint(module)}'
    )
  if spec.origin is None or not spec.origin.endswith('.py'):
    raise _NotReadError()
  try:
    tree = ast.parse(pathlib.Path(spec.origin).read_bytes())
  except (SyntaxError, ValueError) as e:
    line = getattr(e, 'lineno', None)
    where = f'line {line}: ' if line else ''
    raise own_code.OwnCodeError(
      f'{spec.origin} is no Python module: {where}{getattr(e, "msg", e)}.'
    ) from e
  except OSError as e:
    raise own_code.OwnCodeError(f'{spec.origin} cannot be read: {e}.') from e
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
    raise own_code.OwnCodeError(f'{module}:{name} is no function but a class.')
  if isinstance(found, (ast.Assign, ast.AnnAssign)) and isinstance(
    found.value, _NO_FUNCTION
  ):
    raise own_code.OwnCodeError(f'{module}:{name} is no function but a value.')
  hidden = any(
    isinstance(node, ast.ImportFrom) and node.names[0].name == '*'
    for node in ast.walk(tree)
  ) or any(getattr(node, 'name', None) == '__getattr__' for node in tree.body)
  if found is None and not hidden:
    raise own_code.OwnCodeError(own_code.no_function(path, name, module))
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
  """Reads a function's arguments from the imported function."""
  function = own_code.load(place)
  try:
    signature = inspect.signature(function, eval_str=True)
  except NameError:
    signature = inspect.signature(function)
  except (TypeError, ValueError) as e:
    raise own_code.OwnCodeError(f'{place} does not tell its arguments.') from e
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
      raise own_code.OwnCodeError(
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
