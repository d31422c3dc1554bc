"""Forms of client computations that run for a whole cohort in one call.

A computation that a client runs may have a second form, which computes the same
for several clients at once from arrays of all their batches. The in-process
engine uses it where it finds it; for other runtimes it does not exist.
"""

import dataclasses
import hashlib
from collections.abc import MutableMapping, Sequence
from typing import Protocol

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
  """

  rows: Sequence[tf.Tensor]
  begin: tf.Tensor
  end: tf.Tensor
  batch_size: int


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


def _key(block: tff.framework.CompiledComputation) -> bytes:
  """Computes a key that is equal for blocks with equal graphs."""
  proto = block.proto.tensorflow
  return hashlib.sha256(proto.SerializeToString(deterministic=True)).digest()


_forms: MutableMapping[bytes, CohortForm] = cachetools.LRUCache(_MOST)


def register(computation: tff.Computation, form: CohortForm) -> None:
  """Declares the cohort form of a `tff.tensorflow.computation`."""
  _forms[_key(computation.to_compiled_building_block())] = form


def form_of(block: tff.framework.CompiledComputation) -> CohortForm | None:
  """Returns the cohort form of an equal computation, if it has one."""
  return _forms.get(_key(block))
