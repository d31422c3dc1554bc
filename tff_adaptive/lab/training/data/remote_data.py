"""Training data that are read where clients train, on other machines.

A round sends client ids and its number instead of batches. Each machine builds
the run's task from its settings, reads the client's examples from its own
files, caches them, and draws their order. All of this is a function of the
settings, the client and the round, so batches are bitwise equal on all
machines.
"""

import functools
import os
import threading
import uuid
from collections.abc import (
  Callable,
  Hashable,
  Iterator,
  Mapping,
  MutableMapping,
  Sequence,
)
from typing import Any, Optional

import cachetools
import cloudpickle

from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.training.data import datasets as data_lib

# The clients of the source that this process used last, by the source's key.
_made: MutableMapping[str, data_lib.ClientDatasets] = cachetools.LRUCache(1)
_lock = threading.Lock()


class Source:
  """A picklable description of a run's training data, built on any machine."""

  def __init__(self, make: Callable[[], data_lib.ClientDatasets]):
    """Initializes the source; builds no data yet.

    Args:
      make: Builds the data. Pickled with cloudpickle.
    """
    # Pickled here, so that machines which built the data need not unpickle it.
    self._make = cloudpickle.dumps(make)
    # The folder that relative paths refer to.
    self._folder = os.getcwd()
    self._key = uuid.uuid4().hex

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Source) and other._key == self._key

  def __hash__(self) -> int:
    return hash(self._key)

  def clients(self) -> data_lib.ClientDatasets:
    """Returns the training clients, built from this machine's files.

    Raises:
      RuntimeFailure: If this machine cannot build them.
    """
    with _lock:
      if self._key not in _made:
        if os.path.isdir(self._folder):
          os.chdir(self._folder)
        make = cloudpickle.loads(self._make)
        try:
          _made[self._key] = make()
        except (errors.SettingsError, errors.RunError) as e:
          raise runtime.RuntimeFailure(str(e)) from e
      return _made[self._key]


class BatchReference(runtime.Reference):
  """A reference to a client's batches in a round, built where it trains.

  Iterating over the original, unpickled reference builds the batches locally.
  """

  def __init__(
    self,
    source: Source,
    name: str,
    round_number: int,
    work: float,
    here: Optional[Callable[[], data_lib.Batches]] = None,
  ):
    """Initializes the reference; builds no batches yet.

    Args:
      source: The run's training data.
      name: The client's id.
      round_number: The round's number.
      work: Number of the client's examples; 0 if unknown.
      here: Builds the batches in this process.
    """
    self._source = source
    self.name = name
    self.round_number = round_number
    self.work = work
    self._here = here

  def __reduce__(self) -> Any:
    return type(self), (self._source, self.name, self.round_number, self.work)

  def __iter__(self) -> Iterator[Any]:
    assert self._here is not None
    return iter(self._here())

  @property
  def source(self) -> Source:
    return self._source

  @property
  def key(self) -> Hashable:
    return self._source, self.name, self.round_number

  @classmethod
  def load(cls, references: Sequence[Any]) -> list[data_lib.Batches]:
    clients = references[0].source.clients()
    found: list[Any] = [None] * len(references)
    # In asynchronous training, clients of several rounds train together.
    for number in {r.round_number for r in references}:
      places = [i for i, r in enumerate(references) if r.round_number == number]
      names = [references[i].name for i in places]
      try:
        made = clients.for_round(number, names)
        failed = made.failures
      except errors.RunError as e:
        failed = {names[0]: str(e)}
      if failed:
        name, why = next(iter(failed.items()))
        raise runtime.ClientFailure(why, places[names.index(name)])
      for place, batches in zip(places, made.batches, strict=True):
        found[place] = batches
    return found


class RemoteClients:
  """Training clients whose batches are built where they train.

  Attributes:
    client_ids: All training clients, in the task's order.
    prepared_ahead: Whether machines may load a round's data in another thread.
  """

  def __init__(
    self,
    clients: data_lib.ClientDatasets,
    counts: Mapping[str, int],
    source: Source,
    announce: Optional[Callable[[Sequence[BatchReference]], None]] = None,
  ):
    """Initializes the clients.

    Args:
      clients: The clients in this process.
      counts: Numbers of examples by client id, as far as known.
      source: Builds the clients on other machines.
      announce: Called with the references of each round, which may be a later
        one; see `runtime.data_announcer`.
    """
    self.client_ids = clients.client_ids
    self.prepared_ahead = clients.prepared_ahead and announce is not None
    self._announce = announce
    self._clients = clients
    self._source = source
    self._counts = counts

  def for_client(self, client_id: str, round_number: int) -> BatchReference:
    """Returns a reference to a client's batches in a round."""
    here = functools.partial(self._clients.for_client, client_id, round_number)
    work = float(self._counts.get(client_id, 0))
    return BatchReference(self._source, client_id, round_number, work, here)

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data_lib.CohortData:
    """Returns references to the cohort's batches."""
    found = [self.for_client(c, round_number) for c in cohort]
    if self._announce is not None and self.prepared_ahead:
      self._announce(found)
    batches: list[Any] = list(found)
    return data_lib.CohortData(batches, {})
