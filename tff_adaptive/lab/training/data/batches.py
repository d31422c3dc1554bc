"""Clients' batches from arrays, without a `tf.data` pipeline per client.

For tasks whose preprocessing has a `tasks.preprocessing.Recipe`, or can be read
as one (`pipelines`). Deterministic steps are applied once per client and cached
as arrays; a round draws an order for each client of the cohort, gathers the
rows and maps those of the whole cohort in one call.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from absl import logging

from tasks import preprocessing
from tff_adaptive import structures
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import seeds
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.data import pipelines
from tff_adaptive.runtime import rows as rows_lib
from tff_adaptive.runtime import tff_functions

# Memory for the mapped batches of a cohort. A bag of words takes 40 kB a
# sentence; beyond this limit batches are mapped one at a time.
_COHORT_BYTES = 128 * 2**20


def training_clients(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
  *,
  seed: int,
  cache_bytes: int,
  as_lists: bool,
  **more: Any,
) -> data.ClientDatasets:
  """Builds a task's training clients, array-based if there is a recipe.

  Args:
    datasets, seed, cache_bytes, as_lists: As `ClientBatches` takes them.
    **more: Its further arguments; `one_pass` is ignored without a recipe.
  """
  recipe = _recipe_of(datasets)
  if recipe is not None:
    return ClientBatches(
      datasets,
      recipe,
      seed=seed,
      cache_bytes=cache_bytes,
      as_lists=as_lists,
      **more,
    )
  more.pop('one_pass', None)
  return data.ClientDatasets(
    datasets, seed=seed, cache_bytes=cache_bytes, **more
  )


def _recipe_of(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> Optional[preprocessing.Recipe]:
  """Returns the recipe of a task's preprocessing, or what can be read as one.

  Examples must be stacked, so they need static shapes.
  """
  element = datasets.train_data.element_type_structure
  function = datasets.train_preprocess_fn
  if function is None or not data.can_be_stacked(element):
    return None
  recipe: Optional[preprocessing.Recipe] = getattr(function, 'recipe', None)
  if recipe is not None:
    return recipe if isinstance(element, Mapping) else None
  if data.takes_seed(function):
    return None  # It derives its randomness itself, and is traced once.
  recipe, reason = pipelines.read(function, element)
  if reason:
    logging.warning(
      'Clients are preprocessed by tf.data, some 10 ms for each client and '
      'round, because its pipeline cannot be read: %s.',
      reason.partition('\n')[0].rstrip('.'),
    )
  return recipe


class _Functions(NamedTuple):
  """Functions from rows to the model's input, traced when they are called.

  Attributes:
    at_once: Maps the rows of several clients.
    augmented: Maps them with the seed of each batch.
    stream: Builds a dataset of a client's batches.
  """

  at_once: Callable[..., Any]
  augmented: Callable[..., Any]
  stream: Callable[..., tf.data.Dataset]


class ClientBatches(data.ClientDatasets):
  """The training clients of a task with a recipe.

  A round's batches are a function of the run's seed, the client and the round.
  They are the same as lists of tensors, which are fastest on the in-process
  runtime, and as datasets, which every runtime accepts.
  """

  prepared_ahead = True

  def __init__(
    self,
    datasets: tff.simulation.baselines.BaselineTaskDatasets,
    recipe: preprocessing.Recipe,
    *,
    seed: int,
    cache_bytes: int = 2 * 2**30,
    as_lists: bool = True,
    max_steps: Optional[int] = None,
    one_pass: bool = False,
  ):
    """Initializes the clients; reads no data yet.

    Args:
      datasets: The task's datasets.
      recipe: Their preprocessing.
      seed: The run's seed.
      cache_bytes: Memory for rows, in bytes; least recently used clients are
        dropped first.
      as_lists: Whether batches may be lists instead of datasets.
      max_steps: Maximum number of batches per client and round; `None` for all.
      one_pass: Whether a round is one pass over all of a client's examples,
        overriding the task's epochs and maximum number of examples.
    """
    super().__init__(
      datasets, seed=seed, cache_bytes=cache_bytes, max_steps=max_steps
    )
    self._recipe = recipe
    if one_pass:
      self._recipe = dataclasses.replace(
        self._recipe, epochs=1, max_elements=None
      )
    self._as_lists = as_lists
    # Size of one mapped row.
    self._row_bytes = sum(
      spec.dtype.size * (spec.shape[1:].num_elements() or 0)
      for spec in tf.nest.flatten(datasets.element_type_structure)
    )
    # Built with the first rows, which determine the shapes.
    self._functions: Optional[_Functions] = None
    self._places: dict[str, int] = {}
    # Examples that are in memory already need not be read or cached.
    if hasattr(self._clients, 'arrays') and self._recipe.prepare_fn is None:
      names = self._clients.partition.client_ids
      self._places = {name: place for place, name in enumerate(names)}

  def _load(self, client_id: str) -> tuple[Any, Any]:
    """Returns a client's rows and the row offsets of its examples.

    Rows are NumPy arrays (strings are tensors). Offsets are int64
    [examples + 1]; `None` if each example is one row.
    """
    raw = super()._load(client_id)
    prepare = self._recipe.prepare_fn
    if prepare is None:
      return tf.nest.map_structure(_as_array, raw), None
    rows = prepare(raw)
    bounds = None
    if self._recipe.many_rows:
      rows, counts = rows
      bounds = np.concatenate([[0], np.cumsum(counts)])
    return tf.nest.map_structure(_as_array, rows), bounds

  def _draw(self, client_id: str, round_number: int) -> tuple[Any, Any]:
    """Returns rows, and the indices of those that a client iterates."""
    most = self._max_steps and self._max_steps * self._recipe.batch_size
    seed = seeds.seed_pair(
      self._seed, 'client order', round_number, str(client_id)
    )
    if client_id in self._places:
      members = self._clients.partition.indices[self._places[client_id]]
      order = members[self._recipe.order(len(members), seed)][:most]
      return self._clients.arrays, order
    rows, bounds = self._raw(client_id)
    if bounds is None:
      order = self._recipe.order(tf.nest.flatten(rows)[0].shape[0], seed)
    else:
      examples = self._recipe.order(len(bounds) - 1, seed)
      order = np.concatenate(
        [
          np.zeros([0], np.int64),
          *(np.arange(bounds[e], bounds[e + 1]) for e in examples),
        ]
      )
    return rows, order[:most]

  def num_examples(self, client_id: str, round_number: int) -> int:
    with self._reading(client_id):
      return len(self._draw(client_id, round_number)[1])

  def num_batches(self, client_id: str, round_number: int) -> int:
    count = self.num_examples(client_id, round_number)
    return -(-count // self._recipe.batch_size)

  def for_client(self, client_id: str, round_number: int) -> data.Batches:
    """Returns the client's batches for a round.

    Raises:
      RunError: If the client's data cannot be read.
    """
    return self.for_round(round_number, [client_id]).batches[0]

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data.CohortData:
    """Returns the cohort's batches, in the cohort's order.

    Raises:
      RunError: If no client's data can be read.
    """

    def read(client: str) -> tuple[Any, Any]:
      with self._reading(client):
        return self._draw(client, round_number)

    drawn, failures = data.read_each(cohort, read)
    made = zip(drawn, self._finish(drawn, round_number), strict=True)
    return data.CohortData.of(cohort, dict(made), failures)

  def _finish(
    self, drawn: Mapping[str, tuple[Any, Any]], round_number: int
  ) -> list[data.Batches]:
    """Gathers and maps clients' rows and divides them into batches.

    Args:
      drawn: Rows, and the indices of those to iterate, by client.
      round_number: The round.
    """
    if not drawn:
      return []
    if self._functions is None:
      rows, _ = next(iter(drawn.values()))
      spec = tf.nest.map_structure(
        lambda array: tf.TensorSpec(
          [None] * array.ndim
          if self._recipe.ragged
          else [None, *array.shape[1:]],
          array.dtype,
        ),
        rows,
      )
      self._functions = reuse.beside(
        self._recipe, repr(spec), lambda: _functions_of(self._recipe, spec)
      )
    functions = self._functions
    sizes = {client: len(order) for client, (_, order) in drawn.items()}
    most = sum(sizes.values()) * self._row_bytes
    # A client without rows has no batch to augment.
    can_augment = self._recipe.augment_fn is None or all(sizes.values())
    if not (self._as_lists and most <= _COHORT_BYTES and can_augment):
      return [
        functions.stream(_take(*own), self._seed_of(client, round_number))
        for client, own in drawn.items()
      ]
    if self._recipe.ragged:
      return [
        self._divided(
          functions, _take(*own), {client: sizes[client]}, round_number
        )[0]
        for client, own in drawn.items()
      ]
    together = _take_together(list(drawn.values()))
    return self._divided(functions, together, sizes, round_number)

  def _seed_of(self, client_id: str, round_number: int) -> np.ndarray:
    return seeds.seed_pair(
      self._seed, 'client data', round_number, str(client_id)
    )

  def _divided(
    self,
    functions: _Functions,
    rows: structures.Structure,
    sizes_of: Mapping[str, int],
    round_number: int,
  ) -> list[data.Batches]:
    """Maps the rows of some clients, one's after another's, and divides them.

    Args:
      functions: The recipe's functions.
      rows: The rows.
      sizes_of: Number of rows by client, in the order of `rows`.
      round_number: The round.
    """
    batch_size = self._recipe.batch_size
    sizes = list(sizes_of.values())
    ends = np.cumsum(sizes)
    if self._recipe.augment_fn is None:
      mapped = functions.at_once(rows)
    else:
      begins = [np.arange(0, size, batch_size) for size in sizes]
      counts = [len(own) for own in begins]
      first = np.repeat(ends - sizes, counts) + np.concatenate(begins)
      last = np.minimum(first + batch_size, np.repeat(ends, counts))
      own_seeds = [self._seed_of(client, round_number) for client in sizes_of]
      mapped = functions.augmented(
        rows,
        first,
        last,
        np.repeat(np.stack(own_seeds), counts, axis=0),
        np.concatenate([np.arange(count) for count in counts]),
      )
    return [
      rows_lib.RowBatches(mapped, batch_size, end - size, end)
      for size, end in zip(sizes, ends.tolist(), strict=True)
    ]


def _functions_of(
  recipe: preprocessing.Recipe, rows_spec: structures.Structure
) -> _Functions:
  """Builds a recipe's functions of rows."""
  map_fn: Any = recipe.map_fn
  augment_fn: Any = recipe.augment_fn
  batch_size = recipe.batch_size

  def augment(
    batch: structures.Structure, seed: tf.Tensor, index: tf.Tensor
  ) -> structures.Examples:
    return augment_fn(batch, preprocessing.batch_seed(seed, index))

  # Both lists and datasets are mapped inside `tf.data`, so that they agree to
  # the bit: TensorFlow rewrites arithmetic in functions (a division by a
  # constant to a product), but not inside datasets.
  def at_once(rows: structures.Structure) -> structures.Examples:
    if map_fn is None:
      return rows
    return tf.data.Dataset.from_tensors(rows).map(map_fn).get_single_element()

  def augmented(
    rows: structures.Structure, *batches: tf.Tensor
  ) -> structures.Examples:
    def augment_one(
      begin: tf.Tensor, end: tf.Tensor, seed: tf.Tensor, index: tf.Tensor
    ) -> structures.Examples:
      own = tf.nest.map_structure(lambda array: array[begin:end], rows)
      return augment(own, seed, index)

    dataset = tf.data.Dataset.from_tensor_slices(batches).map(augment_one)
    dataset = dataset.unbatch().batch(batches[1][-1])
    dataset = dataset.with_options(preprocessing.quick_options())
    return dataset.get_single_element()

  def stream(rows: structures.Structure, seed: tf.Tensor) -> tf.data.Dataset:
    dataset = tf.data.Dataset.from_tensor_slices(rows).batch(batch_size)
    if augment_fn is not None:
      dataset = dataset.enumerate().map(lambda i, b: augment(b, seed, i))
    elif map_fn is not None:
      dataset = dataset.map(map_fn)
    return dataset.with_options(preprocessing.quick_options())

  trace = lambda fn, *specs: preprocessing.on_host(
    tff_functions.DirectFunction(fn, input_signature=specs, autograph=False)
  )
  numbers, pairs = (tf.TensorSpec(s, tf.int64) for s in ([None], [None, 2]))
  return _Functions(
    trace(at_once, rows_spec),
    trace(augmented, rows_spec, numbers, numbers, pairs, numbers),
    trace(stream, rows_spec, tf.TensorSpec([2], tf.int64)),
  )


def _as_array(tensor: Any) -> Any:
  """Converts to a NumPy array, except for string tensors."""
  if isinstance(tensor, tf.Tensor) and tensor.dtype == tf.string:
    return tensor
  return np.asarray(tensor)


def _take(rows: Any, order: np.ndarray) -> Any:
  """Gathers rows of each array of a structure, by indices."""
  return tf.nest.map_structure(
    lambda a: a[order] if isinstance(a, np.ndarray) else tf.gather(a, order),
    rows,
  )


def _take_together(drawn: Sequence[tuple[Any, Any]]) -> Any:
  """Gathers the rows of all clients, one client's after another's.

  Args:
    drawn: Rows and their indices, for each client.
  """
  shared, _ = drawn[0]
  if all(rows is shared for rows, _ in drawn):
    return _take(shared, np.concatenate([order for _, order in drawn]))
  return tf.nest.map_structure(_concatenated, *(_take(*own) for own in drawn))


def _concatenated(*arrays: Any) -> Any:
  """Concatenates arrays or tensors along the first axis."""
  if len(arrays) == 1:
    return arrays[0]
  if isinstance(arrays[0], np.ndarray):
    return np.concatenate(arrays)
  return tf.concat(arrays, axis=0)
