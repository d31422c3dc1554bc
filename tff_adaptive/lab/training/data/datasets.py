"""Training data of a round's clients, and evaluation data.

A client's raw examples are read once and cached as tensors within a memory
budget; every round preprocesses them with a seed of its own. Reading and
preprocessing are each traced once per run, not once per client: tracing costs
more than the work itself.
"""

import concurrent.futures
import contextlib
import dataclasses
import inspect
import queue
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Optional, Protocol, TypeAlias, TypeVar, Union

import cachetools
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import preprocessing
from tff_adaptive import errors
from tff_adaptive import structures
from tff_adaptive.lab.training import seeds as randomness
from tff_adaptive.runtime import waiting

# Examples read at once: tf.data may allocate a whole batch before it knows how
# many there are.
_CHUNK = 64

# The batches of a client or of a split, in the model's input format.
Batches: TypeAlias = Union[tf.data.Dataset, Sequence[structures.Examples]]

_Read = TypeVar('_Read')


@dataclasses.dataclass(frozen=True)
class CohortData:
  """The training data of a round's clients.

  Attributes:
    batches: Each client's batches, in the cohort's order, as a dataset or a
      list; empty for a client whose data cannot be read.
    failures: Error messages of clients whose data cannot be read, by client id.
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
    """Arranges batches by client in the cohort's order."""
    if failures:
      nothing = without_elements(next(iter(batches.values())))
      batches = {**dict.fromkeys(failures, nothing), **batches}
    return cls([batches[client] for client in cohort], failures)


class Clients(Protocol):
  """Training clients with their data.

  Attributes:
    client_ids: All training clients, in the task's order.
    prepared_ahead: Whether a round's data may be prepared in another thread
      while the previous round trains.
  """

  client_ids: list[str]
  prepared_ahead: bool

  def for_round(self, round_number: int, cohort: Sequence[str]) -> CohortData:
    """Returns the cohort's batches, in the cohort's order.

    Raises:
      RunError: If no client's data can be read.
    """


def read_each(
  cohort: Sequence[str], read: Callable[[str], _Read]
) -> tuple[dict[str, _Read], dict[str, str]]:
  """Applies a function to each client, and collects results and errors.

  Args:
    cohort: Ids of the clients.
    read: Reads one client's data, or raises `RunError`.

  Returns:
    Results of the clients that could be read, and error messages of the others,
    by client id.

  Raises:
    RunError: If no client could be read.
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
  """Returns an empty dataset for a dataset, an empty list for a list."""
  return batches.take(0) if isinstance(batches, tf.data.Dataset) else []


def can_be_stacked(element_spec: structures.Structure) -> bool:
  """Returns whether all examples have the same static shapes."""
  return all(
    isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
    for spec in tf.nest.flatten(element_spec)
  )


def nbytes(tensors: structures.Structure) -> int:
  """Computes the bytes of tensors or arrays, including those of strings."""
  total = 0
  for tensor in tf.nest.flatten(tensors):
    if tensor is None:
      continue
    if isinstance(tensor, (np.ndarray, np.generic)):
      total += tensor.nbytes
    elif tensor.dtype == tf.string:
      total += int(tf.reduce_sum(tf.strings.length(tensor)))
    else:
      total += int(tf.size(tensor)) * tensor.dtype.size
  return total


def takes_seed(preprocess_fn: Callable[..., Any]) -> bool:
  """Returns whether a task's preprocessing function accepts `seed`."""
  try:
    return 'seed' in inspect.signature(preprocess_fn).parameters
  except (TypeError, ValueError):  # A callable without a signature.
    return False


class ClientDatasets:
  """The training clients of a task, as datasets of preprocessed batches.

  Attributes:
    client_ids: All training clients, in the task's order.
    cache: Raw examples by client id, limited by their bytes.
    prepared_ahead: Whether a round's data may be prepared in another thread
      while the previous round trains. False if preprocessing may depend on
      TensorFlow's global seed.
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
    """Initializes the clients; reads no data yet.

    Args:
      datasets: The task's datasets. A `train_preprocess_fn` that takes `seed`
        (an int64 tensor of shape [2]) derives all randomness from it. Any other
        is called after `tf.random.set_seed`, which is as reproducible but
        retraces for every client.
      seed: The run's seed.
      cache_bytes: Memory for raw examples, in bytes; least recently used
        clients are dropped first. 0 disables the cache.
      max_steps: Maximum number of batches per client and round; `None` for all.
    """
    self._max_steps = max_steps
    self._datasets = datasets
    self._clients = datasets.train_data
    self._preprocess_fn = datasets.train_preprocess_fn
    self._seed = seed
    self.cache: Any = cachetools.LRUCache(cache_bytes, getsizeof=nbytes)
    self.client_ids = list(self._clients.client_ids)
    if not self.prepared_ahead:
      # Preprocessing may use operations that read the global seed while they
      # are traced; a resumed run must find the same value. Setting it makes
      # TensorFlow forget what it has compiled, so the next round is slow.
      tf.random.set_seed(randomness.seed_32(seed, 'tracing client data'))
    self._element_spec = self._clients.element_type_structure
    # Examples of varying shape can be neither stacked nor cached.
    self._tensors = can_be_stacked(self._element_spec)
    self._read = self._build_read()
    self._prepare = self._build_prepare()

  def _build_read(self) -> Callable[[str], tf.data.Dataset]:
    """Builds a function from a client's id to its raw examples.

    These are stacked in chunks if all have the same static shape.
    """
    in_memory = hasattr(self._clients, 'arrays') or isinstance(
      self._clients, tff.simulation.datasets.TestClientData
    )
    if in_memory:
      # `serializable_dataset_fn` would copy all clients into its graph.
      read = self._clients.create_tf_dataset_for_client
      return lambda client_id: self._in_chunks(read(client_id))
    return preprocessing.traced_on_host(
      lambda client_id: self._in_chunks(
        self._clients.serializable_dataset_fn(client_id)
      ),
      [tf.TensorSpec([], tf.string)],
      autograph=True,
    )

  def _in_chunks(self, dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Batches a client's examples into chunks, if they have static shapes."""
    if not self._tensors:
      return dataset
    return dataset.batch(_CHUNK).with_options(preprocessing.quick_options())

  def _build_prepare(
    self,
  ) -> Callable[[structures.Structure, tf.Tensor], tf.data.Dataset]:
    """Builds a function from raw examples and a seed to batches."""
    preprocess_fn = self._preprocess_fn or (lambda dataset, seed=None: dataset)
    if self._tensors:
      raw_spec = tf.nest.map_structure(
        lambda s: tf.TensorSpec([None, *s.shape], s.dtype),
        self._element_spec,
      )
      to_dataset = tf.data.Dataset.from_tensor_slices
    else:
      raw_spec = tf.data.DatasetSpec(self._element_spec)
      to_dataset = lambda dataset: dataset

    if takes_seed(preprocess_fn):

      def prepare(
        raw: structures.Structure, seed: tf.Tensor
      ) -> tf.data.Dataset:
        return preprocess_fn(to_dataset(raw), seed=seed)

      return preprocessing.traced_on_host(
        prepare, [raw_spec, tf.TensorSpec([2], tf.int64)]
      )

    def prepare_foreign(
      raw: structures.Structure, seed: tf.Tensor
    ) -> tf.data.Dataset:
      tf.random.set_seed(int(seed[0] % 2**31))
      return preprocess_fn(to_dataset(raw))

    return prepare_foreign

  def _raw(self, client_id: str) -> Any:
    """Returns a client's raw examples, cached or loaded."""
    if client_id in self.cache:
      return self.cache[client_id]
    raw = self._load(client_id)
    if not isinstance(raw, tf.data.Dataset):
      # Raised by cachetools for what is larger than the whole cache.
      with contextlib.suppress(ValueError):
        self.cache[client_id] = raw
    return raw

  def _load(self, client_id: str) -> Any:
    """Loads a client's raw examples: stacked tensors, or a dataset."""
    stacked = getattr(self._clients, 'stacked', None)
    if self._tensors and stacked is not None:
      return stacked(client_id)
    dataset = self._read(client_id)
    if not self._tensors:
      return dataset
    chunks = list(dataset)
    if chunks:
      return tf.nest.map_structure(lambda *c: tf.concat(c, axis=0), *chunks)
    # A client without examples.
    return tf.nest.map_structure(
      lambda s: tf.zeros([0, *s.shape], s.dtype), self._element_spec
    )

  def for_client(self, client_id: str, round_number: int) -> tf.data.Dataset:
    """Returns the client's batches for a round.

    These are a function of the run's seed, the client and the round.

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
    """Counts the examples that a client iterates in a round, over all epochs.

    Without a recipe, this preprocesses all of them.

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
    """Converts errors inside the block to a `RunError` naming the client."""
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
  """Returns the test split before preprocessing, in a fixed order."""
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
  """Returns batches of the test split, or of its first examples.

  A federated test split is read client by client, in an order of clients that
  is shuffled but the same in every run, so that the first examples come from a
  random sample of clients.

  Args:
    datasets: The task's datasets.
    num_examples: Number of raw examples to take; `None` for all.
    cache_bytes: Batches that fit into this memory, in bytes, are decoded once
      and cached.
    raw: Examples before preprocessing; the test split by default.
    name: Name of these examples in error messages.

  Returns:
    Batches in the model's input format: a list if cached, else a dataset.

  Raises:
    RunError: If there are no examples, or they cannot be read.
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


# A cohort and its batches. It is drawn in the thread as well, because which
# clients answer in time may depend on their numbers of examples.
_Prepared: TypeAlias = concurrent.futures.Future[tuple[list[str], CohortData]]


class Prefetcher:
  """Training clients whose next round is prepared in a thread.

  Only one round is prepared ahead, so that at most two cohorts' batches are in
  memory. An error in the thread is raised by `for_round` of that round. Any
  other round than the prepared one is built on request, so the order of calls
  affects only their duration.
  """

  def __init__(
    self,
    clients: Clients,
    cohort_fn: Callable[[int], Sequence[str]],
    last_round: int,
  ):
    """Initializes the prefetcher; starts no thread yet.

    Args:
      clients: The training clients.
      cohort_fn: Maps a round's number (1, 2, ...) to its clients' ids.
      last_round: Number of the last round to prepare.
    """
    self._clients = clients
    self._cohort_fn = cohort_fn
    self._last_round = last_round if clients.prepared_ahead else 0
    self._expected: Optional[int] = None
    self._found: _Prepared
    self._rounds: Optional[queue.SimpleQueue] = None

  def for_round(self, round_number: int, cohort: Sequence[str]) -> CohortData:
    """Returns the cohort's batches, and starts preparing the next round.

    Raises:
      RunError: If no client's data can be read.
    """
    expected, self._expected = self._expected, None
    found = None
    if expected == round_number:
      prepared, data_of_prepared = waiting.result_of(self._found)
      if prepared == list(cohort):
        found = data_of_prepared
    elif expected is not None:  # The clients are not thread-safe.
      concurrent.futures.wait([self._found])
    if found is None:
      found = self._clients.for_round(round_number, cohort)
    if round_number < self._last_round:
      self._begin(round_number + 1)
    return found

  def _begin(self, round_number: int) -> None:
    self._expected = round_number
    self._found = concurrent.futures.Future()
    if self._rounds is None:
      self._rounds = queue.SimpleQueue()
      # A daemon, so that data that hang do not keep a stopped program alive.
      threading.Thread(
        target=_prepare,
        args=(self._rounds, self._clients, self._cohort_fn),
        name='data of the next round',
        daemon=True,
      ).start()
      weakref.finalize(self, self._rounds.put, None)
    self._rounds.put((round_number, self._found))


def _prepare(
  rounds: queue.SimpleQueue,
  clients: Clients,
  cohort_fn: Callable[[int], Sequence[str]],
) -> None:
  """Prepares the rounds of a queue, until it gives `None`."""
  while (asked := rounds.get()) is not None:
    round_number, found = asked
    try:
      cohort = list(cohort_fn(round_number))
      found.set_result((cohort, clients.for_round(round_number, cohort)))
    except BaseException as e:  # pylint: disable=broad-exception-caught
      found.set_exception(e)
    del asked, found  # Holds no cohort's data while it waits.
