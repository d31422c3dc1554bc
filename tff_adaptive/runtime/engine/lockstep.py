"""Clients of a phase that train together, in one call for several of them.

See `tff_adaptive.cohorts`. Used where every client's data are rows of known
batches and the phase's client function has a cohort form; otherwise clients run
one at a time.
"""

import dataclasses
import itertools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from tff_adaptive import cohorts
from tff_adaptive import vectorizing
from tff_adaptive.runtime import failures
from tff_adaptive.runtime import tff_functions
from tff_adaptive.runtime.engine import dataset_cache
from tff_adaptive.runtime.engine import fused as fused_lib
from tff_adaptive.runtime.engine import nodes as nodes_lib

_Values: TypeAlias = dict[nodes_lib.Leaf, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Rows:
  """The data of several clients, as rows of common tensors.

  Attributes:
    components: Eager tensors [rows, ...].
    begin: Each client's first row.
    end: The row after its last.
    batch_size: Number of rows of a batch; a client's last may have fewer.
  """

  components: Sequence[tf.Tensor]
  begin: Sequence[int]
  end: Sequence[int]
  batch_size: int

  @property
  def padded_size(self) -> int:
    """The batch size to compute with: no larger than the largest client."""
    sizes = [e - b for b, e in zip(self.begin, self.end, strict=True)]
    return min(self.batch_size, rounded_up(max(1, *sizes)))

  def most_batches(self, group: Sequence[int]) -> int:
    """Returns the number of batches of a group's largest client, rounded up."""
    most = max(self.end[i] - self.begin[i] for i in group)
    return rounded_up(max(1, -(-most // self.padded_size)))


def rounded_up(count: int) -> int:
  """Rounds a size up by a quarter at most, so that few sizes are traced."""
  step = 1 << max(0, count.bit_length() - 3)
  return -(-count // step) * step


def joined(
  data: Sequence[dataset_cache.ClientData],
  few_sizes: bool = False,
  only_own: bool = False,
  check: dataset_cache.Check = lambda: None,
) -> Rows:
  """Joins the rows of several clients.

  Args:
    data: The clients' data, as `dataset_cache.client_data` returns them.
    few_sizes: Whether to append rows, so that few numbers of rows occur.
    only_own: Whether to leave out other clients' rows of common tensors, as for
      a GPU, to which the rows are copied.
    check: Called between batches that are read; may raise an exception.

  Raises:
    CannotVectorize: If their batches are not known or have other sizes.
    MemoryError: If more is read from datasets than a cohort may hold at once.
  """
  found = []
  read_bytes = 0
  for variant in data:
    rows = variant.read_rows(check)
    if rows is None:
      raise failures.CannotVectorize(
        'the batches of a client are not known beforehand'
      )
    found.append(rows)
    if rows is not variant.known_rows:
      read_bytes += sum(np.asarray(c).nbytes for c in rows.components)
      if read_bytes > _READ_BYTES:
        raise MemoryError('the data of a cohort are large')
  first = found[0]
  if not only_own and all(
    rows.batch_size == first.batch_size
    and all(a is b for a, b in zip(rows.components, first.components))
    for rows in found
  ):
    with tf.device('/device:CPU:0'):
      components = [tf.convert_to_tensor(c) for c in first.components]
    return Rows(
      components,
      [rows.begin for rows in found],
      [rows.end for rows in found],
      first.batch_size,
    )
  sizes = [rows.end - rows.begin for rows in found]
  size = max(min(r.batch_size, n) for r, n in zip(found, sizes, strict=True))
  if any(
    r.batch_size != size and n > r.batch_size
    for r, n in zip(found, sizes, strict=True)
  ):
    raise failures.CannotVectorize('clients have batches of different sizes')
  shapes = {tuple(c.shape[1:] for c in rows.components) for rows in found}
  if len(shapes) > 1:
    raise failures.CannotVectorize('clients have examples of different shapes')
  ends = list(itertools.accumulate(sizes))
  if not ends[-1]:
    raise failures.CannotVectorize('no client of the cohort has examples')
  appended = rounded_up(ends[-1]) - ends[-1] if few_sizes else 0
  with tf.device('/device:CPU:0'):
    # In NumPy, which slices a thousand small tensors at a tenth of the time.
    components = []
    for i in range(len(first.components)):
      parts = [
        np.asarray(rows.components[i])[rows.begin : rows.end] for rows in found
      ]
      whole = np.concatenate(parts)
      if appended:
        last = np.repeat(whole[-1:], appended, axis=0)
        whole = np.concatenate([whole, last])
      components.append(tf.constant(whole))
  begins = [end - n for end, n in zip(ends, sizes, strict=True)]
  return Rows(components, begins, ends, size)


# Memory for rows that are read from clients' datasets.
_READ_BYTES = 1 << 30
# Memory for a block's outputs.
_BLOCK_BYTES = 256 << 20
_BLOCK_BYTES_ON_GPU = 1 << 30
# Memory for a group's weights, gradients and states, about so many copies of
# what each of its clients receives.
_GROUP_BYTES = 4 << 30
_COPIES = 8
_MOST_IN_BLOCK = 512
# Fewer clients do not divide a call's cost by much.
_LEAST_IN_GROUP = 4
# A group's steps with such models are all calls, which threads do not speed up.
_TINY_BYTES = 16 << 10
# More clients divide what is left of it by little.
_MOST_IN_GROUP = 64


def blocks(count: int, output_bytes: int | None, on_gpu: bool) -> list[range]:
  """Divides a cohort into blocks, whose outputs are in memory at once.

  Args:
    count: Number of clients.
    output_bytes: Size of one client's outputs; `None` if unknown.
    on_gpu: Whether they are in a GPU's memory.
  """
  memory = _BLOCK_BYTES_ON_GPU if on_gpu else _BLOCK_BYTES
  most = memory // max(1, output_bytes or memory)
  size = _even(count, min(_MOST_IN_BLOCK, max(1, most)))
  return [range(i, min(i + size, count)) for i in range(0, count, size)]


def _even(count: int, most: int) -> int:
  """Returns the size of as few parts as possible, none much smaller."""
  return -(-count // max(1, -(-count // most)))


def groups(
  block: range,
  rows: Rows,
  threads: int,
  devices: int,
  received_bytes: int | None,
) -> list[Sequence[int]]:
  """Divides a block into groups of clients with similar numbers of steps.

  Args:
    block: The clients, by index.
    rows: The clients' data.
    threads: Number of groups that run at once.
    devices: Number of devices, of which each gets a group.
    received_bytes: Size of what a client receives; `None` if unknown.

  Returns:
    The groups, those with the most steps first.
  """
  tiny = received_bytes is not None and received_bytes <= _TINY_BYTES
  most = _GROUP_BYTES // (_COPIES * max(1, received_bytes or 1))
  wanted = devices
  if not tiny:
    wanted = max(wanted, min(threads, len(block) // _LEAST_IN_GROUP))
  size = min(_MOST_IN_GROUP, max(1, most), -(-len(block) // wanted))
  size = _even(len(block), size)
  # A group takes as long as its largest client.
  ordered = sorted(block, key=lambda i: rows.begin[i] - rows.end[i])
  return [ordered[i : i + size] for i in range(0, len(ordered), size)]


def stacked(tensors: Sequence[tf.Tensor], size: int) -> tf.Tensor:
  """Stacks clients' tensors, and repeats the last one up to `size`."""
  padding = [tensors[-1]] * (size - len(tensors))
  try:
    with tf.device('/device:CPU:0'):
      return tf.stack([*tensors, *padding])
  except tf.errors.InvalidArgumentError as e:
    raise failures.CannotVectorize(
      'clients have values of different shapes'
    ) from e


def numbers(values: Sequence[int], size: int) -> tf.Tensor:
  """Returns numbers as int32 [size], followed by zeros."""
  padding = [0] * (size - len(values))
  with tf.device('/device:CPU:0'):
    return tf.constant([*values, *padding], tf.int32)


class Together:
  """A phase's client function for several clients at once.

  Attributes:
    cannot_compile: Why XLA does not compile it; empty unless that failed.
    shared: Leaves of `fused.inputs` at the server.
    own: Leaves of `fused.inputs` at clients, without the data.
    data: The leaf of the clients' data.
    output_slots: Slots of the outputs.
    received_bytes: Size of what a client receives; `None` if unknown.
  """

  def __init__(self, fused: fused_lib.Fused):
    """Traces nothing yet.

    Args:
      fused: The function for one client.

    Raises:
      CannotVectorize: If it has no form for several.
    """
    self.cannot_compile = ''
    self._fused = fused
    data = [leaf for leaf in fused.inputs if leaf.spec.dtype == tf.variant]
    readers = [
      node for node in fused.nodes if any(leaf in data for leaf in node.inputs)
    ]
    if not readers:
      raise failures.CannotVectorize('')
    if len(data) != 1:
      raise failures.CannotVectorize('clients have several datasets each')
    self._forms: list[cohorts.CohortForm] = []
    for node in readers:
      if node.graph is None or node.graph.cohort_form is None:
        raise failures.CannotVectorize(
          'the computation is not one of this package'
        )
      self._forms.append(node.graph.cohort_form)
    if fused.ordered or any(
      leaf.spec.dtype == tf.variant for leaf in fused.outputs
    ):
      raise failures.CannotVectorize(
        'clients must run one by one, in their order'
      )
    (self.data,) = data
    self.shared = [x for x in fused.inputs if x.node.site is nodes_lib.SERVER]
    self.own = [
      x
      for x in fused.inputs
      if x.node.site is nodes_lib.CLIENT and x != self.data
    ]
    self.received_bytes = fused.shared_bytes
    self._is_checked = False
    self.output_slots = [leaf.slot for leaf in fused.outputs]
    self._functions: dict[
      tuple[int, int, int | None], tff_functions.FastFunction
    ] = {}

  def function(
    self,
    clients: int,
    batch_size: int,
    components: Sequence[tf.Tensor],
    compiled_batches: int | None,
  ) -> tff_functions.FastFunction:
    """Returns the function for a number of clients, traced once.

    Its arguments are the tensors of `shared`, those of `own`, stacked, begin
    and end of the clients' rows, int32 [clients], and the rows. Its results are
    the tensors of the outputs, stacked.

    Args:
      clients: Their number.
      batch_size: That of the batches.
      components: The rows.
      compiled_batches: For XLA to compile it, a number that no client's batches
        exceed; `None` if TensorFlow is to run it.

    Raises:
      CannotVectorize: If TensorFlow cannot vectorize it.
    """
    key = clients, batch_size, compiled_batches
    try:
      if key not in self._functions:
        self._functions[key] = self._traced(*key, components)
      self.check(components)
    except Exception as e:  # pylint: disable=broad-exception-caught
      # An error of the model itself is raised once a client trains alone.
      raise failures.CannotVectorize(vectorizing.reason(e)) from e
    return self._functions[key]

  def check(self, components: Sequence[tf.Tensor]) -> None:
    """Checks once, on rows, that filled up batches do not change results.

    Raises:
      TypeError: If they do.
    """
    if not self._is_checked and components[0].shape[0]:
      for form in self._forms:
        form.check(components)
      self._is_checked = True

  def _traced(
    self,
    clients: int,
    batch_size: int,
    compiled_batches: int | None,
    components: Sequence[tf.Tensor],
  ) -> tff_functions.FastFunction:
    specs = [
      *fused_lib.specs_of(self.shared),
      *fused_lib.stacked_specs_of(self.own, clients),
      *[tf.TensorSpec([clients], tf.int32)] * 2,
      *(tf.TensorSpec([None, *c.shape[1:]], c.dtype) for c in components),
    ]

    def body(*tensors: tf.Tensor) -> list[tf.Tensor]:
      return self._build(clients, batch_size, compiled_batches, tensors)

    body.__name__ = f'clients_{clients}_batch_{batch_size}'
    # Not `wrap_function`, in whose graphs Keras builds no models.
    options = dict(input_signature=specs, autograph=False)
    jit_compile = compiled_batches is not None
    with vectorizing.quietly(), vectorizing.for_xla(jit_compile):
      concrete = tf.function(body, **options).get_concrete_function()
    if jit_compile:
      # Around the function: TensorFlow vectorizes in none that is compiled.
      inner = concrete
      concrete = tf.function(
        lambda *tensors: inner(*tensors), jit_compile=True, **options
      ).get_concrete_function()
    return tff_functions.FastFunction(concrete)

  def _build(
    self,
    clients: int,
    batch_size: int,
    most_batches: int | None,
    tensors: Sequence[tf.Tensor],
  ) -> list[tf.Tensor]:
    cut = len(self.shared) + len(self.own)
    begin, end, *rows = tensors[cut:]
    batches = cohorts.Batches(rows, begin, end, batch_size, most_batches)
    shared: _Values = dict(zip(self.shared, tensors))
    stacked: _Values = dict(zip(self.own, tensors[len(self.shared) : cut]))
    add_clients(self._fused.nodes, shared, stacked, batches, clients)
    return [stacked[leaf] for leaf in self._fused.outputs]


def add_clients(
  nodes: Sequence[nodes_lib.Node],
  shared: _Values,
  stacked: _Values,
  batches: cohorts.Batches | None,
  count: int,
) -> None:
  """Adds the nodes of several clients, and what they compute to `stacked`.

  Args:
    nodes: The nodes, of which those that read data have a cohort form.
    shared: Tensors that are the same for all clients, by leaf.
    stacked: Tensors of each, [count, ...], without the data.
    batches: The data.
    count: The number of clients.
  """
  for node in nodes:
    if any(leaf.spec.dtype == tf.variant for leaf in node.inputs):
      form = None if node.graph is None else node.graph.cohort_form
      if form is None or batches is None:
        raise TypeError('the computation is not one of this package')
      made: Sequence[tf.Tensor] = form(
        [shared.get(x, stacked.get(x)) for x in node.inputs],
        [x in stacked for x in node.inputs],
        batches,
      )
    else:
      made = each(node, shared, stacked, count)
    stacked.update(zip(node.leaves, made, strict=True))


def each(
  node: nodes_lib.Node, shared: _Values, stacked: _Values, count: int
) -> Sequence[tf.Tensor]:
  """Adds a node for several clients, such as a product with a weight.

  Args:
    node: The node.
    shared: Tensors that are the same for all, by leaf.
    stacked: Tensors of each, [count, ...].
    count: The number of clients.
  """
  assert node.build is not None
  build: Callable[..., Sequence[tf.Tensor]] = node.build
  wanted = range(len(node.specs))
  own = [leaf for leaf in node.inputs if leaf in stacked]

  def one(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    # Of this function's own graph, as imported graphs want their inputs.
    known = {x: tf.identity(shared[x]) for x in node.inputs if x in shared}
    known.update(zip(own, map(tf.identity, values[1:])))
    return list(build([known[leaf] for leaf in node.inputs], wanted))

  # The numbers of the clients, because they may share all inputs. Each still
  # draws its own random numbers.
  numbered = [tf.range(count), *(stacked[leaf] for leaf in own)]
  return map_each(one, numbered, node.specs)


def map_each(
  function: Callable[[Any], list[tf.Tensor]],
  stacked: Any,
  specs: Sequence[tf.TensorSpec],
) -> list[tf.Tensor]:
  """Maps a function of one client's tensors over stacked ones."""
  try:
    return tf.vectorized_map(function, stacked, fallback_to_while_loop=False)
  except ValueError:
    # TFF's conditions, as in clipping, have branches that must run for one
    # client alone.
    return tf.map_fn(function, stacked, fn_output_signature=list(specs))
