"""Processes, evaluators and contexts that runs in one Python process share.

Composing and tracing a round takes seconds, and runs that differ in seeds,
rates and the like have the same graph. The first run of a structure makes it,
and the others start from states of their own; see `plan.Plan.structure` for
what is part of a structure. A few structures are kept, the least recently used
is dropped first.
"""

import os
import threading
from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import MutableMapping
from typing import Any
from typing import TypeVar

import cachetools

import tasks
from tasks import own_code
from tff_adaptive import runtime
from tff_adaptive.lab.flags import general
from tff_adaptive.lab.flags import settings as settings_lib

# A process of a small model takes some 50 MB with all that TensorFlow keeps.
MOST_STRUCTURES = 8

_Value = TypeVar('_Value')
_lock = threading.RLock()
_kept: MutableMapping[Hashable, Any] = cachetools.LRUCache(4 * MOST_STRUCTURES)
_contexts: MutableMapping[tuple[int, str, str], Any] = cachetools.LRUCache(1)
_traces = 0


def traces() -> int:
  """Returns how many processes this Python process has traced for its runs."""
  return _traces


def clear() -> None:
  """Drops everything that is kept."""
  with _lock:
    _kept.clear()
    _contexts.clear()


def process(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns the process of a structure, made by the first run of it.

  Args:
    key: The structure.
    make: Composes the process.
  """

  def traced() -> _Value:
    global _traces
    made = make()
    _traces += 1
    return made

  return _get(('process', key), traced)


def evaluator(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns the evaluator of a model, made by the first run of it."""
  return _get(('evaluator', key), make)


def template(process: Any) -> Any:
  """Returns the first state of a process as it was composed."""
  return of_process(process, _initialize)


def _initialize(process: Any) -> Any:
  return process.initialize()


def of_process(process: Any, compute: Callable[[Any], _Value]) -> _Value:
  """Returns what a function makes of a process, computed once.

  Args:
    process: The process.
    compute: The function; what it raises is not kept.
  """
  # Kept with the process: as long as it is there, no other has its id.
  key = ('of process', id(process), compute)
  return _get(key, lambda: (process, compute(process)))[1]


def set_context(kind: str, options: Mapping[str, Any]) -> Any:
  """Makes a context of a kind with these options TFF's default.

  Compiled computations belong to a context, and actors on other machines: the
  last one is taken again if it was made with the same options.

  Args:
    kind: As in `runtime.create_<kind>_context`.
    options: As that function takes them.
  """
  key = (os.getpid(), kind, repr(sorted(options.items())))
  with _lock:
    context = _contexts.get(key)
    if context is None or context.is_closed:
      for (_, before, _), other in _contexts.items():
        if before == 'ray':
          other.close()  # Others may wait for the cores of its actors.
      context = getattr(runtime, f'create_{kind}_context')(**options)
      _contexts[key] = context
  runtime.set_default_context(context)
  return context


def _get(key: Hashable, make: Callable[[], Any]) -> Any:
  try:
    hash(key)
  except TypeError:  # An object of somebody's own, such as an aggregator.
    return make()
  with _lock:
    if key not in _kept:
      _kept[key] = make()
    return _kept[key]


def model_key(settings: settings_lib.Settings, task: Any) -> Hashable:
  """Returns the key of the graph of a task's model.

  Args:
    settings: The run.
    task: Its `tff.simulation.baselines.BaselineTask`.
  """
  info = tasks.info(settings.task)
  outside: frozenset[str] = getattr(info.options, 'outside_graph', frozenset())
  options = {
    name: value
    for name, value in settings.task_options.items()
    if name not in outside
  }
  # Functions of somebody's own may be defined anew, in a notebook for one.
  functions = [
    own_code.load(place)
    for place in (info.place, *(options[name] for name in info.functions))
    if place
  ]
  return (
    info.options,
    settings.task,
    tuple(options.items()),
    tuple(functions),
    settings.freeze,
    *(
      getattr(settings, name)
      for name in general.AsGiven.__dataclass_fields__
      if name.startswith('adapter')
    ),
    repr(task.datasets.element_type_structure),
  )
