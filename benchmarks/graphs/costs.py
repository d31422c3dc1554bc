"""What a client's step and a round cost on a GPU, by arithmetic.

Computed, not measured: floating-point operations and bytes from the shapes
that TensorFlow infers, and seconds from published figures of devices. Nothing
here knows caches, tensor cores or how well a kernel is written.
"""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any, Optional

import tensorflow as tf
from tensorflow.python.grappler import item as grappler_item

from benchmarks.graphs import kernels
from benchmarks.graphs import placing

GraphDef = tf.compat.v1.GraphDef

# Seconds until the GPU begins a kernel after the one before, launched ahead:
# "Getting Started with CUDA Graphs", NVIDIA's technical blog, 2019 (3.8
# microseconds a kernel of 2.9 on a V100).
LAUNCH_SECONDS = 3.8e-6
# Seconds of a kernel that does next to nothing. Assumed.
SMALLEST_SECONDS = 2e-6
# Seconds of TensorFlow's executor for a node, launched or not. Assumed, of the
# order of what the in-process runtime takes here on a CPU for the logistic
# model (0.36 ms of a thread a step, of 300 nodes).
NODE_SECONDS = 1e-6


@dataclasses.dataclass(frozen=True)
class Device:
  """A GPU's published figures.

  Attributes:
    name: The device.
    flops: Operations a second in float32, without tensor cores.
    bandwidth: Bytes a second of its memory.
    source: Where the figures stand.
  """

  name: str
  flops: float
  bandwidth: float
  source: str


DEVICES = (
  Device('T4', 8.1e12, 300e9, 'NVIDIA T4 datasheet'),
  Device('A100 80GB SXM', 19.5e12, 2039e9, 'NVIDIA A100 datasheet'),
  Device('H100 SXM', 67e12, 3350e9, 'NVIDIA H100 datasheet'),
)
# Nodes that only pass on, rename or name a tensor: no kernel is launched.
_FREE = frozenset(
  {
    *('Identity', 'Enter', 'Exit', 'Merge', 'Switch', 'NextIteration'),
    *('Const', 'Placeholder', 'NoOp', 'Reshape', 'ExpandDims', 'Squeeze'),
    *('EnsureShape', 'VarHandleOp', 'ReadVariableOp', 'AssignVariableOp'),
    *('Shape', 'ShapeN', 'Size', 'Rank', 'StopGradient', 'IdentityN'),
  }
)


@dataclasses.dataclass(frozen=True)
class Work:
  """The cost of executing a graph, or a loop of it, once.

  Attributes:
    nodes: Nodes that are executed.
    kernels: Pairs of operations and bytes, one for each kernel launched.
  """

  nodes: int
  kernels: list[tuple[float, float]]

  @property
  def flops(self) -> float:
    return sum(flops for flops, _ in self.kernels)

  @property
  def bytes(self) -> float:
    return sum(size for _, size in self.kernels)

  def busy(self, device: Device, stacked: int = 1) -> float:
    """Seconds that the GPU computes: each kernel's roofline.

    Args:
      device: The GPU.
      stacked: Clients whose tensors are stacked, so that each kernel has so
        many times the work.
    """
    return sum(
      max(
        stacked * flops / device.flops,
        stacked * size / device.bandwidth,
        SMALLEST_SECONDS,
      )
      for flops, size in self.kernels
    )

  def host(self) -> float:
    """Seconds that one thread takes to walk the graph and launch."""
    return self.nodes * NODE_SECONDS + len(self.kernels) * LAUNCH_SECONDS

  def fills(self, device: Device) -> int:
    """Threads, each with a client, that keep the GPU busy."""
    return max(1, math.ceil(self.host() / self.busy(device)))


def total(*parts: tuple[int, Work]) -> Work:
  """Adds up work that is done several times."""
  return Work(
    sum(times * work.nodes for times, work in parts),
    [kernel for times, work in parts for kernel in times * work.kernels],
  )


@dataclasses.dataclass(frozen=True)
class Round:
  """The cost of a round.

  Attributes:
    cohort: Clients.
    client: One of them: its steps, what is before and after them, and adding
      its update to the others'.
    server: Preparing what is sent, and the server's step.
  """

  cohort: int
  client: Work
  server: Work

  @property
  def all(self) -> Work:
    return total((self.cohort, self.client), (1, self.server))

  def seconds(self, device: Device, at_once: int) -> float:
    """Seconds of a round in which so many clients share a GPU.

    Each has a thread that launches while the GPU computes, on a core of its
    own; the GPU computes one kernel at a time.
    """
    clients = max(
      self.cohort * self.client.busy(device),
      self.cohort * self.client.host() / min(at_once, self.cohort),
    )
    return clients + max(self.server.busy(device), self.server.host())

  def batch_that_fills(self, device: Device) -> int:
    """Clients stacked into one computation that keep the GPU busy.

    Its launches are those of one client. The smallest power of two is returned.
    """
    stacked = 1
    while self.client.busy(device, stacked) < self.client.host():
      stacked *= 2
    return stacked


def of_step(
  graph: GraphDef, batch_size: int, found: Optional[int] = None
) -> Work:
  """Adds up a client's loop over batches.

  Both branches of a condition are counted but those for an empty batch, which
  no client has.

  Args:
    graph: A client's flat graph.
    batch_size: Examples in a batch.
    found: Size of what only a step can tell, such as the number of words that
      occur in a batch; by default that of the batch.
  """
  return _of_nodes(graph, batch_size, found, called_on_gpu=True, in_loop=True)


def kernels_in_loops(placed: placing.Placed) -> int:
  """Counts the kernels that a step launches."""
  return sum(
    bool(placed.frames[name]) and node.op not in _FREE and placed.launches(name)
    for name, node in placed.nodes.items()
  )


# Instructions that only name or pass on what others made.
_NOT_LAUNCHED = r'(parameter|constant|tuple|get-tuple-element|bitcast|copy)'


def kernels_of_program(program: str) -> int:
  """Counts the kernels of a step in a program compiled by XLA.

  Args:
    program: As `collecting.of_cohort` returns it.

  Returns:
    The instructions in the body of its loop over steps, its largest one.
  """
  bodies = set(re.findall(r'body=%?([\w.-]+)', program))
  counts = [0]
  for part in program.split('\n\n'):
    heading = re.match(r'%?([\w.-]+) ', part)
    if heading and heading[1] in bodies:
      lines = [line for line in part.splitlines() if ' = ' in line]
      passed_on = [
        line for line in lines if re.search(rf'[\])}}] {_NOT_LAUNCHED}\(', line)
      ]
      counts.append(len(lines) - len(passed_on))
  return max(counts)


def waits_of_program(program: str) -> int:
  """Counts the loops for each of whose steps a GPU waits for the host.

  Args:
    program: As `collecting.of_cohort` returns it.
  """
  loops = [line for line in program.splitlines() if ' while(' in line]
  return sum('known_trip_count' not in line for line in loops)


def of_round(
  graphs: Mapping[str, GraphDef],
  batch_size: int,
  steps: int,
  cohort: int,
  found: Optional[int] = None,
) -> Round:
  """Adds up a round.

  Args:
    graphs: Its graphs, as `collecting.of_round` returns them.
    batch_size: Examples in a batch.
    steps: A client's batches.
    cohort: Clients.
    found: As in `of_step`.
  """
  clients, servers = [], []
  for name, graph in graphs.items():
    if name.startswith('client'):
      clients.append((steps, of_step(graph, batch_size, found)))
    to = servers if name.startswith('server') else clients
    work = _of_nodes(
      graph, batch_size, found, name.startswith('client'), in_loop=False
    )
    to.append((1, work))
  return Round(cohort, total(*clients), total(*servers))


def _of_nodes(
  graph: GraphDef,
  batch_size: int,
  found: Optional[int],
  called_on_gpu: bool,
  in_loop: bool,
) -> Work:
  """Adds up the nodes of a graph that are in loops, or those that are not."""
  sized = _with_batch(graph, batch_size)
  placed = placing.Placed(sized, called_on_gpu)
  shapes = _shapes(sized)
  unknown = batch_size if found is None else found
  chosen = [n for n in placed.nodes if bool(placed.frames[n]) == in_loop]
  launched = []
  for name in chosen:
    node = placed.nodes[name]
    if node.op in _FREE or not placed.launches(name):
      continue
    inputs = [shapes.get(s, {}).get(port) for s, port in placed.inputs[name]]
    outputs = list(shapes.get(name, {}).values())
    types = [*kernels.input_types(node), *kernels.output_types(node)]
    size = sum(
      _elements(shape, unknown) * dtype.size
      for shape, dtype in zip([*inputs, *outputs], types)
      if dtype not in (tf.resource, tf.variant, tf.string)
    )
    flops = _flops(node, inputs, outputs, unknown)
    launched.append((flops, size))
  return Work(len(chosen), launched)


def _with_batch(graph: GraphDef, batch_size: int) -> GraphDef:
  """Copies a graph, with the batch's size where batches come in."""
  sized = GraphDef()
  sized.CopyFrom(graph)
  for node in sized.node:
    node.attr.pop('_output_shapes', None)
    if node.op in ('OptionalGetValue', 'IteratorGetNext'):
      for shape in node.attr['output_shapes'].list.shape:
        for dim in shape.dim:
          if dim.size < 0:
            dim.size = batch_size
  return sized


def _shapes(graph: GraphDef) -> Mapping[str, Mapping[int, Any]]:
  """Infers the shapes of all outputs, loops included."""
  meta = tf.compat.v1.MetaGraphDef()
  meta.graph_def.CopyFrom(graph)
  read = {
    text.lstrip('^').partition(':')[0] for n in graph.node for text in n.input
  }
  ends = [n.name for n in graph.node if n.name not in read]
  meta.collection_def['train_op'].node_list.value.extend(ends)
  found = grappler_item.Item(meta).GetOpProperties()
  return {
    name: {
      port: None
      if output.shape.unknown_rank
      else [dim.size for dim in output.shape.dim]
      for port, output in enumerate(outputs)
    }
    for name, outputs in found.items()
  }


def _elements(shape: Any, unknown: int) -> int:
  sizes = [unknown if d < 0 else d for d in shape or []]
  return math.prod(sizes)


def _flops(node: Any, inputs: Any, outputs: Any, unknown: int) -> float:
  """Counts a node's operations: a product and a sum are two."""
  count = lambda shape: _elements(shape, unknown)
  out = count(outputs[0]) if outputs else 0
  op = node.op
  if op == 'MatMul':
    inner = -1 if not node.attr['transpose_a'].b else 0
    return 2 * out * count(inputs[0][inner:][:1])
  if op.startswith('BatchMatMul'):
    inner = -2 if node.attr['adj_x'].b else -1
    return 2 * out * count([inputs[0][inner]])
  if op == 'Einsum':
    letters = node.attr['equation'].s.decode().partition('->')[0].split(',')
    sizes = {
      letter: size
      for term, shape in zip(letters, inputs)
      for letter, size in zip(term.replace('...', ''), shape[-len(term) :])
    }
    return 2 * count(list(sizes.values()))
  if op == 'Conv2D':
    return 2 * out * count(inputs[1][:3])
  if op == 'Conv2DBackpropInput':
    return 2 * count(inputs[2]) * count(inputs[1][:3])
  if op == 'Conv2DBackpropFilter':
    return 2 * count(inputs[2]) * count(outputs[0][:3])
  if op == 'CudnnRNNV3':
    weights = count(inputs[3])
    return 2 * weights * count(inputs[0][:2])
  if op == 'CudnnRNNBackpropV3':
    return 4 * count(inputs[3]) * count(inputs[0][:2])
  return max(out, max(map(count, inputs), default=0))
