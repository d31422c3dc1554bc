"""Measurement of the cohort's first client, for `Exchange.probes_first_client`.

Plain TensorFlow, except for `first`; `client_work` places it on clients.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import structures
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import client_function
from tff_adaptive.processes.local import local_model


class _SoFar(NamedTuple):
  """State of the pass over a client's batches; only the first is measured."""

  batches: tf.Tensor
  found: exchange_lib.First


@dataclasses.dataclass(frozen=True)
class FirstStep(client_function.ClientFunction[tuple[()], _SoFar]):
  """The model's loss and gradient on a client's first batch.

  The result is an `exchange.First`.
  """

  model: local_model.Model
  exchange: exchange_lib.Exchange

  def begin(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    seen: Optional[client_function.Seen],
  ) -> tuple[tuple[()], _SoFar]:
    local.begin(arguments[1])
    return (), _SoFar(tf.constant(0, tf.int32), _none())

  def step(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: tuple[()],
    so_far: _SoFar,
    batch: structures.Examples,
  ) -> _SoFar:
    state, weights = arguments

    def measure() -> exchange_lib.First:
      # The seed of the client's first local step, for the same dropout mask.
      local.set_seed(
        lambda: randomness.step_seed(
          state.numbers['seed'],
          state.round,
          tf.constant(0),
          local.fingerprint(batch),
        )
      )
      _, evaluated = local.evaluate(
        local.begun(weights), batch, lambda weights, represent: tf.constant(0.0)
      )
      norm = tree.squared_norm(evaluated.gradients)
      finite = tree.all_finite((evaluated.loss, norm))
      return exchange_lib.First(
        finite,
        tf.where(finite, evaluated.loss, 0.0),
        tf.where(finite, norm, 0.0),
      )

    # Not `take`: what is done to a dataset keeps the in-process runtime from
    # handing over a list of batches, which is several times as fast.
    wanted = self.exchange.wants_first(state.statistics)
    looks = tf.logical_and(wanted, tf.equal(so_far.batches, 0))
    found = tree.cond(looks, measure, lambda: so_far.found)
    return _SoFar(so_far.batches + 1, found)

  def finish(
    self,
    local: local_model.LocalModel[local_model.Carry],
    arguments: Sequence[Any],
    constants: tuple[()],
    so_far: _SoFar,
  ) -> exchange_lib.First:
    return so_far.found


def _none() -> exchange_lib.First:
  return exchange_lib.First(
    tf.constant(False), tf.constant(0.0), tf.constant(0.0)
  )


def first(measured: structures.Placed) -> structures.Placed:
  """Returns the first client's valid measurement, at the server.

  Called inside a federated computation. The runtimes aggregate clients in the
  cohort's order.

  Args:
    measured: The results of `FirstStep`, at clients.
  """
  kind = measured.type_signature.member

  @tff.tensorflow.computation(kind, kind)
  def keep(
    earlier: exchange_lib.First, later: exchange_lib.First
  ) -> exchange_lib.First:
    return tf.nest.map_structure(
      lambda a, b: tf.where(earlier.measured, a, b), earlier, later
    )

  @tff.tensorflow.computation(kind)
  def report(kept: exchange_lib.First) -> exchange_lib.First:
    return kept

  zero = tff.tensorflow.computation(_none)
  return tff.federated_aggregate(measured, zero(), keep, keep, report)
