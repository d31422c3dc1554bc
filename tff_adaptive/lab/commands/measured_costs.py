"""Measurement of a method's costs per client.

Nothing is estimated: bytes sent are measured on the computation that TFF runs
(`traffic`), memory on the client optimizer's initial state, and gradients are
counted while the optimizer takes a step.
"""

import collections
import contextlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import structures
from tff_adaptive.algorithms import building
from tff_adaptive.lab.commands import cost_table
from tff_adaptive.lab.training import traffic as communication
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import blended
from tff_adaptive.processes import exchange as exchange_lib


def of_process(process: Any, pieces: building.Pieces) -> cost_table.Costs:
  """Measures the costs of a learning process.

  Args:
    process: The process.
    pieces: The components that it was composed of.

  Raises:
    ValueError: If something sent has no fixed size.
  """
  traffic = communication.of_process(process)
  weights = process.get_model_weights.type_signature.result.trainable
  optimizer, exchange = pieces.client_optimizer, pieces.exchange
  specs = tuple(tf.nest.flatten(tff.types.type_to_tf_tensor_specs(weights)))
  held = kept = 0
  client_state: Any = collections.OrderedDict()
  if algorithms.is_stateful(process):
    state_type = process.initialize_client_state.type_signature.result
    kept = communication.size_of(state_type)
    client_state = tff.types.type_to_tf_tensor_specs(state_type)
  with tf.Graph().as_default():
    state = _bytes(optimizer.initialize(specs))
    if exchange is not None:
      client = exchange_lib.Client(
        statistics=exchange.initialize(specs),
        state=tf.nest.map_structure(
          lambda s: tf.zeros(s.shape, s.dtype), client_state
        ),
        received=tuple(tree.zeros(specs)),
      )
      held = _bytes(exchange.context(client))
  more_pass = exchange is not None and exchange.full_gradient_pass is not None
  return cost_table.Costs(
    model=communication.size_of(weights),
    down=traffic.down,
    up=traffic.up,
    optimizer_state=state,
    context=held,
    kept=kept,
    gradients=_gradients_a_step(optimizer, specs) + int(more_pass),
  )


def _bytes(structure: structures.Structure) -> int:
  tensors = [tf.convert_to_tensor(leaf) for leaf in tf.nest.flatten(structure)]
  return sum(t.dtype.size * t.shape.num_elements() for t in tensors)


def _gradients_a_step(
  optimizer: tff.learning.optimizers.Optimizer,
  specs: Sequence[tf.TensorSpec],
) -> int:
  """Counts the gradients of a step, including the one at the weights."""
  if isinstance(optimizer, blended.Blended):
    # Each client draws one of the optimizers.
    return max(_gradients_a_step(o, specs) for o in optimizer.choices)
  asked = []
  with tf.Graph().as_default():
    weights = tree.zeros(specs)

    def gradients_at(at: Any) -> Any:
      del at
      asked.append(True)
      return weights

    batch = protocol.Batch(
      tf.constant(1.0), gradients_at, tf.constant(1, tf.int64),
      tf.constant(1, tf.int64),
    )  # fmt: skip
    state = tf.nest.map_structure(
      tf.convert_to_tensor, optimizer.initialize(specs)
    )
    protocol.take_step(optimizer, state, weights, weights, batch)
  return 1 + len(asked)


def of_methods(
  names: Sequence[str], model_fn: Any
) -> Iterator[tuple[str, Optional[cost_table.Costs]]]:
  """Measures the costs of methods with their default hyperparameters.

  Args:
    names: Names of the methods.
    model_fn: As `algorithms.build` takes it.

  Yields:
    Name and costs of each method, as soon as measured; `None` for a method that
    cannot train the model.
  """
  for name in names:
    pieces = building.make_pieces(algorithms.resolve(name))
    found = None
    with contextlib.suppress(exchange_lib.UnsuitableModelError):
      found = of_process(pieces.compose(model_fn), pieces)
    yield name, found
