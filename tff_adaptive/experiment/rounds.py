"""A learning process as the loop drives it: state, one round, its measures."""

import collections
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import processes
from tff_adaptive.experiment import communication


class LearningRounds:
  """A `tff.learning.templates.LearningProcess` with its state.

  Attributes:
    state: The process's, after the last complete round.
    traffic: Bytes per client and round; `None` if the types do not tell.
  """

  def __init__(
    self,
    process: tff.learning.templates.LearningProcess,
    *,
    initial_weights: tff.learning.models.ModelWeights,
  ):
    """Initializes the process.

    Args:
      process: The process.
      initial_weights: Where training starts, as arrays.
    """
    self._process = process
    self.state = process.set_model_weights(
      process.initialize(), initial_weights
    )
    try:
      self.traffic: Optional[communication.Traffic] = communication.of_round(
        process.next
      )
    except ValueError:
      # Something that is sent has no fixed size. Better no figure than one
      # that is wrong.
      self.traffic = None

  def run(
    self,
    cohort: Sequence[str],
    datasets: Sequence[tf.data.Dataset],
  ) -> collections.OrderedDict[str, Any]:
    """Runs a round and returns what it reports, by the name of its column.

    Args:
      cohort: Ids of the clients. A process without client state ignores them.
      datasets: Their batches, in the same order.
    """
    del cohort
    output = self._process.next(self.state, list(datasets))
    # Only now: an interrupted round leaves the state before it.
    self.state = output.state
    return columns_of(output.metrics)

  def model_weights(self) -> tff.learning.models.ModelWeights:
    """The model after the last complete round."""
    return self._process.get_model_weights(self.state)

  def snapshot(self) -> Any:
    """What `roll_back` takes; costs nothing."""
    return self.state

  def roll_back(self, snapshot: Any) -> None:
    """Undoes rounds since a snapshot."""
    self.state = snapshot

  @property
  def program_state(self) -> Any:
    """What a checkpoint holds."""
    return self.state

  def restore(self, program_state: Any) -> None:
    """Goes on from a checkpoint."""
    self.state = program_state


class StatefulRounds(LearningRounds):
  """A process whose clients keep something between rounds.

  What they keep is held here, by client id, for the clients seen so far. In
  memory: a population whose states do not fit needs another keeper.
  """

  def __init__(
    self,
    process: processes.StatefulLearningProcess,
    *,
    initial_weights: tff.learning.models.ModelWeights,
  ):
    """Initializes the process; see `LearningRounds`."""
    super().__init__(process, initial_weights=initial_weights)
    self._fresh = process.initialize_client_state()
    # Leaves, so that it does not matter which containers a runtime returns.
    self._clients: dict[str, list[np.ndarray]] = {}

  @property
  def num_clients_seen(self) -> int:
    """How many clients keep something."""
    return len(self._clients)

  def run(
    self, cohort: Sequence[str], datasets: Sequence[tf.data.Dataset]
  ) -> collections.OrderedDict[str, Any]:
    """Runs a round; see `LearningRounds.run`."""
    states = [
      tf.nest.pack_sequence_as(self._fresh, self._clients[client])
      if client in self._clients
      else self._fresh
      for client in cohort
    ]
    output = self._process.next(self.state, states, list(datasets))
    self.state = output.state
    for client, state in zip(cohort, output.client_states, strict=True):
      self._clients[client] = [np.asarray(x) for x in tf.nest.flatten(state)]
    return columns_of(output.metrics)

  def snapshot(self) -> Any:
    return self.state, dict(self._clients)

  def roll_back(self, snapshot: Any) -> None:
    self.state, self._clients = snapshot

  @property
  def program_state(self) -> Any:
    """The server's state, and the clients' stacked up, ids beside them."""
    fresh = [np.asarray(leaf) for leaf in tf.nest.flatten(self._fresh)]
    kept = list(self._clients.values())
    return collections.OrderedDict(
      server=self.state,
      ids=np.array(
        [client.encode('utf-8') for client in self._clients], dtype=np.bytes_
      ),
      clients=[
        np.stack([leaves[i] for leaves in kept])
        if kept
        else np.zeros([0, *leaf.shape], leaf.dtype)
        for i, leaf in enumerate(fresh)
      ],
    )

  def restore(self, program_state: Any) -> None:
    self.state = program_state['server']
    self._clients = {
      client.decode('utf-8'): [leaf[i] for leaf in program_state['clients']]
      for i, client in enumerate(program_state['ids'].tolist())
    }


def build(
  process: Any, *, initial_weights: tff.learning.models.ModelWeights
) -> LearningRounds:
  """The rounds of a process, whether or not its clients keep something."""
  kind = StatefulRounds if algorithms.is_stateful(process) else LearningRounds
  return kind(process, initial_weights=initial_weights)


# Where a process reports something, and the column that shows it.
_COLUMNS = {
  'client_work/train/': 'train/',
  'client_work/clients/': 'clients/',
  'client_work/step_size/': 'step_size/',
  'client_work/': 'clients/',
  'finalizer/update_': 'update/',
  'finalizer/': 'update/',
}


def columns_of(metrics: Any) -> collections.OrderedDict[str, Any]:
  """Flattens a process's metrics to single numbers by column."""
  columns = collections.OrderedDict()

  def walk(value: Any, path: str) -> None:
    if isinstance(value, Mapping):
      for key, child in value.items():
        walk(child, f'{path}{key}/')
      return
    array = np.asarray(value)
    if array.shape or array.dtype.kind not in 'biuf':
      return  # Lists and words have no place in a table of numbers.
    name = path.rstrip('/')
    for prefix, replacement in _COLUMNS.items():
      if name.startswith(prefix):
        name = replacement + name[len(prefix) :]
        break
    columns[name] = array[()]

  walk(metrics, '')
  return columns
