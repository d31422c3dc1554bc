"""Users' own tasks, created by functions that they name.

  on the command line:  --task=package.module:function
  by a package:         an entry point of the group tff_adaptive.tasks, whose
                        name is the task's and whose value names the function

The function returns a `tff.simulation.baselines.BaselineTask`; its keyword
arguments are the task's options.
"""

import os
from collections.abc import Mapping
from typing import Any
from typing import Optional

from tasks import catalogue
from tasks import own_arguments
from tasks import own_code
from tasks.formats import data_errors
from tff_adaptive import errors
from tff_adaptive import parameters


def summary(task: catalogue.TaskInfo) -> str:
  """Returns a one-line summary of a user's task."""
  try:
    words = own_arguments.look_up(task.place).summary
  except own_code.OwnCodeError:
    words = ''
  return words or f'The task that {task.place} returns'


def _current_folder() -> Optional[str]:
  try:
    return os.getcwd()
  except OSError:  # The folder was deleted.
    return None


def create(task: catalogue.TaskInfo, options: Mapping[str, Any]) -> Any:
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
  function = own_code.load(task.place)
  # Not needed before: the result must be an instance of TFF's class.
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  try:
    made = function(**options)
  except (
    data_errors.DataError,
    data_errors.PartitionError,
    errors.RunError,
    parameters.ParameterError,
  ):
    raise
  except (Exception, SystemExit) as e:
    module = task.place.partition(':')[0]
    e = _keras_3(e) or e
    raise own_code.OwnCodeError(
      f'{task.place} fails: {own_code.failure(e, module)}.'
    ) from e
  finally:
    moved = _current_folder() != here
    if moved and here is not None:
      os.chdir(here)
  if moved:
    raise own_code.OwnCodeError(
      f'{task.place} changes the current folder (os.chdir), to which the paths '
      'in flags are relative; use absolute paths in it instead.'
    )
  if not isinstance(made, tff.simulation.baselines.BaselineTask):
    raise own_code.OwnCodeError(
      f'{task.place} must return a tff.simulation.baselines.BaselineTask, got '
      f'{type(made).__name__}.'
    )
  # The constructor of TFF's class has called the function once.
  model_fn = own_code.checked(made.model_fn, task.place, calls=1)
  return tff.simulation.baselines.BaselineTask(made.datasets, model_fn)


def _keras_3(error: BaseException) -> Optional[TypeError]:
  """Returns the error to raise if an error is due to a Keras 3 model."""
  from tff_adaptive import models  # pylint: disable=g-import-not-at-top

  try:
    models.explain(error)
  except TypeError as told:
    return told
  return None
