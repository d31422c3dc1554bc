"""Stateful methods as ordinary TFF learning processes.

  process = client_state.learning_process(
    algorithms.build('scaffold', model_fn, population=100))
  state = process.initialize()
  output = process.next(state, [('ada', ada_s_batches), ('bob', bob_s_batches)])

Each client's data is paired with its id, under which the process stores the
client's state. The server state refers to a version of all client states:
resuming from an earlier server state restores the client states of that time.
"""

import asyncio
import collections
import functools
import pathlib
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import processes
from tff_adaptive.lab.recording import client_states as client_states_lib

_TOKEN = ('version', 'clients', 'checksum')


def learning_process(
  process: processes.StatefulLearningProcess,
  *,
  dataset_computation: Optional[tff.Computation] = None,
  path: Optional[pathlib.Path] = None,
) -> tff.learning.templates.LearningProcess:
  """Wraps a process whose clients keep state as an ordinary one.

  Args:
    process: A process built by `algorithms.build`, of scaffold, moon, feddyn,
      fedlesam or another method that keeps state on clients.
    dataset_computation: A `tff.Computation` from a client's id, a string, to
      its batches. If given, the process takes ids in place of pairs, as data
      sources of `tff.program` provide them (what
      `tff.simulation.compose_dataset_computation_with_learning_process` does
      for other processes).
    path: A file for client states. Unless given, they are held in memory, and a
      restarted program cannot resume.

  Returns:
    A process whose `next` takes the state and, for each client, a pair of its
    id and its batches, or its id. It runs in the current context, including
    asynchronous ones such as that of `tff.learning.programs`. `next` cannot be
    called inside another computation, because it reads and writes client
      states.
    The states of the last four rounds can be resumed from.

  Raises:
    TypeError: If the process keeps no client state, or the datasets have
      another type than it takes.
  """
  if not algorithms.is_stateful(process):
    raise TypeError(
      'Expected a process with client states, such as that of scaffold, got '
      f'{type(process).__name__}, which needs no storage and can be used '
      'directly.'
    )
  placed_state, _, data_type = process.next.type_signature.parameter
  inner_type = placed_state.member

  @tff.tensorflow.computation(inner_type)
  def wrap(state: Any) -> Any:
    none = collections.OrderedDict((n, tf.zeros([], tf.int64)) for n in _TOKEN)
    return _with_token(state, none)

  state_type = wrap.type_signature.result

  @tff.tensorflow.computation(state_type)
  def unwrap(state: Any) -> Any:
    return _without_token(state)

  @tff.tensorflow.computation(state_type, inner_type)
  def renew(state: Any, inner: Any) -> Any:
    return _with_token(inner, state.distributor['client_states'])

  @tff.federated_computation
  def initialize() -> Any:
    return tff.federated_map(wrap, process.initialize())

  @tff.federated_computation(state_type)
  def get_model_weights(state: Any) -> Any:
    return process.get_model_weights(unwrap(state))

  @tff.federated_computation(state_type)
  def get_hparams(state: Any) -> Any:
    return process.get_hparams(unwrap(state))

  def setter(inner: tff.Computation) -> tff.Computation:
    _, new_type = inner.type_signature.parameter

    @tff.federated_computation(state_type, new_type)
    def set_in(state: Any, new: Any) -> Any:
      return renew(state, inner(unwrap(state), new))

    return set_in

  next_fn = _Next(process, dataset_computation, path)
  client_type = tff.FederatedType(
    np.str_
    if dataset_computation is not None
    else collections.OrderedDict(client_id=np.str_, data=data_type.member),
    tff.CLIENTS,
  )
  outer = tff.FederatedType(state_type, tff.SERVER)
  result = process.next.type_signature.result
  next_fn.type_signature = tff.FunctionType(
    tff.StructType([('state', outer), ('client_data', client_type)]),
    tff.StructWithPythonType(
      [('state', outer), ('metrics', result.metrics)],
      tff.learning.templates.LearningProcessOutput,
    ),
  )
  return tff.learning.templates.LearningProcess(
    initialize,
    next_fn,
    get_model_weights,
    setter(process.set_model_weights),
    get_hparams_fn=get_hparams,
    set_hparams_fn=setter(process.set_hparams),
  )


def _with_token(state: Any, token: Any) -> Any:
  """Stores a version in a state, in a place that clients do not read."""
  return state._replace(
    distributor=collections.OrderedDict(
      client_states=token, distributor=state.distributor
    )
  )


def _without_token(state: Any) -> Any:
  return state._replace(distributor=state.distributor['distributor'])


class _Later(tff.program.MaterializableValueReference):
  """A part of the result of a round that runs in an event loop."""

  def __init__(self, task: 'asyncio.Task[Any]', part: str, type_: tff.Type):
    self._task, self._part, self._type = task, part, type_

  @property
  def type_signature(self) -> tff.Type:
    return self._type

  async def get_value(self) -> Any:
    return getattr(await self._task, self._part)


class _Next(tff.Computation):
  """A round that reads and writes client states."""

  type_signature: tff.FunctionType = None

  def __init__(
    self,
    process: processes.StatefulLearningProcess,
    dataset_computation: Optional[tff.Computation],
    path: Optional[pathlib.Path],
  ):
    self._process = process
    self._store = functools.partial(
      client_states_lib.ClientStates, path=path, memory_bytes=0
    )
    self._client_states: Optional[client_states_lib.ClientStates] = None
    self._token: Optional[dict[str, int]] = None
    self._by_id = dataset_computation is not None
    self._run = process.next
    if dataset_computation is not None:
      state_type, client_state_type, data_type = (
        process.next.type_signature.parameter
      )
      made = dataset_computation.type_signature.result
      if not data_type.member.is_assignable_from(made):
        raise TypeError(
          f'`dataset_computation` must return {data_type.member}, the data '
          f'type of the process, got {made}.'
        )

      @tff.federated_computation(
        state_type, client_state_type, tff.FederatedType(np.str_, tff.CLIENTS)
      )
      def run(state: Any, client_states: Any, client_ids: Any) -> Any:
        data = tff.federated_map(dataset_computation, client_ids)
        return process.next(state, client_states, data)

      self._run = run

  def __hash__(self) -> int:
    return id(self)

  def __call__(self, state: Any, client_data: Sequence[Any]) -> Any:
    """Runs a round; returns references in a program's asynchronous context.

    Raises:
      ValueError: If a client occurs twice.
      RunError: If the client states that belong to the state are missing.
    """
    context = tff.framework.get_context_stack().current
    # A context of TFF's programs rejects client-placed results; the context
    # that it wraps accepts them.
    within = getattr(context, 'asynchronous', context)
    if isinstance(within, tff.program.FederatedContext):
      raise TypeError(
        'A process with client states must run in a context of '
        'tff_adaptive.runtime, such as '
        'set_in_process_context(asynchronous=True), got '
        f'{type(context).__name__}.'
      )
    if not isinstance(within, tff.framework.AsyncContext):
      if self._client_states is None:
        fresh = self._process.initialize_client_state()
        self._client_states = self._store(fresh)
      arguments, clients = self._arguments(state, client_data)
      return self._conclude(clients, self._run(*arguments))
    later = self._run_later(within, state, client_data)
    if within is context:
      return later
    task = asyncio.get_running_loop().create_task(later)
    result = self.type_signature.result
    return tff.learning.templates.LearningProcessOutput(
      _Later(task, 'state', result.state.member),
      _Later(task, 'metrics', result.metrics.member),
    )

  async def _run_later(
    self, context: Any, state: Any, client_data: Sequence[Any]
  ) -> tff.learning.templates.LearningProcessOutput:
    async def value_of(computation: tff.Computation, *arguments: Any) -> Any:
      with tff.framework.get_context_stack().install(context):
        coroutine = computation(*arguments)
      return await coroutine

    if self._client_states is None:
      fresh = await value_of(self._process.initialize_client_state)
      self._client_states = self._store(fresh)
    state = await tff.program.materialize_value(state)
    arguments, clients = self._arguments(state, client_data)
    return self._conclude(clients, await value_of(self._run, *arguments))

  def _arguments(
    self, state: Any, client_data: Sequence[Any]
  ) -> tuple[tuple[Any, list[Any], list[Any]], list[str]]:
    """Builds the arguments of a round, and the ids of its clients."""
    if self._by_id:
      clients = [_text(client) for client in client_data]
      data: list[Any] = list(clients)
    else:
      clients, data = [], []
      for pair in client_data:
        values = pair.values() if hasattr(pair, 'values') else pair
        client, batches = values
        clients.append(_text(client))
        data.append(batches)
    twice = [c for c in dict.fromkeys(clients) if clients.count(c) > 1]
    if twice:
      raise ValueError(
        f'A client can take part in a round only once, but {twice[0]!r} is '
        f'listed {clients.count(twice[0])} times.'
      )
    assert self._client_states is not None
    token = {n: int(state.distributor['client_states'][n]) for n in _TOKEN}
    if token != self._token:
      try:
        self._client_states.restore(token)
      except errors.DamagedError as e:
        self._token = None
        raise errors.RunError(
          f'The client states of this server state are missing: {e} A process '
          'holds the client states of one training; continue from one of its '
          'latest states, or build one process per training.'
        ) from e
      self._token = token
    client_states = self._client_states.of(clients)
    return (_without_token(state), client_states, data), clients

  def _conclude(
    self, clients: Sequence[str], output: Any
  ) -> tff.learning.templates.LearningProcessOutput:
    """Stores the clients' next states; returns the round's output."""
    assert self._client_states is not None
    self._token = None  # Unknown, if the following fails.
    self._client_states.keep(clients, output.client_states)
    saved = self._client_states.save()
    self._token = {n: int(saved[n]) for n in _TOKEN}
    token = collections.OrderedDict((n, saved[n]) for n in _TOKEN)
    return tff.learning.templates.LearningProcessOutput(
      _with_token(output.state, token), output.metrics
    )


def _text(client: Any) -> str:
  """Converts a client's id, which runtimes may pass as bytes, to a string."""
  if hasattr(client, 'numpy'):
    client = client.numpy()
  if isinstance(client, np.ndarray):
    client = client.item()
  return (
    client.decode('utf-8', 'surrogateescape')
    if isinstance(client, bytes)
    else str(client)
  )
