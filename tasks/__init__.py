"""Federated tasks: data, models, preprocessing and metrics.

  tasks.names()                     names of all tasks
  tasks.info(name)                  a task's description
  tasks.parameters_of(name)         its options
  tasks.create(name, **options)     a `tff.simulation.baselines.BaselineTask`

A name may also be 'package.module:function', a function that returns a task.
Only `create` imports TensorFlow.
"""

from collections.abc import Mapping
from typing import Any, Optional, TYPE_CHECKING

from tasks import registry
from tasks import user_tasks
from tasks.formats.data_files import DataError as DataError
from tasks.formats.data_files import PartitionError as PartitionError
from tasks.registry import Published as Published
from tasks.registry import short as short
from tasks.registry import task as task
from tasks.registry import TaskInfo
from tasks.registry import TASKS
from tasks.shared import Divided as Divided
from tasks.shared import Options as Options
from tasks.user_tasks import is_place as is_place
from tasks.user_tasks import look_up as look_up
from tasks.user_tasks import OwnCodeError as OwnCodeError
from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff


def names() -> list[str]:
  """Returns the names of all tasks, sorted."""
  return sorted(TASKS)


def info(name: str) -> TaskInfo:
  """Returns the description of a task.

  Raises:
    ValueError: If there is no such task.
  """
  if user_tasks.is_place(name):
    return registry.own(name, name)
  if name not in TASKS:
    raise ValueError(
      f'A task must be one of {", ".join(names())}, got {name!r}'
      f'{parameters.suggestion(name, names())}.'
    )
  return TASKS[name]


def parameters_of(name: str) -> Mapping[str, parameters.Parameter]:
  """Returns the options of a task by name, in the order of its signature.

  Raises:
    ValueError: If there is no such task.
    OwnCodeError: If there is no such function, or one of its arguments cannot
      be an option.
  """
  described = info(name)
  if described.options is None:
    return user_tasks.look_up(described.place).parameters
  return parameters.parameters_of(described.options)


def summary(name: str) -> str:
  """Returns a one-line summary of a task.

  Raises:
    ValueError: If there is no such task.
  """
  described = info(name)
  return user_tasks.summary(described) if described.own else described.summary


def create(
  name: str, /, **options: Any
) -> 'tff.simulation.baselines.BaselineTask':
  """Creates a task.

  Args:
    name: One of `names()`, or 'package.module:function'.
    **options: The options in `parameters_of(name)`. All tasks of this package
      take `cache_dir`, `data`, `epochs`, `batch_size`, `max_elements` and
      `seed`.

  Returns:
    The task. The `seed` of `datasets.train_preprocess_fn(dataset, seed=None)`,
    an integer tensor [2], fixes all randomness.

  Raises:
    ValueError: If there is no such task or option.
    DataError: If a data file is missing or not the expected one.
    OwnCodeError: If the named function cannot be used.
  """
  described, accepted = info(name), parameters_of(name)
  for option in options:
    if option not in accepted:
      raise ValueError(
        f'Task {name} has no option '
        f'`{option}`{parameters.suggestion(option, accepted)}; it accepts '
        f'{", ".join(accepted)}.'
      )
  if described.options is None:
    checked = {k: accepted[k].check(v) for k, v in options.items()}
    return user_tasks.create(described, checked)
  return described.options(**options).create()


def check_data(name: str, /, **options: Any) -> Optional[int]:
  """Checks that a task's data files exist, without TensorFlow.

  Args:
    name: One of `names()`, or 'package.module:function', which is not checked.
    **options: As in `create`.

  Returns:
    The number of clients, if it is known.

  Raises:
    DataError: If a data file is missing or not the expected one.
    ParameterError: If options and data are inconsistent.
  """
  described = info(name)
  if described.options is None:
    return None
  found = described.options(**options).check_data(described.files)
  return found or described.num_clients
