"""A computation for several server states at once, over the same clients.

Trials of a search share a graph and, with equal seeds, cohorts and batches;
only numbers in the server's state differ. So their rounds are one TensorFlow
function, whose operations have an axis of states. For small models, whose
operations take less time than their dispatch, dozens of states take little
longer than one.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import cohorts
from tff_adaptive import vectorizing
from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import engine as engine_lib
from tff_adaptive.runtime.engine import lockstep
from tff_adaptive.runtime.engine import nodes as nodes_lib
from tff_adaptive.runtime.engine import phases


class Outputs(NamedTuple):
  """The result for all states.

  Attributes:
    parts: For each element of the computation's result, its tensors in TFF's
      order, [states, ...], and [states, clients, ...] of clients.
    value: The result in its Python containers, with arrays [states, ...] and
      nothing of clients.
  """

  parts: list[list[tf.Tensor]]
  value: Any


class Ensemble:
  """A computation for several server states.

  Its parameters are a state, what clients keep, if anything, and their batches;
  or a state alone.
  """

  def __init__(self, engine: engine_lib.Engine, computation: tff.Computation):
    """Compiles the computation.

    Args:
      engine: Compiles it, and caches datasets.
      computation: Such as the `next` of a learning process.

    Raises:
      CannotVectorize: If its clients must run one by one.
    """
    self._executable, self._signature = engine.compile(computation)
    if any(phase.ordered for phase in self._executable.phases):
      raise failures.CannotVectorize('clients must run one by one')
    result = self._executable.result
    parts = result if isinstance(result, tuple) else (result,)
    self._results = [phases.result_leaves(part) for part in parts]
    self._functions: dict[str, tff_functions.FastFunction] = {}

  def leaves_of(self, position: int, value: Any) -> list[np.ndarray]:
    """Returns the tensors of a parameter's value, for one state or client."""
    tensors: list[Any] = []
    self._signature.parts[position].ingest(value, tensors)
    return [np.asarray(tensor) for tensor in tensors]

  def __call__(
    self,
    states: Sequence[tf.Tensor],
    kept: Sequence[tf.Tensor] = (),
    data: Sequence[Any] = (),
  ) -> Outputs:
    """Runs the computation for all states.

    Args:
      states: The states' tensors, stacked, [states, ...].
      kept: Tensors of what the clients keep, [states, clients, ...].
      data: Each client's batches.

    Raises:
      CannotVectorize: If TensorFlow cannot vectorize it, or batches are not
        known beforehand.
      tf.errors.OpError: If a client or the server fails.
      MemoryError: If the clients' data are large.
    """
    arguments = [*states, *kept]
    rows = None
    if data:
      found: list[Any] = []
      for batches in data:
        self._signature.parts[-1].ingest(batches, found)
      rows = lockstep.joined(found, few_sizes=True)
      arguments += [
        lockstep.numbers(rows.begin, len(data)),
        lockstep.numbers(rows.end, len(data)),
        *rows.components,
      ]
    function = self._function(states[0].shape[0], rows, arguments)
    outputs = iter(function(arguments, '', tff_functions.Cancellation()))
    parts = [[next(outputs) for _ in leaves] for leaves in self._results]
    by_slot: nodes_lib.ServerTensors = [None] * self._executable.num_slots
    for leaves, tensors in zip(self._results, parts, strict=True):
      for leaf, tensor in zip(leaves, tensors, strict=True):
        by_slot[leaf.slot] = tensor
    return Outputs(parts, self._signature.restore(by_slot, []))

  def _function(
    self,
    states: int,
    rows: lockstep.Rows | None,
    arguments: Sequence[tf.Tensor],
  ) -> tff_functions.FastFunction:
    """Returns the function of so many states and clients, traced once."""
    specs = [tf.TensorSpec(t.shape, t.dtype) for t in arguments]
    if rows is not None:
      for i in range(len(specs) - len(rows.components), len(specs)):
        specs[i] = tf.TensorSpec([None, *specs[i].shape[1:]], specs[i].dtype)
    key = f'{specs} {rows and rows.padded_size}'
    if key not in self._functions:

      def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
        return _Building(self._executable, states, rows, tensors).results(
          self._results
        )

      try:
        with vectorizing.quietly():
          traced = tf.function(body, input_signature=specs, autograph=False)
          concrete = traced.get_concrete_function()
        for phase in self._executable.phases:
          if rows is not None and phase.reads_data:
            if phase.together is None:
              raise TypeError('clients were found to train one at a time')
            phase.together.check(rows.components)
      except Exception as e:  # pylint: disable=broad-exception-caught
        # An error of the model itself is raised once a state trains alone.
        raise failures.CannotVectorize(vectorizing.reason(e)) from e
      self._functions[key] = tff_functions.FastFunction(concrete)
    return self._functions[key]


class _Building:
  """The phases of a computation, added to the graph that is being traced."""

  def __init__(
    self,
    executable: Any,
    states: int,
    rows: lockstep.Rows | None,
    tensors: Sequence[tf.Tensor],
  ):
    """Adds all phases.

    Args:
      executable: The computation.
      states: Number of states.
      rows: The clients' data; `None` without clients.
      tensors: Those that `Ensemble` passes.
    """
    self._states = states
    self._clients = 0 if rows is None else len(rows.begin)
    # By slot, [states, ...] and [states * clients, ...].
    self._server: dict[int, tf.Tensor] = {}
    self._local: dict[int, tf.Tensor] = {}
    given = iter(tensors)
    for node in executable.arguments:
      for leaf in node.leaves:
        if node.site is nodes_lib.SERVER:
          self._server[leaf.slot] = next(given)
        elif leaf.spec.dtype != tf.variant:
          stacked = next(given)
          flat = [states * self._clients, *stacked.shape[2:]]
          self._local[leaf.slot] = tf.reshape(stacked, flat)
    self._batches: cohorts.Batches | None = None
    if rows is not None:
      begin, end, *components = given
      self._batches = cohorts.Batches(
        components,
        tf.tile(begin, [states]),
        tf.tile(end, [states]),
        rows.padded_size,
      )
    for phase in executable.phases:
      self._add(phase)

  def results(
    self, wanted: Sequence[Sequence[nodes_lib.Leaf]]
  ) -> list[tf.Tensor]:
    """Returns the tensors of the results' leaves."""
    return [
      self._server[leaf.slot]
      if leaf.slot in self._server
      else self._of_clients(leaf)
      for leaves in wanted
      for leaf in leaves
    ]

  def _received(self, leaf: nodes_lib.Leaf) -> tf.Tensor | None:
    """Returns a leaf's tensor for all states' clients; `None` of data."""
    if leaf.slot in self._server:
      return tf.repeat(self._server[leaf.slot], self._clients, axis=0)
    return self._local.get(leaf.slot)

  def _of_clients(self, leaf: nodes_lib.Leaf) -> tf.Tensor:
    tensor = self._received(leaf)
    assert tensor is not None
    shape = [self._states, self._clients, *tensor.shape[1:]]
    return tf.reshape(tensor, shape)

  def _add(self, phase: phases.Phase) -> None:
    for node in phase.server.nodes:
      known = {leaf: self._server[leaf.slot] for leaf in node.inputs}
      made = lockstep.each(node, {}, known, self._states)
      slots = [leaf.slot for leaf in node.leaves]
      self._server.update(zip(slots, made, strict=True))
    clients = phase.client
    found = {leaf: self._received(leaf) for leaf in clients.inputs}
    known = {leaf: t for leaf, t in found.items() if t is not None}
    count = self._states * self._clients
    lockstep.add_clients(clients.nodes, {}, known, self._batches, count)
    self._local.update({leaf.slot: t for leaf, t in known.items()})
    if phase.total:
      self._fold(phase)

  def _fold(self, phase: phases.Phase) -> None:
    """Adds up a phase's clients for each state."""
    fold = phase.fold
    given = (
      [self._server[slot] for slot in phase.zero],
      [self._server[leaf.slot] for leaf in fold.shared],
      [self._of_clients(leaf) for leaf in fold.inputs],
    )

    def of_state(tensors: Sequence[Sequence[tf.Tensor]]) -> list[tf.Tensor]:
      leaves = (fold.state, fold.shared, fold.inputs)
      return fold.added(
        *(dict(zip(*pair, strict=True)) for pair in zip(leaves, tensors))
      )

    totals = lockstep.map_each(
      of_state, given, [leaf.spec for leaf in fold.state]
    )
    self._server.update(zip(phase.total, totals, strict=True))
