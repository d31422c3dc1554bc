"""Functions that users name on the command line, 'package.module:function'.

They are found without importing the packages that they are in. `own_arguments`
reads their arguments.
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

# Top-level packages of this project, which hide a module of the same name.
_OURS = ('tasks', 'tff_adaptive')


class OwnCodeError(ValueError):
  """A function that was named cannot be used; the message is a sentence."""


def is_place(name: str) -> bool:
  """Tells whether a name is meant to name a function."""
  return ':' in name


def load(place: str) -> Callable[..., Any]:
  """Imports a function.

  Raises:
    OwnCodeError: If its module cannot be imported or has no such function.
  """
  module_name, name = split(place)
  if find(module_name) is None:
    raise OwnCodeError(
      f'there is no module {module_name}, neither in the current folder nor '
      f'where Python looks for packages.{hint(module_name)}'
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
    raise OwnCodeError(f'{place} is no function but {kind}.')
  return found


def failure(error: BaseException, module_name: str) -> str:
  """Says what a user's code raised, and in which line of it."""
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
  """Wraps a function that makes a model, which may fail at a later call.

  Args:
    function: The function, which is called whenever a model is built anew.
    place: The function that was named on the command line, which made it.
    calls: How often it was called before.

  Returns:
    A function that raises `RunError` where `function` fails.
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
        'called several times, a new model each time.'
      ) from e

  return call


def split(place: str) -> tuple[str, str]:
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


def find(module: str) -> Any:
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
  except (Exception, SystemExit) as e:
    package = module.rpartition('.')[0] or module
    raise OwnCodeError(
      f'{package} cannot be imported: {type(e).__name__}: {errors.reason(e)}.'
    ) from e


def no_function(where: Any, name: str, module: str) -> str:
  """Says that a module has no such function."""
  return f'{where} defines no function {name}.{hint(module)}'


def hint(module: str) -> str:
  """Says that a name is taken, where that may be what is wrong."""
  first = module.partition('.')[0]
  if first not in _OURS:
    return ''
  return (
    f' (`{first}` is a package of this program; a module of your own needs '
    'another name.)'
  )
