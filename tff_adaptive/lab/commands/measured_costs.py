"""Measurement of a method's costs per client.

Nothing is estimated: bytes sent are measured on the computation that TFF runs
(`traffic`), memory on the client optimizer's initial state, and gradients are
counted while the optimizer takes a step.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import algorithms
from tff_adaptive import structures
from tff_adaptive.algorithms import building
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.lab.training import traffic as communication
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import blended
from tff_adaptive.processes import exchange as exchange_lib


@dataclasses.dataclass(frozen=True, kw_only=True)
class Costs:
  """The costs of a method for one client.

  Attributes:
    model: Bytes of the trainable weights, the unit d.
    down, up: Bytes that a client receives and sends in a round.
    optimizer_state: Bytes of the client optimizer's state between local steps.
    context: Bytes of the exchange's context in a round, such as a correction
      of gradients or a previous model.
    kept: Bytes of the client state kept between rounds, which is not sent.
    gradients: Number of batch gradients computed per local step, including that
      of a full-gradient pass over the data.
  """

  model: int
  down: int
  up: int
  optimizer_state: int
  context: int
  kept: int
  gradients: int

  @property
  def traffic(self) -> float:
    """Sum of `down` and `up`, in units of d."""
    return (self.down + self.up) / self.model

  @property
  def memory(self) -> float:
    """Memory for model, optimizer, context and client state, in units of d.

    As counted in FedAda2's paper: includes the model once, excludes batches,
    activations, the current gradient and the received model.
    """
    held = self.optimizer_state + self.context + self.kept
    return 1 + held / self.model


# Traffic and memory in units of d, and gradients: arXiv 2410.18117, Table 2.
PUBLISHED: Mapping[str, tuple[int, int, int]] = {
  'fedavg': (2, 1, 1),
  'fedadagrad': (2, 1, 1),
  'direct_joint': (3, 2, 1),
  'fedada2': (2, 2, 1),
  'mime': (5, 4, 3),
  'mimelite': (4, 3, 2),
}
# Columns and their widths.
_COLUMNS = (
  ('d B', 12), ('down B', 12), ('up B', 12), ('down d', 8), ('up d', 8),
  ('traffic d', 11), ('paper', 7), ('optimizer B', 13), ('kept B', 12),
  ('memory d', 10), ('paper', 7), ('gradients', 11), ('paper', 7),
)  # fmt: skip


def table(
  configurations: Iterable[configuration_lib.MethodConfiguration], model_fn: Any
) -> Iterator[str]:
  """Renders the costs of methods, each line as soon as it is measured.

  Args:
    configurations: The methods.
    model_fn: The model, as `algorithms.build` takes it.
  """
  yield _line('method', [name for name, _ in _COLUMNS])
  for configuration in configurations:
    name = configuration.method.name
    components = building.build_components(configuration)
    try:
      costs = of_process(components.compose(model_fn), components)
    except (exchange_lib.UnsuitableModelError, adapters.AdapterError):
      yield _line(name, []) + 'not for this model'
      continue
    traffic, memory, gradients = PUBLISHED.get(name, ('', '', ''))
    yield _line(
      name,
      [
        f'{costs.model:,}',
        f'{costs.down:,}',
        f'{costs.up:,}',
        f'{costs.down / costs.model:.3f}',
        f'{costs.up / costs.model:.3f}',
        f'{costs.traffic:.3f}',
        traffic,
        f'{costs.optimizer_state:,}',
        f'{costs.kept:,}',
        f'{costs.memory:.3f}',
        memory,
        costs.gradients,
        gradients,
      ],
    )


def _line(name: str, cells: Sequence[Any]) -> str:
  shown = (f'{cell:>{width}}' for cell, (_, width) in zip(cells, _COLUMNS))
  return f'{name:<19}' + ''.join(shown)


def of_process(process: Any, components: building.Components) -> Costs:
  """Measures the costs of a learning process.

  Args:
    process: The process.
    components: The components that it was composed of.

  Raises:
    ValueError: If something sent has no fixed size.
  """
  traffic = communication.of_process(process)
  weights = process.get_model_weights.type_signature.result.trainable
  optimizer, exchange = components.client_optimizer, components.exchange
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
  return Costs(
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
