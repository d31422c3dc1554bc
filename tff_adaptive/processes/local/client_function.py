"""Functions of a client's batches, for one client or for a cohort.

A client function has three parts: `begin` prepares, `step` takes a batch, and
`finish` builds the result. A client calls `step` in a loop over its batches. A
cohort calls each part once for all clients, by `tf.vectorized_map`, with the
loop outside; a client that has no batch left stays as it is.
"""

import abc
import collections
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Optional, TypeVar

import attrs
import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import cohorts
from tff_adaptive import masking
from tff_adaptive import structures
from tff_adaptive import vectorizing
from tff_adaptive.optimizers import tree
from tff_adaptive.processes.local import autograph
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import tensor_model

ConstantsT = TypeVar('ConstantsT')
SoFarT = TypeVar('SoFarT')
_Local = local_model.LocalModel[Any]
# Examples of a batch that is tried, and rows that fill it up.
_OWN_EXAMPLES, _FILLED_UP = 4, 3
# Elements of all clients' states for which copying takes less than a branch.
_SMALL_STATE = 1 << 15


class Seen(NamedTuple):
  """What is known of a client's data before its first step.

  Attributes:
    num_examples: Examples that the client iterates, int64 scalar.
    num_batches: Their batches, int64 scalar.
    mark: Their fingerprint, int32 scalar; 0 unless the function draws.
  """

  num_examples: tf.Tensor
  num_batches: tf.Tensor
  mark: tf.Tensor


class ClientFunction(abc.ABC, Generic[ConstantsT, SoFarT]):
  """A function of a client's batches and of what the server sent.

  `arguments` are the parameters of the TFF computation except the data, in
  their Python containers.

  Attributes:
    model: The model.
    needs_representation: Whether the model must compute representations.
    needs_client_size: Whether `begin` needs `Seen`.
    draws: Whether it needs the fingerprint in it.
  """

  model: local_model.Model

  @property
  def needs_representation(self) -> bool:
    return False

  @property
  def needs_client_size(self) -> bool:
    return False

  @property
  def draws(self) -> bool:
    return False

  @abc.abstractmethod
  def begin(
    self, local: _Local, arguments: Sequence[Any], seen: Optional[Seen]
  ) -> tuple[ConstantsT, SoFarT]:
    """Returns constants of a client's steps, and the state before the first."""

  @abc.abstractmethod
  def step(
    self,
    local: _Local,
    arguments: Sequence[Any],
    constants: ConstantsT,
    so_far: SoFarT,
    batch: structures.Examples,
  ) -> SoFarT:
    """Returns the state after another batch."""

  @abc.abstractmethod
  def finish(
    self,
    local: _Local,
    arguments: Sequence[Any],
    constants: ConstantsT,
    so_far: SoFarT,
  ) -> structures.Structure:
    """Returns the result, given the state after the last batch."""

  def most_steps(self, constants: ConstantsT) -> Optional[tf.Tensor]:
    """Returns the number of batches to take, int64 scalar; `None` for all."""
    return None


def computation(
  function: ClientFunction[Any, Any], types: Sequence[tff.Type]
) -> tff.Computation:
  """Builds the TFF computation of a client function, with its cohort form.

  Args:
    function: The function.
    types: Types of state, weights and data, in this order, and of what else it
      takes.
  """
  seen: list[Sequence[Any]] = []

  def of_client(*parameters: Any) -> structures.Structure:
    seen[:] = [parameters]
    state, weights, data, *others = parameters
    return _for_one(function, (state, weights, *others), data)

  # TFF takes functions of a fixed number of arguments only.
  fixed = {
    3: lambda a, b, c: of_client(a, b, c),
    4: lambda a, b, c, d: of_client(a, b, c, d),
    5: lambda a, b, c, d, e: of_client(a, b, c, d, e),
    6: lambda a, b, c, d, e, f: of_client(a, b, c, d, e, f),
  }[len(types)]
  made = tff.tensorflow.computation(fixed, list(types))
  cohorts.register(made, _CohortForm(function, *seen))
  return made


def _for_one(
  function: ClientFunction[Any, Any],
  arguments: Sequence[Any],
  data: tf.data.Dataset,
) -> structures.Structure:
  """Calls a client function, inside the graph of a TFF computation."""
  local = local_model.create(function.model)
  if function.needs_representation:
    local.prepare_representation()

  @tf.function(autograph=False)
  def traced(
    arguments: Sequence[Any], data: tf.data.Dataset
  ) -> structures.Structure:
    looked = None
    if function.needs_client_size:
      looked = _look_at(local, data, function.draws)
    constants, start = function.begin(local, arguments, looked)

    def step(so_far: Any, batch: structures.Examples) -> Any:
      return function.step(local, arguments, constants, so_far, batch)

    end = autograph.fold(step, start, data, function.most_steps(constants))
    return function.finish(local, arguments, constants, end)

  return traced(arguments, data)


def _look_at(local: _Local, data: tf.data.Dataset, draws: bool) -> Seen:
  """Counts examples and batches, and fingerprints the client's data."""

  def add(so_far: Seen, batch: structures.Examples) -> Seen:
    return Seen(
      so_far.num_examples + local.batch_size(batch),
      so_far.num_batches + 1,
      so_far.mark + local.fingerprint(batch) if draws else so_far.mark,
    )

  start = tf.constant(0, tf.int64), tf.constant(0, tf.int64), tf.constant(0)
  return autograph.fold(add, Seen(*start), data)


class _CohortForm:
  """A client function for a cohort; see `cohorts.CohortForm`."""

  def __init__(
    self, function: ClientFunction[Any, Any], parameters: Sequence[Any]
  ):
    """Traces nothing yet.

    Args:
      function: The function.
      parameters: What it was traced with, whose containers are used.
    """
    self._function = function
    self._batch_spec = parameters[2].element_spec
    self._may_mix = False
    self._parameters = _map(lambda leaf: None, parameters)

  def __call__(
    self,
    leaves: Sequence[Optional[tf.Tensor]],
    stacked: Sequence[bool],
    batches: cohorts.Batches,
  ) -> list[tf.Tensor]:
    function = self._function
    if isinstance(function.model, tff.learning.models.FunctionalModel):
      raise masking.MaskError(
        'the loss of a FunctionalModel is one number for a batch'
      )
    with tree.without_branches():
      local = tensor_model.TensorModel(function.model)
      self._may_mix = local.may_mix
      if function.needs_representation:
        local.prepare_representation()
      clients = _Clients(self, leaves, stacked, batches.begin.shape[0])
      steps = _Steps(batches, self._batch_spec)
      looked = None
      if function.needs_client_size:
        looked = steps.look(local, function.draws)
      begin = functools.partial(function.begin, local)
      constants, so_far = clients.call(begin, looked)

      def take(so_far: Any, batch: Any, mask: tf.Tensor) -> Any:
        def one(
          arguments: Sequence[Any],
          constants: Any,
          so_far: Any,
          batch: structures.Examples,
          mask: tf.Tensor,
        ) -> Any:
          local.mask = mask
          return function.step(local, arguments, constants, so_far, batch)

        return clients.call(one, constants, so_far, batch, mask)

      so_far = steps.fold(take, so_far, function.most_steps(constants))
      local.mask = None
      finish = functools.partial(function.finish, local)
      result = clients.call(finish, constants, so_far)
    return _leaves(result)

  def check(self, rows: Sequence[tf.Tensor]) -> None:
    if not self._may_mix:
      return

    @tf.function(autograph=False)
    def losses() -> list[tf.Tensor]:
      with tree.without_branches():
        local = tensor_model.TensorModel(self._function.model)
        own = [r[:_OWN_EXAMPLES] for r in rows]
        filled = [
          tf.concat([r, tf.repeat(r[-1:], _FILLED_UP, axis=0)], axis=0)
          for r in own
        ]
        size = own[0].shape[0]
        found = []
        for given in (own, filled):
          local.mask = tf.range(given[0].shape[0]) < size
          batch = tf.nest.pack_sequence_as(self._batch_spec, given)
          found.append(local.loss_somewhere(batch))
        return found

    one, other = losses.get_concrete_function()()
    # Products of matrices of other shapes round differently.
    tolerance = 1e-2 if one.dtype.size < 4 else 1e-5
    if not (np.isfinite(one) and np.allclose(one, other, tolerance, 0.0)):
      raise masking.MaskError(
        'its layers or its loss mix the examples of a batch, draw numbers of '
        'their own or cannot be tried'
      )

  def parameters(self, leaves: Iterator[Any]) -> Sequence[Any]:
    """Packs the parameter's leaves; the data's is left out."""
    packed = _map(lambda _: next(leaves), self._parameters)
    return (*packed[:2], *packed[3:])


class _Clients:
  """The parameters of several clients, shared or one each."""

  def __init__(
    self,
    form: _CohortForm,
    leaves: Sequence[Optional[tf.Tensor]],
    stacked: Sequence[bool],
    count: int,
  ):
    self._form = form
    self._count = count
    self._leaves = leaves
    self._own = [i for i, each in enumerate(stacked) if each]

  def call(self, function: Callable[..., Any], *values: Any) -> Any:
    """Calls a function of a client's arguments and stacked values."""

    def one(own: Sequence[tf.Tensor], *values: Any) -> Any:
      leaves = list(self._leaves)
      for place, leaf in zip(self._own, own):
        leaves[place] = leaf
      return function(self._form.parameters(iter(leaves)), *values)

    own = [self._leaves[i] for i in self._own]
    return vectorizing.over_clients(self._count, one, own, *values)


class _Steps:
  """The steps of several clients, whose batches are gathered one by one."""

  def __init__(self, batches: cohorts.Batches, batch_spec: Any):
    self._batches = batches
    self._spec = batch_spec
    self._sizes = batches.end - batches.begin
    self._counts = -(-self._sizes // batches.batch_size)
    # Of each client's first batch, [clients, batch], in front of the loop.
    self._places = batches.begin[:, tf.newaxis] + tf.range(batches.batch_size)
    self._ends = batches.end[:, tf.newaxis]
    # A client's last row fills up its batches: another's may not be finite.
    self._last = tf.maximum(self._ends - 1, 0)

  def fold(
    self,
    take: Callable[..., Any],
    start: Any,
    most: Optional[tf.Tensor] = None,
  ) -> Any:
    """Folds `take(so_far, batch, mask)` over the steps.

    Args:
      take: Its arguments are stacked: the state, a batch for each client, and
        which of its examples count. A client without this step keeps its state.
      start: The initial state.
      most: Each client's largest number of steps; `None` for all.
    """
    counts = self._counts
    if most is not None:
      counts = tf.minimum(counts, tf.cast(most, tf.int32))

    packing = _Packing(start)

    def body(
      number: tf.Tensor, before: list[tf.Tensor]
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
      after = packing.pack(take(packing.unpack(before), *self._at(number)))
      return number + 1, _kept_without(number < counts, after, before)

    known = self._batches.most_batches
    *_, end = tf.while_loop(
      lambda number, _: (
        number < (tf.reduce_max(counts) if known is None else known)
      ),
      body,
      (tf.constant(0), packing.pack(start)),
    )
    return packing.unpack(end)

  def _at(self, number: tf.Tensor) -> tuple[structures.Examples, tf.Tensor]:
    """Returns a batch for each client, and which of its examples count."""
    places = self._places + number * self._batches.batch_size
    mask = places < self._ends
    places = tf.minimum(places, self._last)
    batch = tf.nest.pack_sequence_as(
      self._spec, [tf.gather(rows, places) for rows in self._batches.rows]
    )
    return batch, mask

  def look(self, local: _Local, draws: bool) -> Seen:
    """Returns what is known of the clients' data, stacked."""
    marks = tf.zeros_like(self._sizes)
    if draws:

      def mark(so_far: tf.Tensor, batch: Any, mask: tf.Tensor) -> tf.Tensor:
        def one(batch: Any, mask: tf.Tensor) -> tf.Tensor:
          local.mask = mask
          return local.fingerprint(batch)

        found = vectorizing.over_clients(mask.shape[0], one, batch, mask)
        return so_far + found

      marks = self.fold(mark, marks)
    return Seen(
      tf.cast(self._sizes, tf.int64), tf.cast(self._counts, tf.int64), marks
    )


class _Packing:
  """Stacks a state's numbers, of which clients have one each, by their dtypes.

  TensorFlow spends half of a small model's step on a loop's variables, as many
  of which are sums of metrics as weights.
  """

  def __init__(self, state: Any):
    self._state = state
    groups: dict[Any, list[int]] = collections.defaultdict(list)
    for place, leaf in enumerate(tf.nest.flatten(state)):
      groups[leaf.dtype.name if leaf.shape.rank == 1 else place].append(place)
    self._groups = list(groups.values())

  def pack(self, state: Any) -> list[tf.Tensor]:
    """Returns the loop's variables, each [clients, ...]."""
    leaves = tf.nest.flatten(state)
    return [
      tf.stack([leaves[i] for i in group], axis=1)
      if len(group) > 1
      else leaves[group[0]]
      for group in self._groups
    ]

  def unpack(self, packed: Sequence[tf.Tensor]) -> Any:
    """Returns the state."""
    leaves: dict[int, tf.Tensor] = {}
    for group, tensor in zip(self._groups, packed, strict=True):
      parts = tf.unstack(tensor, axis=1) if len(group) > 1 else [tensor]
      leaves.update(zip(group, parts, strict=True))
    flat = [leaves[place] for place in sorted(leaves)]
    return tf.nest.pack_sequence_as(self._state, flat)


def _kept_without(
  more: tf.Tensor, after: Sequence[tf.Tensor], before: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
  """Returns the state before a step for clients that do not have it.

  Args:
    more: Whether each client has the step, bool [clients].
    after, before: Tensors [clients, ...].
  """

  def chosen() -> list[tf.Tensor]:
    return [
      tf.where(tf.reshape(more, [-1] + [1] * (new.shape.rank - 1)), new, old)
      for new, old in zip(after, before, strict=True)
    ]

  sizes = [tensor.shape.num_elements() for tensor in before]
  small = None not in sizes and sum(sizes) < _SMALL_STATE
  if small or vectorizing.is_for_xla():
    # A branch takes longer, and a GPU would wait for the host at it.
    return chosen()
  # Most often all have it, and a choice reads and writes all weights.
  return tf.cond(tf.reduce_all(more), lambda: list(after), chosen)


def _map(function: Callable[[Any], Any], value: Any) -> Any:
  """Maps a structure's leaves in TFF's order, that of its containers."""
  if isinstance(value, Mapping):
    return collections.OrderedDict(
      (name, _map(function, part)) for name, part in value.items()
    )
  if hasattr(value, '_fields'):
    return type(value)(*(_map(function, part) for part in value))
  if attrs.has(type(value)):
    return type(value)(
      **{
        field.name: _map(function, getattr(value, field.name))
        for field in attrs.fields(type(value))
      }
    )
  if isinstance(value, (tuple, list)):
    return type(value)(_map(function, part) for part in value)
  return function(value)


def _leaves(value: Any) -> list[Any]:
  found: list[Any] = []
  _map(found.append, value)
  return found
