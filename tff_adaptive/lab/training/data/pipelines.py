"""Reading a user's `tf.data` pipeline as a recipe on arrays.

Building and iterating a pipeline takes some ten milliseconds for each client
and round. Where a `train_preprocess_fn` only maps, shuffles, repeats, takes and
batches, the same is done on arrays: each client's examples are mapped once, and
a round draws their order.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Optional

import tensorflow as tf

from tasks import preprocessing

_NO_LIMIT = 2**31


class _Unreadable(Exception):
  """Raised for a pipeline of other steps; its text is the reason."""


@dataclasses.dataclass(frozen=True)
class _Pipeline:
  """Stands for the dataset that is passed to a preprocessing function.

  Attributes:
    maps: The functions that map an example, in their order.
    options: The steps so far, as arguments of `Recipe`.
  """

  maps: tuple[Callable[..., Any], ...] = ()
  options: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  def _with(self, step: str, *after: str, **options: Any) -> '_Pipeline':
    if blocked := [name for name in after if name in self.options]:
      raise _Unreadable(f'{step} follows {blocked[0]}')
    return dataclasses.replace(self, options={**self.options, **options})

  def map(
    self, map_func: Callable[..., Any], *_: Any, **__: Any
  ) -> '_Pipeline':
    made = self._with('map', 'batch_size')
    return dataclasses.replace(made, maps=(*self.maps, map_func))

  def shuffle(
    self,
    buffer_size: int,
    seed: Any = None,
    reshuffle_each_iteration: Optional[bool] = None,
    name: Any = None,
  ) -> '_Pipeline':
    del seed, name  # Orders follow from the run's seed.
    if reshuffle_each_iteration is False:
      raise _Unreadable('shuffle keeps its order')
    return self._with(
      'shuffle',
      *('shuffle', 'epochs', 'max_elements', 'batch_size'),
      shuffle=True,
      buffer_size=int(buffer_size),
    )

  def repeat(
    self, count: Optional[int] = None, name: Any = None
  ) -> '_Pipeline':
    epochs = _NO_LIMIT if count is None or int(count) < 0 else int(count)
    return self._with(
      'repeat', 'epochs', 'max_elements', 'batch_size', epochs=epochs
    )

  def take(self, count: int, name: Any = None) -> '_Pipeline':
    if int(count) < 0:
      return self  # All of them.
    if {'shuffle', 'epochs'} & {*self.options}:
      return self._with(
        'take', 'max_elements', 'batch_size', max_elements=int(count)
      )
    return self._with('take', 'first', 'batch_size', first=int(count))

  def batch(
    self, batch_size: int, drop_remainder: bool = False, *_: Any, **__: Any
  ) -> '_Pipeline':
    if drop_remainder:
      raise _Unreadable('batch drops the remainder')
    return self._with('batch', 'batch_size', batch_size=int(batch_size))

  def __getattr__(self, name: str) -> Any:
    if name.startswith('__'):
      raise AttributeError(name)
    raise _Unreadable(f'it uses `{name}`')

  def prefetch(self, *_: Any, **__: Any) -> '_Pipeline':
    return self

  def with_options(self, *_: Any, **__: Any) -> '_Pipeline':
    return self


def read(
  preprocess_fn: Callable[..., Any], element_spec: Any
) -> tuple[Optional[preprocessing.Recipe], str]:
  """Reads a preprocessing function as a recipe.

  Args:
    preprocess_fn: Maps a dataset of examples to one of batches.
    element_spec: The examples' structure, of static shapes.

  Returns:
    The recipe and '', or `None` and why it cannot be read.
  """
  try:
    found = preprocess_fn(_Pipeline())
    if not isinstance(found, _Pipeline):
      raise _Unreadable(f'it returns a {type(found).__name__}')
    options = dict(found.options)
    if 'batch_size' not in options:
      raise _Unreadable('it has no batches')
    if options.get('epochs') == _NO_LIMIT and 'max_elements' not in options:
      raise _Unreadable('it repeats without end')
    options.setdefault('shuffle', False)
    prepare_fn = _applied(found.maps, element_spec) if found.maps else None
    return preprocessing.Recipe(prepare_fn=prepare_fn, **options), ''
  # Whatever a user's function may raise when it is given no dataset.
  except Exception as e:
    return None, str(e)


def _applied(
  maps: tuple[Callable[..., Any], ...], element_spec: Any
) -> Callable[[Any], Any]:
  """Builds the function that maps a client's stacked examples."""

  def mapped(stacked: Any) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(stacked)
    for function in maps:
      dataset = dataset.map(function)
    return dataset.with_options(preprocessing.quick_options())

  def all_of(stacked: Any) -> Any:
    count = tf.shape(tf.nest.flatten(stacked)[0], tf.int64)[0]
    return mapped(stacked).batch(count).get_single_element()

  stacked_spec = tf.nest.map_structure(
    lambda s: tf.TensorSpec([None, *s.shape], s.dtype), element_spec
  )
  traced = tf.function(all_of, [stacked_spec]).get_concrete_function()
  shapes = [s.shape[1:] for s in tf.nest.flatten(traced.structured_outputs)]
  if not all(shape.is_fully_defined() for shape in shapes):
    raise _Unreadable('shapes of examples differ')
  library = traced.graph.as_graph_def().library
  if any(function.signature.is_stateful for function in library.function):
    raise _Unreadable('a map draws random numbers, or has a state')
  prepare = preprocessing.traced_on_host(all_of, [stacked_spec], autograph=True)

  def of_client(stacked: Any) -> Any:
    if tf.nest.flatten(stacked)[0].shape[0]:
      return prepare(stacked)
    return tf.nest.map_structure(
      lambda s: tf.zeros([0, *s.shape[1:]], s.dtype), traced.structured_outputs
    )

  return of_client
