"""Functions that users name on the command line, 'package.module:function'.

They are found without importing their packages. `own_arguments` inspects their
arguments.
"""

import functools
import importlib
import importlib.machinery
import importlib.util
import itertools
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from tff_adaptive import errors

# Top-level packages of this project, which hide users' modules of that name.
_OURS = ('tasks', 'tff_adaptive')


class OwnCodeError(ValueError):
  """Raised if a named function cannot be used; the message is a sentence."""


def is_place(name: str) -> bool:
  """Returns whether a task's name denotes a function."""
  return ':' in name


def load(place: str) -> Callable[..., Any]:
  """Imports a function.

  Raises:
    OwnCodeError: If the module cannot be imported or has no such function.
  """
  module_name, name = split(place)
  if find(module_name) is None:
    raise OwnCodeError(
      f'there is no module {module_name}, neither in the current folder nor on '
      f"Python's path.{hint(module_name)}"
    )
  try:
    module = importlib.import_module(module_name)
  except (Exception, SystemExit) as e:
    raise OwnCodeError(
      f'{module_name} cannot be imported: {failure(e, module_name)}.'
    ) from e
  if not hasattr(module, name):
    file = getattr(module, '__file__', None)
    raise OwnCodeError(no_function(file or module_name, name, module_name))
  found = getattr(module, name)
  if not callable(found) or isinstance(found, type):
    kind = 'a class' if isinstance(found, type) else f'{type(found).__name__}'
    raise OwnCodeError(f'{place} is not a function but {kind}.')
  return found


def failure(error: BaseException, module_name: str) -> str:
  """Describes an exception of user code, with its line in the user's module."""
  told = f'{type(error).__name__}: {errors.reason(error)}'
  for ours in _OURS:
    if f"'{ours}" in told:
      told += hint(ours).rstrip('.)') + ')'
  backend = os.environ.get('KERAS_BACKEND', 'tensorflow')
  if isinstance(error, ModuleNotFoundError) and backend != 'tensorflow':
    told += (
      f' (KERAS_BACKEND is {backend}; only tensorflow can be trained here)'
    )
  module = sys.modules.get(module_name)
  file = getattr(module, '__file__', None)
  if file is None:
    found = find(module_name)
    file = None if found is None else found.origin
  lines = [
    number
    for frame, number in traceback.walk_tb(error.__traceback__)
    if file is not None and frame.f_code.co_filename == file
  ]
  return f'{told} (line {lines[-1]} of {file})' if lines else told


def checked(function: Callable[[], Any], place: str, calls: int) -> Any:
  """Wraps a model function to report failures of later calls.

  Args:
    function: The function that builds a new model in each call.
    place: Name of the user's function, 'package.module:function'.
    calls: Number of earlier calls of `function`.

  Returns:
    A function that raises `RunError` if `function` fails.
  """
  count = itertools.count(calls + 1)

  @functools.wraps(function)
  def call() -> Any:
    number = next(count)
    try:
      return function()
    except errors.RunError:
      raise
    except (Exception, SystemExit) as e:
      told = failure(e, place.partition(':')[0])
      raise errors.RunError(
        f'The model function of {place} fails at call {number}: {told}; it is '
        'called several times and must build a new model each time.'
      ) from e

  return call


def split(place: str) -> tuple[str, str]:
  """Splits 'package.module:function' into module and function."""
  module, _, function = place.partition(':')
  words = [*module.split('.'), function]
  if not all(word.isidentifier() for word in words):
    raise OwnCodeError(
      f'{place!r} does not name a function; give PACKAGE.MODULE:FUNCTION, such '
      'as my_data:hospital.'
    )
  return module, function


def _put_current_folder_in_path() -> None:
  """Makes modules of the current folder importable, as for a script."""
  try:
    here = os.getcwd()
  except OSError:  # The folder was deleted.
    return
  if here not in sys.path and '' not in sys.path:
    sys.path.insert(0, here)


def find(module: str) -> Any:
  """Returns a module's spec without importing its parent packages, or None."""
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
  try:  # Packages with an import finder of their own.
    return importlib.util.find_spec(module)
  except ModuleNotFoundError:
    return None
  except (Exception, SystemExit) as e:
    package = module.rpartition('.')[0] or module
    raise OwnCodeError(
      f'{package} cannot be imported: {type(e).__name__}: {errors.reason(e)}.'
    ) from e


def no_function(where: Any, name: str, module: str) -> str:
  """Returns the message that a module has no such function."""
  return f'{where} defines no function {name}.{hint(module)}'


def hint(module: str) -> str:
  """Returns a hint if a module's name is taken by this project, or ''."""
  first = module.partition('.')[0]
  if first not in _OURS:
    return ''
  return f' (`{first}` is a package of tff-adaptive; rename your own module.)'
