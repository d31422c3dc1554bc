"""Caches of tasks, processes and the like, for runs in a Python process.

Composing and tracing a round takes seconds, and runs that differ only in seeds,
rates and the like have the same graph. The first run of a structure builds it,
and further runs start from states of their own; structures are those of
`MethodConfiguration.structure`. A few are cached, and the least recently used
is dropped first.
"""

import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Mapping, MutableMapping
from typing import Any, Optional, TypeVar

import cachetools

import tasks
from tasks import user_tasks
from tff_adaptive import runtime
from tff_adaptive.lab.flags import general
from tff_adaptive.lab.flags import settings as settings_lib

# A process of a small model takes about 50 MB, including TensorFlow's caches.
MOST_STRUCTURES = 8
# Memory for initial weights, in bytes.
_WEIGHTS_BYTES = 256 * 2**20

_Value = TypeVar('_Value')
_lock = threading.RLock()
_kept: MutableMapping[Hashable, Any] = cachetools.LRUCache(4 * MOST_STRUCTURES)
_weights: MutableMapping[Hashable, Any] = cachetools.LRUCache(
  _WEIGHTS_BYTES,
  getsizeof=lambda made: sum(
    w.nbytes for w in (*made.trainable, *made.non_trainable)
  ),
)
# Of a sweep's seeds; those of files, which may be large, are not cached.
_tasks: MutableMapping[Hashable, Any] = cachetools.LRUCache(8)
_contexts: MutableMapping[tuple[int, str, str], Any] = cachetools.LRUCache(1)
_beside: MutableMapping[Any, dict[Hashable, Any]] = weakref.WeakKeyDictionary()
_traces = 0


def traces() -> int:
  """Returns the number of learning processes traced in this Python process."""
  return _traces


def clear() -> None:
  """Clears all caches."""
  with _lock:
    for cache in (_kept, _weights, _tasks, _contexts, _beside):
      cache.clear()


def task(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns a prepared task, prepared on first use."""
  return _get(key, make, _tasks)


def beside(owner: Any, key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns what was made of an object, for as long as that is used.

  Args:
    owner: The object, such as a prepared task's datasets.
    key: Tells apart what is made of it.
    make: Makes it, without keeping `owner`.
  """
  with _lock:
    try:
      made = _beside.setdefault(owner, {})
    except TypeError:  # Of a user's functions that are unhashable.
      return make()
    return _get(key, make, made)


def process(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns the learning process of a structure, composed on first use.

  Args:
    key: The structure; not cached if unhashable.
    make: Composes the process.
  """

  def traced() -> _Value:
    global _traces
    made = make()
    _traces += 1
    return made

  return _get(('process', key), traced)


def evaluator(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns the evaluator of a model, built on first use."""
  return _get(('evaluator', key), make)


def initial_weights(key: Hashable, make: Callable[[], _Value]) -> _Value:
  """Returns initial weights, drawn on first use; cached up to 256 MB.

  Args:
    key: Model and seed; not cached if unhashable.
    make: Draws them, as arrays.
  """
  return _get(key, make, _weights)


def template(process: Any) -> Any:
  """Returns the initial state of a process, computed once."""
  return of_process(process, _initialize)


def _initialize(process: Any) -> Any:
  return process.initialize()


def of_process(process: Any, compute: Callable[[Any], _Value]) -> _Value:
  """Returns the value of a function of a process, computed once.

  Args:
    process: The process.
    compute: The function; exceptions are not cached.
  """
  # Cached with the process, whose id stays unique while it is referenced.
  key = ('of process', id(process), compute)
  return _get(key, lambda: (process, compute(process)))[1]


def set_context(kind: str, options: Mapping[str, Any]) -> Any:
  """Sets and returns TFF's default context.

  A context owns compiled computations and actors on other machines, so the last
  context is reused if it was created with the same options.

  Args:
    kind: As in `runtime.create_<kind>_context`.
    options: Keyword arguments of that function.
  """
  key = (os.getpid(), kind, repr(sorted(options.items())))
  with _lock:
    context = _contexts.get(key)
    if context is None or context.is_closed:
      for (pid, before, _), other in _contexts.items():
        if pid == os.getpid() and before != 'in_process':
          other.close()  # Ends its worker, or releases its actors' cores.
      context = getattr(runtime, f'create_{kind}_context')(**options)
      _contexts[key] = context
  runtime.set_default_context(context)
  return context


def _get(
  key: Hashable,
  make: Callable[[], Any],
  cache: MutableMapping[Hashable, Any] = _kept,
) -> Any:
  try:
    hash(key)
  except TypeError:  # A user's unhashable object, such as an aggregator.
    return make()
  with _lock:
    if key in cache:
      return cache[key]
    made = make()
    # Raised by cachetools for what is larger than the whole cache.
    with contextlib.suppress(ValueError):
      cache[key] = made
    return made


def fingerprint(task: Any) -> Optional[str]:
  """Returns the fingerprint of a task's data, read once."""
  from tff_adaptive.lab.training.data import fingerprints  # pylint: disable=g-import-not-at-top

  return beside(
    task.datasets, 'fingerprint', lambda: fingerprints.fingerprint(task)
  )


def model_key(settings: settings_lib.Settings, task: Any) -> Hashable:
  """Returns the cache key of the graph of a task's model.

  Args:
    settings: The run's settings.
    task: Its `tff.simulation.baselines.BaselineTask`.
  """
  info = tasks.info(settings.task)
  outside: frozenset[str] = getattr(info.options, 'outside_graph', frozenset())
  options = {
    name: value
    for name, value in settings.task_options.items()
    if name not in outside
  }
  # A user's functions may be redefined under the same name, as in notebooks.
  functions = [
    user_tasks.load(place)
    for place in (info.place, *(options[name] for name in info.functions))
    if place
  ]
  return (
    # Scales of labels and sizes of vocabularies follow from the data.
    fingerprint(task) if info.model_from_data else None,
    info.options,
    settings.task,
    tuple(options.items()),
    tuple(functions),
    settings.freeze,
    *(
      getattr(settings, name)
      for name in general.AsGiven.__dataclass_fields__
      if name == 'mixed_precision' or name.startswith('lora_')
    ),
    repr(task.datasets.element_type_structure),
  )
