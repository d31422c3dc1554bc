"""Users' own tasks and models, created by functions that they name.

  on the command line:  --task=package.module:function
  by a package:         an entry point of the group tff_adaptive.tasks, whose
                        name is the task's and whose value names the function

A task's function returns a `tff.simulation.baselines.BaselineTask`; its keyword
arguments are the task's options."""

import contextlib
import dataclasses
import functools
import importlib
import importlib.util
import inspect
import itertools
import os
import sys
import traceback
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Literal, Optional, Union

from tasks import registry
from tasks.formats import data_files
from tff_adaptive import errors
from tff_adaptive import parameters

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
  _put_current_folder_in_path()
  importlib.invalidate_caches()
  try:
    module = importlib.import_module(module_name)
  except (Exception, SystemExit) as e:
    absent = (isinstance(e, ModuleNotFoundError) and e.name) or ' '
    if f'{module_name}.'.startswith(f'{absent}.'):
      raise OwnCodeError(
        f'there is no module {module_name}, neither in the current folder nor '
        f"on Python's path.{hint(module_name)}"
      ) from e
    raise OwnCodeError(
      f'{module_name} cannot be imported: {failure(e, module_name)}.'
    ) from e
  if not hasattr(module, name):
    file = getattr(module, '__file__', None)
    raise OwnCodeError(
      f'{file or module_name} defines no function {name}.{hint(module_name)}'
    )
  found = getattr(module, name)
  if not callable(found) or isinstance(found, type):
    kind = 'a class' if isinstance(found, type) else f'{type(found).__name__}'
    raise OwnCodeError(f'{place} is not a function but {kind}.')
  return found


def failure(error: BaseException, module_name: str) -> str:
  """Describes an exception of user code, with its line in the user's module."""
  named = _explained(error)
  told = f'{type(named).__name__}: {errors.reason(named)}'
  for ours in _OURS:
    if f"'{ours}" in told:
      told += hint(ours).rstrip('.)') + ')'
  backend = os.environ.get('KERAS_BACKEND', 'tensorflow')
  if isinstance(error, ModuleNotFoundError) and backend != 'tensorflow':
    told += (
      f' (KERAS_BACKEND is {backend}; only tensorflow can be trained here)'
    )
  file = getattr(sys.modules.get(module_name), '__file__', None)
  if file is None:
    with contextlib.suppress(Exception):
      file = getattr(importlib.util.find_spec(module_name), 'origin', None)
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
  here = _current_folder()
  if here is not None and here not in sys.path and '' not in sys.path:
    sys.path.insert(0, here)


def hint(module: str) -> str:
  """Returns a hint if a module's name is taken by this project, or ''."""
  first = module.partition('.')[0]
  if first not in _OURS:
    return ''
  return f' (`{first}` is a package of tff-adaptive; rename your own module.)'


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
  function = load(place)
  try:
    # Quoted annotations may use names that the module does not import.
    signature = inspect.signature(function, locals=vars(typing), eval_str=True)
  except NameError:
    signature = inspect.signature(function)
  except (TypeError, ValueError) as e:
    raise OwnCodeError(f'The signature of {place} cannot be inspected.') from e
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
      raise OwnCodeError(
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


def summary(task: registry.TaskInfo) -> str:
  """Returns a one-line summary of a user's task."""
  try:
    words = look_up(task.place).summary
  except OwnCodeError:
    words = ''
  return words or f'The task that {task.place} returns'


def _current_folder() -> Optional[str]:
  try:
    return os.getcwd()
  except OSError:  # The folder was deleted.
    return None


def create(task: registry.TaskInfo, options: Mapping[str, Any]) -> Any:
  """Creates a user's task.

  Args:
    task: The task's description.
    options: Arguments of the task's function.

  Raises:
    OwnCodeError: If the function cannot be imported, fails, or does not return
      a task.
    DataError, PartitionError, ParameterError: As the function raises them.
  """
  here = _current_folder()
  function = load(task.place)
  # Not needed before: the result must be an instance of TFF's class.
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  try:
    made = function(**options)
  except (
    data_files.DataError,
    data_files.PartitionError,
    errors.RunError,
    parameters.ParameterError,
  ):
    raise
  except (Exception, SystemExit) as e:
    module = task.place.partition(':')[0]
    raise OwnCodeError(f'{task.place} fails: {failure(e, module)}.') from e
  finally:
    moved = _current_folder() != here
    if moved and here is not None:
      os.chdir(here)
  if moved:
    raise OwnCodeError(
      f'{task.place} changes the current folder (os.chdir), to which the paths '
      'in flags are relative; use absolute paths in it instead.'
    )
  if not isinstance(made, tff.simulation.baselines.BaselineTask):
    raise OwnCodeError(
      f'{task.place} must return a tff.simulation.baselines.BaselineTask, got '
      f'{type(made).__name__}.'
    )
  for data in (made.datasets.train_data, made.datasets.test_data):
    for client in getattr(data, 'client_ids', ()):
      if not isinstance(client, str):
        raise OwnCodeError(
          f'{task.place}: client ids must be strings, got {client!r}.'
        )
      if client != client.encode('utf-8', 'replace').decode('utf-8'):
        raise OwnCodeError(
          f'{task.place}: the client id {client!r} is not UTF-8, as TensorFlow '
          "requires it; decode bytes with errors='backslashreplace'."
        )
  # The constructor of TFF's class has called the function once.
  model_fn = checked(made.model_fn, task.place, calls=1)
  return tff.simulation.baselines.BaselineTask(made.datasets, model_fn)


def _explained(error: BaseException) -> BaseException:
  """Returns the error to show, see `models.explain`."""
  if 'tensorflow_federated' not in sys.modules:
    return error
  from tff_adaptive import models  # pylint: disable=g-import-not-at-top

  try:
    models.explain(error)
  except TypeError as told:
    return told
  return error
