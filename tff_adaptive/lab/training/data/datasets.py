"""The data of a round's clients, and those that models are evaluated on.

A client's raw examples are read once and kept as tensors within a memory
budget; every round they go through the task's preprocessing under a seed of
their own. Reading and preprocessing are each traced by TensorFlow once for the
whole run, not once a client: tracing costs more than the work itself.
"""

import collections
import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TypeAlias
from typing import TypeVar
from typing import Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import preprocessing
from tff_adaptive import errors
from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive.lab.training import seeds as randomness

# Examples are read in chunks of about so many bytes: tf.data may set aside the
# memory of a whole batch before it knows how many examples there are.
_CHUNK_BYTES = 4 * 2**20
_MOST_IN_CHUNK = 1024


# The batches of a client, or of a split: what a model is given one by one.
Batches: TypeAlias = Union[tf.data.Dataset, Sequence[structures.Examples]]

_Read = TypeVar('_Read')


@dataclasses.dataclass(frozen=True)
class CohortData:
  """The data that the clients of a round train on.

  Attributes:
    batches: Each client's, in the cohort's order: a dataset, or a list of
      batches. A client whose data cannot be read has none.
    failures: Clients whose data could not be read, and why.
  """

  batches: list[Batches]
  failures: dict[str, str]

  @classmethod
  def of(
    cls,
    cohort: Sequence[str],
    batches: Mapping[str, Batches],
    failures: dict[str, str],
  ) -> 'CohortData':
    """Puts batches by client in the cohort's order."""
    if failures:
      nothing = without_elements(next(iter(batches.values())))
      batches = {**dict.fromkeys(failures, nothing), **batches}
    return cls([batches[client] for client in cohort], failures)


def read_each(
  cohort: Sequence[str], read: Callable[[str], _Read]
) -> tuple[dict[str, _Read], dict[str, str]]:
  """Reads something of each client.

  Args:
    cohort: The clients.
    read: Reads it of one, or raises `RunError`.

  Returns:
    Data of the clients that could be read, and errors of the others, by id.

  Raises:
    RunError: If no client's could be read.
  """
  found: dict[str, _Read] = {}
  failures: dict[str, str] = {}
  clients = dict.fromkeys(cohort)
  for client in clients:
    try:
      found[client] = read(client)
    except errors.RunError as e:
      failures[client] = str(e).rstrip('.')
      if len(failures) == len(clients):
        raise
  return found, failures


def without_elements(batches: Batches) -> Batches:
  """Returns an empty collection of batches of the same kind."""
  return batches.take(0) if isinstance(batches, tf.data.Dataset) else []


def on_other_data(
  task: tff.simulation.baselines.BaselineTask, **parts: Any
) -> tff.simulation.baselines.BaselineTask:
  """Copies a task with other training or validation data.

  Args:
    task: The task.
    **parts: `train_data`, `validation_data`.
  """
  old = task.datasets
  same = dict(train_data=old.train_data, validation_data=old.validation_data)
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    **{**same, **parts},
    test_data=old.test_data,
    train_preprocess_fn=old.train_preprocess_fn,
    eval_preprocess_fn=old.eval_preprocess_fn,
  )
  return models.CheckedTask(datasets, task.model_fn)


def has_recipe(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> bool:
  """Tells whether a task's preprocessing can be followed on arrays.

  That takes a `recipe`, as `tasks.preprocessing` makes one, and examples of one
  shape that are in a dictionary.
  """
  element = datasets.train_data.element_type_structure
  return (
    hasattr(datasets.train_preprocess_fn, 'recipe')
    and isinstance(element, Mapping)
    and all(
      isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
      for spec in tf.nest.flatten(element)
    )
  )


def nbytes(tensors: structures.Structure) -> int:
  """Measures the memory that tensors take, the bytes of strings included."""
  total = 0
  for tensor in tf.nest.flatten(tensors):
    if isinstance(tensor, np.ndarray):
      total += tensor.nbytes
    elif tensor.dtype == tf.string:
      total += int(tf.reduce_sum(tf.strings.length(tensor)))
    else:
      total += int(tf.size(tensor)) * tensor.dtype.size
  return total


def takes_seed(preprocess_fn: Optional[Callable[..., Any]]) -> bool:
  """Tells whether a task's preprocessing derives randomness from a `seed`."""
  if preprocess_fn is None:
    return False
  try:
    return 'seed' in inspect.signature(preprocess_fn).parameters
  except (TypeError, ValueError):  # A callable that Python cannot look into.
    return False


class ClientDatasets:
  """The training clients of a task, as datasets ready for a round.

  Attributes:
    client_ids: All training clients, in the task's order.
    cached_bytes: Memory that raw examples occupy now.
    prepared_ahead: Whether a round's data may be made in another thread while
      the round before trains: not where a foreign task's preprocessing looks at
      the global seed.
  """

  prepared_ahead = False

  def __init__(
    self,
    datasets: tff.simulation.baselines.BaselineTaskDatasets,
    *,
    seed: int,
    cache_bytes: int = 2 * 2**30,
    max_steps: Optional[int] = None,
  ):
    """Prepares the datasets; reads no client yet.

    Args:
      datasets: The task's. If its `train_preprocess_fn` takes `seed` (an int64
        tensor of shape [2]), all that is random in it comes from that. Another
        task's preprocessing runs under `tf.random.set_seed` instead, which is
        as repeatable but traces anew for every client.
      seed: The run's seed.
      cache_bytes: Memory for raw examples, in bytes; least recently used
        clients are dropped first. 0 disables the cache.
      max_steps: Most batches of a client in a round; all unless given.
    """
    self._max_steps = max_steps
    self._datasets = datasets
    self._clients = datasets.train_data
    self._preprocess_fn = datasets.train_preprocess_fn
    self._seed = seed
    self._budget = cache_bytes
    self._cache: collections.OrderedDict[str, Any] = collections.OrderedDict()
    self._sizes: dict[str, int] = {}
    self.client_ids = list(self._clients.client_ids)
    self.cached_bytes = 0
    # Preprocessing that ignores `seed` in part may still use operations that
    # look at the global seed while they are traced; a resumed run must find
    # the same one there.
    tf.random.set_seed(randomness.seed_32(seed, 'tracing client data'))
    self._element_spec = self._clients.element_type_structure
    # Examples of varying shape do not stack; they are not kept either.
    self._tensors = all(
      isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
      for spec in tf.nest.flatten(self._element_spec)
    )
    self._read = self._build_read()
    self._prepare = self._build_prepare()

  def _build_read(self) -> Callable[[str], tf.data.Dataset]:
    """Builds a function from a client's id to its raw examples.

    They are in chunks of stacked examples if they stack at all.
    """
    in_memory = hasattr(self._clients, 'arrays') or isinstance(
      self._clients, tff.simulation.datasets.TestClientData
    )
    if in_memory:
      # Their traceable function would copy all clients into its graph.
      read = self._clients.create_tf_dataset_for_client
      return lambda client_id: self._in_chunks(read(client_id))
    return tf.function(
      lambda client_id: self._in_chunks(
        self._clients.serializable_dataset_fn(client_id)
      ),
      input_signature=[tf.TensorSpec([], tf.string)],
    )

  def _in_chunks(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Stacks a client's examples, if they stack."""
    if not self._tensors:
      return dataset
    example = sum(
      spec.shape.num_elements() * spec.dtype.size
      for spec in tf.nest.flatten(self._element_spec)
    )
    chunk = min(max(_CHUNK_BYTES // max(example, 1), 1), _MOST_IN_CHUNK)
    return dataset.batch(chunk).with_options(preprocessing.quick_options())

  def _build_prepare(
    self,
  ) -> Callable[[structures.Structure, tf.Tensor], tf.data.Dataset]:
    """Builds a function from raw examples (tensors) and a seed to batches."""
    preprocess_fn = self._preprocess_fn
    if self._tensors:
      raw_spec = tf.nest.map_structure(
        lambda s: tf.TensorSpec([None, *s.shape], s.dtype),
        self._element_spec,
      )
      to_dataset = tf.data.Dataset.from_tensor_slices
    else:
      raw_spec = tf.data.DatasetSpec(self._element_spec)
      to_dataset = lambda dataset: dataset

    if preprocess_fn is None or takes_seed(preprocess_fn):

      def prepare(
        raw: structures.Structure, seed: tf.Tensor
      ) -> tf.data.Dataset:
        dataset = to_dataset(raw)
        if preprocess_fn is None:
          return dataset
        return preprocess_fn(dataset, seed=seed)

      return tf.function(
        prepare,
        input_signature=[raw_spec, tf.TensorSpec([2], tf.int64)],
        autograph=False,
      )

    def prepare_foreign(
      raw: structures.Structure, seed: tf.Tensor
    ) -> tf.data.Dataset:
      tf.random.set_seed(int(seed[0] % 2**31))
      return preprocess_fn(to_dataset(raw))

    return prepare_foreign

  def _raw(self, client_id: str) -> Any:
    """Returns a client's raw examples, from the cache or loaded."""
    if client_id in self._cache:
      self._cache.move_to_end(client_id)
      return self._cache[client_id]
    raw = self._load(client_id)
    if isinstance(raw, tf.data.Dataset):
      return raw
    size = nbytes([x for x in tf.nest.flatten(raw) if x is not None])
    if size <= self._budget:
      self._cache[client_id] = raw
      self._sizes[client_id] = size
      self.cached_bytes += size
      while self.cached_bytes > self._budget:
        dropped, _ = self._cache.popitem(last=False)
        self.cached_bytes -= self._sizes.pop(dropped)
    return raw

  def _load(self, client_id: str) -> Any:
    """Reads a client's raw examples: stacked tensors, or a dataset."""
    dataset = self._read(client_id)
    if not self._tensors:
      return dataset
    chunks = list(dataset)
    if chunks:
      return tf.nest.map_structure(lambda *c: tf.concat(c, axis=0), *chunks)
    # A client without a single example.
    return tf.nest.map_structure(
      lambda s: (
        tf.zeros([0, *s.shape], s.dtype)
        if s.dtype != tf.string
        else tf.constant([], tf.string, shape=[0, *s.shape])
      ),
      self._element_spec,
    )

  def for_client(self, client_id: str, round_number: int) -> tf.data.Dataset:
    """Makes the client's batches for a round.

    The same client, round and run seed give the same batches, whatever was
    asked for before.

    Raises:
      RunError: If the client's data cannot be read.
    """
    seed = randomness.seed_pair(
      self._seed, 'client data', round_number, str(client_id)
    )
    with self._reading(client_id):
      batches = self._prepare(self._raw(client_id), seed)
      return (
        batches if self._max_steps is None else batches.take(self._max_steps)
      )

  def num_examples(self, client_id: str, round_number: int) -> int:
    """Counts the examples that a client iterates in a round, all passes.

    In a task without a recipe, counting them takes making them.

    Raises:
      RunError: If the client's data cannot be read.
    """
    batches = self.for_client(client_id, round_number)
    with self._reading(client_id):
      return sum(int(tf.nest.flatten(b)[0].shape[0]) for b in batches)

  def num_batches(self, client_id: str, round_number: int) -> int:
    """Counts the batches of a client in a round; see `num_examples`."""
    batches = self.for_client(client_id, round_number)
    with self._reading(client_id):
      return sum(1 for _ in batches)

  @contextlib.contextmanager
  def _reading(self, client_id: str) -> Iterator[None]:
    """Adds the client's name to errors raised while its data are read."""
    try:
      yield
    # A task's own preprocessing may raise anything.
    except Exception as e:  # pylint: disable=broad-exception-caught
      place = getattr(self._clients, 'source', '')
      raise errors.RunError(
        f'The data of client {client_id!r}{place and f" in {place}"} cannot be '
        f'read: {errors.reason(e)}.'
      ) from e

  def for_round(self, round_number: int, cohort: Sequence[str]) -> CohortData:
    """Returns the cohort's batches, in the cohort's order.

    Raises:
      RunError: If no client's data can be read.
    """
    found, failures = read_each(
      cohort, lambda client: self.for_client(client, round_number)
    )
    return CohortData.of(cohort, found, failures)


def raw_test_split(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> tf.data.Dataset:
  """Returns the test split before preprocessing, in one order for all."""
  data = datasets.test_data
  if isinstance(data, tff.simulation.datasets.ClientData):
    data = data.create_tf_dataset_from_all_clients(seed=0)
  return data


def test_split(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
  *,
  num_examples: Optional[int] = None,
  cache_bytes: int = 2 * 2**30,
  raw: Optional[tf.data.Dataset] = None,
  name: str = 'test split',
) -> Union[tf.data.Dataset, Sequence[Any]]:
  """Returns the test split in batches, or its first examples.

  A federated test split is read client after client, the clients in an order
  that is fixed once for all runs, so that the first examples are a sample of
  the writers rather than the first writer's, and the same in every run.

  Args:
    datasets: The task's.
    num_examples: How many raw examples to take; `None` for all.
    cache_bytes: If the batches fit into this memory, they are decoded once
      and kept.
    raw: Other examples in its place, before preprocessing.
    name: What those are called in messages.

  Returns:
    Batches as the task's models take them: a list of them if they are kept,
    else a dataset.

  Raises:
    RunError: If there is no example, or it cannot be read.
  """
  data = raw_test_split(datasets) if raw is None else raw
  if num_examples is not None:
    data = data.take(num_examples)
  if datasets.eval_preprocess_fn is not None:
    data = datasets.eval_preprocess_fn(data)
  kept: list[Any] = []
  size = 0
  try:
    for batch in data:
      size += nbytes(batch)
      if size > cache_bytes:
        return data
      kept.append(batch)
  except tf.errors.OpError as e:
    raise errors.RunError(
      f'The {name} cannot be read: {errors.reason(e)}.'
    ) from e
  if not kept:
    raise errors.RunError(f'The {name} has no examples.')
  return kept
