"""Learning processes with their state, as the training loop runs them."""

import collections
import math
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import processes
from tff_adaptive.lab.recording import client_states as client_states_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import records
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import traffic as communication


class LearningRounds:
  """A `tff.learning.templates.LearningProcess` with its state.

  Attributes:
    state: The process' state after the last complete round.
    traffic: Bytes per client and round; `None` if not determined by types.
    step_records: Step sizes of the last round's clients, as returned by
      `records.step_rows`; empty unless the process records them.
  """

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    *,
    initial_weights: tff.learning.models.ModelWeights,
    first_state: Optional[Any] = None,
    whole_updates: bool = False,
  ):
    """Initializes the process.

    Args:
      process: The process.
      initial_weights: The initial model weights, as arrays.
      first_state: Initial state with these weights; by default the process'.
      whole_updates: Whether clients' updates are summed without clipping,
        compression or the like.
    """
    self._process = process
    self._whole_updates = whole_updates
    updates = [
      np.asarray(w) for w in tf.nest.flatten(initial_weights.trainable)
    ]
    self._coordinates = sum(w.size for w in updates)
    self._update_bytes = sum(w.nbytes for w in updates)
    self.step_records: Sequence[Mapping[str, Any]] = ()
    if first_state is None:
      first_state = process.set_model_weights(
        process.initialize(), initial_weights
      )
    self.state = first_state
    try:
      self.traffic: Optional[communication.Traffic] = reuse.of_process(
        process, communication.of_process
      )
    except ValueError:
      # Something that is sent has no fixed size.
      self.traffic = None

  def run(
    self,
    cohort: Sequence[str],
    datasets: Sequence[tf.data.Dataset],
  ) -> collections.OrderedDict[str, Any]:
    """Runs a round; returns its columns of metrics.csv.

    Args:
      cohort: Ids of the clients.
      datasets: Their batches, in the same order.
    """
    if not cohort:
      return self._nobody()
    output = self._process.next(self.state, list(datasets))
    # Assigned last, so that an interrupted round leaves the state unchanged.
    self.state = output.state
    self.step_records = records.step_rows(cohort, output.metrics)
    return self._columns(output.metrics)

  def _columns(self, metrics: Any) -> collections.OrderedDict[str, Any]:
    """Returns `columns_of`, with `bytes_up` if updates need fewer bits."""
    columns = columns_of(metrics)
    bits = columns.pop('clients/update_bits', None)
    if bits is not None and self.traffic is not None and self._whole_updates:
      needed = math.ceil(
        bits / columns['clients/count'] * self._coordinates / 8
      )
      columns['bytes_up'] = self.traffic.up - self._update_bytes + needed
    return columns

  def _nobody(self) -> collections.OrderedDict[str, Any]:
    """Returns the columns of a round without answers; the state is kept."""
    self.step_records = ()
    return collections.OrderedDict({'clients/count': 0})

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the model after the last complete round."""
    return self._process.get_model_weights(self.state)

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """Returns a model's weights with a client's own layers inserted.

    Raises:
      RunError: If a client state on disk is damaged.
    """
    del client
    return weights

  def snapshot(self) -> Any:
    """Returns the current state, for `roll_back`, without copying it."""
    return self.state

  def roll_back(self, snapshot: Any) -> None:
    """Restores a snapshot."""
    self.state = snapshot

  @property
  def program_state(self) -> Any:
    """The state to save in a checkpoint."""
    return self.state

  def restore(self, program_state: Any) -> None:
    """Restores `program_state` from a checkpoint.

    Raises:
      DamagedError: If a file that belongs to the checkpoint is damaged.
    """
    self.state = program_state

  def restore_model(self, program_state: Any) -> None:
    """Restores the model of `program_state`, without client states."""
    self.state = program_state


class StatefulRounds(LearningRounds):
  """A process with client state, and its state.

  Client states are stored by client id, for the clients seen so far, in a file
  and in memory as far as they fit (`recording.client_states`).
  """

  def __init__(
    self,
    process: processes.StatefulLearningProcess,
    *,
    initial_weights: tff.learning.models.ModelWeights,
    first_state: Optional[Any] = None,
    store: Callable[
      [Any], client_states_lib.ClientStates
    ] = client_states_lib.ClientStates,
    client_ids: Optional[Collection[str]] = None,
    whole_updates: bool = False,
  ):
    """Initializes the process; see `LearningRounds`.

    Args:
      process: The process.
      initial_weights: The initial model weights, as arrays.
      first_state: As in `LearningRounds`.
      store: Builds the store of client states from the initial one; by default
        states are in memory only, and a run cannot be resumed.
      client_ids: The task's clients; states of others are rejected. By default
        all are accepted.
      whole_updates: As in `LearningRounds`.
    """
    super().__init__(
      process,
      initial_weights=initial_weights,
      first_state=first_state,
      whole_updates=whole_updates,
    )
    self._clients = store(process.initialize_client_state())
    self._client_ids = client_ids

  def run(
    self, cohort: Sequence[str], datasets: Sequence[tf.data.Dataset]
  ) -> collections.OrderedDict[str, Any]:
    """Runs a round; see `LearningRounds.run`.

    Raises:
      RunError: If a client state on disk is damaged.
    """
    if not cohort:
      return self._nobody()
    states = kept_by(self._clients, cohort)
    output = self._process.next(self.state, states, list(datasets))
    self.state = output.state
    self._clients.keep(cohort, output.client_states)
    self.step_records = records.step_rows(cohort, output.metrics)
    return self._columns(output.metrics)

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """See `LearningRounds.weights_of`."""
    return personalized(self._process, self._clients, client, weights)

  def snapshot(self) -> Any:
    return self.state, self._clients.snapshot()

  def roll_back(self, snapshot: Any) -> None:
    self.state, clients = snapshot
    self._clients.roll_back(clients)

  @property
  def program_state(self) -> Any:
    """The server's state, and the matching version of the client states."""
    return collections.OrderedDict(
      server=self.state, clients=self._clients.save()
    )

  def restore(self, program_state: Any) -> None:
    self._clients.restore(program_state['clients'], self._client_ids)
    self.state = program_state['server']

  def restore_model(self, program_state: Any) -> None:
    self.state = program_state['server']


def personalized(
  process: processes.Process,
  kept: client_states_lib.ClientStates,
  client: str,
  weights: tff.learning.models.ModelWeights,
) -> tff.learning.models.ModelWeights:
  """Returns a model's weights with a client's own layers, if any, inserted.

  Raises:
    RunError: If the client's state on disk is damaged.
  """
  if process.personal_weights is None:
    return weights
  (state,) = kept_by(kept, [client])
  return tf.nest.map_structure(
    np.asarray, process.personal_weights(weights, state)
  )


def kept_by(
  memory: client_states_lib.ClientStates, names: Sequence[str]
) -> list[Any]:
  """Returns the stored states of clients, in the order of `names`.

  Raises:
    RunError: If a client state on disk is damaged.
  """
  try:
    return memory.of(names)
  except errors.DamagedError as e:
    raise errors.RunError(
      f'{e} The same command resumes from the last intact checkpoint.'
    ) from e


def build(
  process: Any,
  *,
  initial_weights: tff.learning.models.ModelWeights,
  first_state: Optional[Any] = None,
  whole_updates: bool = False,
  **states: Any,
) -> LearningRounds:
  """Builds the rounds of a process, with or without client state.

  Args:
    process: The process.
    initial_weights: The initial model weights, as arrays.
    first_state: As `LearningRounds` takes it.
    whole_updates: As `LearningRounds` takes it.
    **states: Further arguments of `StatefulRounds`; otherwise ignored.
  """
  begin: dict[str, Any] = dict(
    initial_weights=initial_weights,
    first_state=first_state,
    whole_updates=whole_updates,
  )
  if algorithms.is_stateful(process):
    return StatefulRounds(process, **begin, **states)
  return LearningRounds(process, **begin)


# Prefixes of a process' metrics, and of the columns that show them.
_COLUMNS = {
  'client_work/train/': 'train/',
  'client_work/clients/': 'clients/',
  'client_work/step_size/': 'step_size/',
  'client_work/drift/': 'drift/',
  'client_work/': 'clients/',
  'aggregator/drift/': 'drift/',
  'aggregator/aggregation/': 'aggregator/',
  'finalizer/update_': 'update/',
  'finalizer/': 'update/',
}
_MEANS = ('train/', 'step_size/')


def columns_of(metrics: Any) -> collections.OrderedDict[str, Any]:
  """Flattens a process' metrics to scalars by column of metrics.csv.

  Means over training examples and steps are omitted if there were none, and so
  are drift figures that are NaN.
  """
  columns: collections.OrderedDict[str, Any] = collections.OrderedDict()

  def walk(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
      for key, child in value.items():
        walk(child, f'{path}{key}/')
      return
    array = np.asarray(value)
    name = path.rstrip('/')
    for prefix, replacement in _COLUMNS.items():
      if name.startswith(prefix):
        name = replacement + name[len(prefix) :]
        break
    # Other arrays, and strings, do not fit into a table of numbers.
    if array.dtype.kind in 'biuf' and (
      not array.shape or name.startswith('train/')
    ):
      columns.update(metric_names.scalars({name: array}))

  walk(metrics, '')
  if columns.get('train/num_examples') == 0:
    for name in list(columns):
      if name.startswith(_MEANS) and not name.startswith('train/num_'):
        del columns[name]
  for name in [n for n in columns if n.startswith('drift/')]:
    if np.isnan(columns[name]):  # Undefined in this round.
      del columns[name]
  return columns
