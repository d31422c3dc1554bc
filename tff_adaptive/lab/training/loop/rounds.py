"""Rounds of training with their state, as the training loop runs them."""

import abc
import collections
import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Optional, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive import processes
from tff_adaptive.lab.recording import client_states as client_states_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording import records
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import traffic as communication

# A round's columns of metrics.csv, as reported by `Rounds.run`.
Columns: TypeAlias = collections.OrderedDict[str, Any]


class Rounds(abc.ABC):
  """Rounds of training, with their state.

  Attributes:
    traffic: Bytes per client and round; `None` if unknown.
    step_records: Step sizes of the last round's clients, as returned by
      `records.step_rows`; empty unless the process records them.
    pooled: Whether the clients' data are pooled, and trained on as one dataset.
  """

  pooled = False
  traffic: Optional[communication.Traffic] = None
  step_records: Sequence[Mapping[str, Any]] = ()

  @abc.abstractmethod
  def run(self, cohort: Sequence[str], datasets: Sequence[Any]) -> Columns:
    """Runs a round; returns its columns of metrics.csv.

    Args:
      cohort: Ids of the clients.
      datasets: Their batches, in the same order.

    Raises:
      RunError: If a client state on disk is damaged.
    """

  @abc.abstractmethod
  def model_weights(self) -> tff.learning.models.ModelWeights:
    """Returns the model after the last complete round."""

  @property
  @abc.abstractmethod
  def program_state(self) -> Any:
    """The state to save in a checkpoint."""

  @abc.abstractmethod
  def restore(self, program_state: Any) -> None:
    """Restores `program_state` from a checkpoint.

    Raises:
      DamagedError: If a file that belongs to the checkpoint is damaged.
    """

  def restore_model(self, program_state: Any) -> None:
    """Restores the model of `program_state`, without client states."""
    self.restore(program_state)

  def snapshot(self) -> Any:
    """Returns the current state, for `roll_back`."""
    return self.program_state

  def roll_back(self, snapshot: Any) -> None:
    """Restores a snapshot."""
    self.restore(snapshot)

  def models(self, split: str) -> dict[str, tff.learning.models.ModelWeights]:
    """Returns the weights to evaluate on a split, by group of columns."""
    return {split: self.model_weights()}

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    """Returns a model's weights with a client's own layers, if any, inserted.

    Raises:
      RunError: If the client's state on disk is damaged.
    """
    return weights


# Builds a store from what it holds of a client at first.
Store: TypeAlias = Callable[[Any], client_states_lib.ClientStates]


class LearningRounds(Rounds):
  """A learning process with its state, and its clients' if they keep one.

  Client states are stored by client id, for the clients seen so far, in a file
  and in memory as far as they fit (`recording.client_states`).

  Attributes:
    state: The process' state after the last complete round.
  """

  def __init__(
    self,
    process: processes.Process,
    state: Any,
    *,
    store: Store = client_states_lib.ClientStates,
    client_ids: Optional[Collection[str]] = None,
    whole_updates: bool = False,
  ):
    """Takes the process and its initial state.

    Args:
      process: The process.
      state: Its initial state, with the initial model weights.
      store: Builds the store of client states; by default they are in memory
        only, and a run cannot be resumed.
      client_ids: The task's clients; states of others are rejected. By default
        all are accepted.
      whole_updates: Whether clients' updates are summed without clipping,
        compression or the like.
    """
    self._process: Any = process
    self._whole_updates = whole_updates
    self._client_ids = client_ids
    self.state = state
    # The state that a model was last read from, and the model.
    self._read: tuple[Any, Any] = None, None
    self._kept: Optional[client_states_lib.ClientStates] = None
    fresh = getattr(process, 'initialize_client_state', None)
    if fresh is not None:
      self._kept = store(fresh())
    # Something that is sent may have no fixed size.
    with contextlib.suppress(ValueError):
      self.traffic = reuse.of_process(process, communication.of_process)

  def run(self, cohort: Sequence[str], datasets: Sequence[Any]) -> Columns:
    if not cohort:
      return self._nobody()
    return self.columns(self._step(cohort, list(datasets)))

  def _step(self, cohort: Sequence[str], *arguments: Any) -> Any:
    """Runs a round of the process, and keeps what it returns.

    Args:
      cohort: Ids of the clients.
      *arguments: Arguments of the process, after its state and those of its
        clients; the batches last.

    Returns:
      The process' metrics.
    """
    if self._kept is None:
      output = self._process.next(self.state, *arguments)
    else:
      *others, datasets = arguments
      states = kept_by(self._kept, cohort)
      output = self._process.next(self.state, *others, states, datasets)
      self._kept.keep(cohort, output.client_states)
    # Assigned last, so that an interrupted round leaves the state unchanged.
    self.state = output.state
    self._read = None, None  # Not to keep the state before.
    self.step_records = records.step_rows(cohort, output.metrics)
    return output.metrics

  def columns(self, metrics: Any) -> Columns:
    """Returns `columns_of`, with `bytes_up` if updates need fewer bits."""
    columns = columns_of(metrics)
    bits = columns.pop('clients/update_bits', None)
    if bits is not None and self.traffic is not None and self._whole_updates:
      sent = [np.asarray(w) for w in self.model_weights().trainable]
      coordinates = sum(w.size for w in sent)
      needed = math.ceil(bits / columns['clients/count'] * coordinates / 8)
      columns['bytes_up'] = (
        self.traffic.up - sum(w.nbytes for w in sent) + needed
      )
    return columns

  def _nobody(self) -> Columns:
    """Returns the columns of a round without answers; the state is kept."""
    self.step_records = ()
    return collections.OrderedDict({'clients/count': 0})

  def model_weights(self) -> tff.learning.models.ModelWeights:
    if self._read[0] is not self.state:
      self._read = self.state, self._process.get_model_weights(self.state)
    return self._read[1]

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    if self._kept is None or self._process.personal_weights is None:
      return weights
    (state,) = kept_by(self._kept, [client])
    return tf.nest.map_structure(
      np.asarray, self._process.personal_weights(weights, state)
    )

  def snapshot(self) -> Any:
    """Returns the current state, for `roll_back`, without copying it."""
    return self.state, self._kept and self._kept.snapshot()

  def roll_back(self, snapshot: Any) -> None:
    self.state, kept = snapshot
    if self._kept is not None:
      self._kept.roll_back(kept)

  @property
  def program_state(self) -> Any:
    """The server's state, and the matching version of the client states."""
    if self._kept is None:
      return self.state
    return collections.OrderedDict(server=self.state, clients=self._kept.save())

  def restore(self, program_state: Any) -> None:
    if self._kept is not None:
      self._kept.restore(program_state['clients'], self._client_ids)
    self.restore_model(program_state)

  def restore_model(self, program_state: Any) -> None:
    kept = self._kept is not None
    self.state = program_state['server'] if kept else program_state


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


# Maps the model's group of columns to that of its average.
_AVERAGES = {'validation': 'ema', 'test': 'test_ema'}


class AveragedRounds(Rounds):
  """Rounds with an exponential moving average of the model.

  After every round, with d the decay, x the model and a the average, which
  starts as the initial model:

    a = d a + (1 - d) x

  Training continues with x; weights that are not floats are copied. A round
  without clients changes nothing.
  """

  def __init__(self, rounds: Rounds, decay: float):
    """Initializes the average with the model.

    Args:
      rounds: The rounds to average over.
      decay: d, in [0, 1).
    """
    self._rounds = rounds
    self._decay = decay
    self._average = self._model()
    self.traffic, self.pooled = rounds.traffic, rounds.pooled

  def _model(self) -> tff.learning.models.ModelWeights:
    return tf.nest.map_structure(np.asarray, self._rounds.model_weights())

  def run(self, cohort: Sequence[str], datasets: Sequence[Any]) -> Columns:
    reported = self._rounds.run(cohort, datasets)
    self.step_records = self._rounds.step_records
    if reported.get('clients/count', 1):
      self._average = tf.nest.map_structure(
        self._mix, self._average, self._model()
      )
    return reported

  def _mix(self, average: np.ndarray, value: np.ndarray) -> np.ndarray:
    if value.dtype.kind != 'f':
      return value
    mixed = self._decay * average + (1 - self._decay) * value
    return np.asarray(mixed, value.dtype)

  def model_weights(self) -> tff.learning.models.ModelWeights:
    return self._rounds.model_weights()

  def models(self, split: str) -> dict[str, tff.learning.models.ModelWeights]:
    return {**self._rounds.models(split), _AVERAGES[split]: self._average}

  def weights_of(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    return self._rounds.weights_of(client, weights)

  def snapshot(self) -> Any:
    return self._rounds.snapshot(), self._average

  def roll_back(self, snapshot: Any) -> None:
    before, self._average = snapshot
    self._rounds.roll_back(before)

  @property
  def program_state(self) -> Any:
    """The state of the rounds, and the average."""
    return collections.OrderedDict(
      rounds=self._rounds.program_state, average=self._average
    )

  def restore(self, program_state: Any) -> None:
    self._rounds.restore(program_state['rounds'])
    self._average = program_state['average']

  def restore_model(self, program_state: Any) -> None:
    self._rounds.restore_model(program_state['rounds'])
    self._average = program_state['average']


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


def columns_of(metrics: Any) -> Columns:
  """Flattens a process' metrics to scalars by column of metrics.csv.

  Means over training examples and steps are omitted if there were none, and so
  are drift figures that are NaN.
  """
  columns: Columns = collections.OrderedDict()

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
