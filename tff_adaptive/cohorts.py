"""Forms of client computations that run for a whole cohort in one call.

A computation that a client runs may have a second form, which computes the same
for several clients at once from arrays of all their batches. The in-process
engine uses it where it finds it, also as an actor on a cluster, which receives
it with the computation. TFF's own runtimes know nothing of it.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

import cachetools
import tensorflow as tf
import tensorflow_federated as tff

_MOST = 256


@dataclasses.dataclass(frozen=True)
class Batches:
  """The batches of several clients, as rows of common tensors.

  Attributes:
    rows: Tensors [rows, ...], in the order of `tf.nest`.
    begin: Each client's first row, int32 [clients].
    end: The row after its last, int32 [clients].
    batch_size: Number of rows of a batch; a client's last may have fewer.
    most_batches: A number that no client's batches exceed, if one is known when
      the graph is built. XLA then knows how often its loop runs, and a GPU does
      not wait for the host at each step.
  """

  rows: Sequence[tf.Tensor]
  begin: tf.Tensor
  end: tf.Tensor
  batch_size: int
  most_batches: int | None = None


class CohortForm(Protocol):
  """The form of a client computation for several clients."""

  def __call__(
    self,
    leaves: Sequence[tf.Tensor | None],
    stacked: Sequence[bool],
    batches: Batches,
  ) -> list[tf.Tensor]:
    """Adds the computation of all clients to the current graph.

    Args:
      leaves: The parameter's tensors in TFF's order; `None` for the dataset.
      stacked: Which of them are stacked, [clients, ...], rather than equal for
        all clients.
      batches: The clients' batches.

    Returns:
      The result's tensors in TFF's order, stacked.
    """

  def check(self, rows: Sequence[tf.Tensor]) -> None:
    """Checks, after a call, that filled up batches do not change results.

    Args:
      rows: Eager tensors [rows, ...], some of clients' examples.

    Raises:
      TypeError: If they do.
    """


_Proto: TypeAlias = Any


def _key(proto: _Proto) -> bytes:
  """Computes a key that is equal for equal graphs."""
  return hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()


_forms: MutableMapping[bytes, CohortForm] = cachetools.LRUCache(_MOST)


def register(computation: tff.Computation, form: CohortForm) -> None:
  """Declares the cohort form of a `tff.tensorflow.computation`."""
  block = computation.to_compiled_building_block()
  _forms[_key(block.proto.tensorflow)] = form


def form_of(block: tff.framework.CompiledComputation) -> CohortForm | None:
  """Returns the cohort form of an equal computation, if it has one."""
  return _forms.get(_key(block.proto.tensorflow))


def forms_in(computation: _Proto) -> dict[bytes, CohortForm]:
  """Returns the forms of a computation's parts, for `register_forms`.

  Args:
    computation: The computation as a protocol buffer.
  """
  return {key: _forms[key] for key in _graphs(computation) if key in _forms}


def register_forms(forms: Mapping[bytes, CohortForm]) -> None:
  """Declares what `forms_in` returned in another process."""
  _forms.update(forms)


def _graphs(message: _Proto) -> Iterator[bytes]:
  """Yields the keys of all graphs in a computation."""
  for field, value in message.ListFields():
    if field.message_type is None:
      continue
    parts = value if isinstance(value, Sequence) else [value]
    for part in parts:
      if field.message_type.name == 'TensorFlow':
        yield _key(part)
      else:
        yield from _graphs(part)
