"""Training data that are read where clients train, on other machines.

A round then sends a client's id and the number of the round. Each machine makes
the run's task from its settings, reads the client's examples from its own
files, keeps them, and draws their order: all of that is a function of the
settings, the client and the round, so the batches are those of any other
machine to the bit.
"""

import functools
import os
import threading
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import MutableMapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TYPE_CHECKING

import cachetools
import cloudpickle

import tasks
from tasks.formats import sqlite_files
from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training.data import datasets as data_lib

if TYPE_CHECKING:
  from tff_adaptive.runtime.cluster import shared_files

# The clients of the last source that this process loaded anything from.
_made: MutableMapping[str, data_lib.ClientDatasets] = cachetools.LRUCache(1)
_lock = threading.Lock()


class Source:
  """A run's training data, to be made on any machine."""

  def __init__(
    self,
    make: Callable[[Optional[str]], data_lib.ClientDatasets],
    folder: Optional[str] = None,
    files: Optional['shared_files.SharedFiles'] = None,
  ):
    """Makes nothing yet.

    Args:
      make: Makes them from the files in a folder, or where `None` is given in
        the run's own; cloudpickle can pickle it.
      folder: The run's own.
      files: Those files, for machines that lack them; `None` if they are none
        or too large.
    """
    self._data_folder = folder
    self._files = files
    # Text, which costs little where it has been read before.
    self._make = cloudpickle.dumps(make)
    # That relative paths of files begin in.
    self._folder = os.getcwd()
    self._key = uuid.uuid4().hex

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Source) and other._key == self._key

  def __hash__(self) -> int:
    return hash(self._key)

  def clients(self) -> data_lib.ClientDatasets:
    """Returns the training data as this machine has them.

    Raises:
      RuntimeFailure: If it does not.
    """
    with _lock:
      if self._key not in _made:
        if os.path.isdir(self._folder):
          os.chdir(self._folder)
        make = cloudpickle.loads(self._make)
        try:
          try:
            _made[self._key] = make(None)
          except errors.SettingsError:
            if self._are_here():
              raise
            assert self._files is not None
            _made[self._key] = make(str(self._files.write()))
        except (errors.SettingsError, errors.RunError) as e:
          raise runtime.RuntimeFailure(str(e)) from e
      return _made[self._key]

  def _are_here(self) -> bool:
    """Returns whether this machine has the files, or nobody could send them."""
    folder = sqlite_files.cache_folder(self._data_folder)
    return self._files is None or self._files.are_in(folder)


def source_of(
  settings: settings_lib.Settings,
  make: Callable[
    [settings_lib.Settings, Optional[str]], data_lib.ClientDatasets
  ],
) -> Source:
  """Returns a run's training data, with its files if they are small.

  Args:
    settings: The run. Files go into the store only with Ray.
    make: Makes the data, from the files in a folder if one is given.
  """
  folder = settings.task_options.get('cache_dir')
  files = None
  if (
    settings.runtime == 'ray'
    and settings.task_options.get('data') != 'synthetic'
  ):
    from tff_adaptive.runtime.cluster import shared_files

    patterns = []
    for name in tasks.info(settings.task).files:
      # What lies in a folder belongs together, packed or not.
      inside = name.rpartition('/')[0]
      patterns += [f'{inside}/*'] if inside else [name, f'datasets/{name}']
    files = shared_files.share(sqlite_files.cache_folder(folder), patterns)
  return Source(functools.partial(make, settings), folder, files)


class ClientBatches(runtime.Reference):
  """The batches of a client in a round, to be made where it trains.

  Where they are iterated over, here, they are made here.
  """

  def __init__(
    self,
    source: Source,
    name: str,
    round_number: int,
    work: float,
    here: Optional[Callable[[], data_lib.Batches]] = None,
  ):
    """Makes nothing yet.

    Args:
      source: The run's data.
      name: The client's id.
      round_number: The round.
      work: Its examples; 0 if they have not been counted.
      here: Makes the batches in this process.
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

  @classmethod
  def load(cls, references: Sequence[Any]) -> list[data_lib.Batches]:
    clients = references[0].source.clients()
    found: list[Any] = [None] * len(references)
    # In asynchronous training clients of several rounds train at once.
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


class ReferredClients:
  """Training clients whose batches are made where they train.

  Attributes:
    client_ids: All of them, in the task's order.
    prepared_ahead: False: there is nothing to prepare here.
  """

  prepared_ahead = False

  def __init__(
    self,
    clients: data_lib.ClientDatasets,
    counts: Mapping[str, int],
    source: Source,
  ):
    """Takes the clients as they are here, and as they are made elsewhere.

    Args:
      clients: The clients.
      counts: The number of examples of those whose examples were counted.
      source: Makes them elsewhere.
    """
    self.client_ids = clients.client_ids
    self._clients = clients
    self._source = source
    self._counts = counts

  def for_client(self, client_id: str, round_number: int) -> ClientBatches:
    """Returns what stands for a client's batches in a round."""
    here = functools.partial(self._clients.for_client, client_id, round_number)
    work = float(self._counts.get(client_id, 0))
    return ClientBatches(self._source, client_id, round_number, work, here)

  def for_round(
    self, round_number: int, cohort: Sequence[str]
  ) -> data_lib.CohortData:
    """Returns what stands for the cohort's batches."""
    batches: list[Any] = [self.for_client(c, round_number) for c in cohort]
    return data_lib.CohortData(batches, {})
