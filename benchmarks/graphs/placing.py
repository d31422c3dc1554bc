"""A flat graph, placed on a CPU and one GPU as TensorFlow's placer does.

TensorFlow's rules (placer.cc, colocation_graph.cc, and graph_partition.cc for
the last) are applied here, with its own list of kernels; a test holds them to
what TensorFlow does with a pretended GPU (pretending.py):

* nodes that a resource, or a `_class` attribute, connects go to one device;
* what names the CPU goes there; in a function that is called on the GPU all
  else goes to the GPU that has a kernel there;
* in others a kernel's priority decides (iterators prefer the CPU), else the GPU
  is chosen;
* `Shape`, `Size` and `Rank` go where their input is;
* a node without inputs goes where all that read it are;
* `Switch` and `Exit` are then moved to where their input is.

Arguments are on the GPU, where eager tensors and variables are made if there
is one, but for datasets. A tensor is copied between host and device where one
node has it in the one memory and another wants it in the other: between nodes
of different devices, and on the GPU where kernels keep a tensor with the host.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from benchmarks.graphs import kernels

# Frame of what is in no loop.
OUTSIDE: tuple[str, ...] = ()
_METADATA = ('Shape', 'Size', 'Rank')
ARGUMENTS = ('Placeholder', '_Arg')
_FOLLOWS = ('Switch', 'Exit')
# Of arguments and of functions' results these stay with the host.
_HOST_TYPES = (tf.int32, tf.resource, tf.string)
_PASSES_ON = ('Identity', 'Enter', 'Switch', 'Merge', 'Exit', 'NextIteration')


@dataclasses.dataclass(frozen=True)
class Copy:
  """A tensor that is copied between host and device.

  Attributes:
    source: Name of the node that makes it.
    op: That node's op.
    readers: Ops that want it in the other memory.
    to_device: Whether it goes to the device; to the host if not.
    frame: The loop in which, by the names of the loops around it.
    dtype: Its type.
    condition: Whether it decides a branch or the end of a loop, which then
      waits for the device.
  """

  source: str
  op: str
  readers: tuple[str, ...]
  to_device: bool
  frame: tuple[str, ...]
  dtype: tf.DType
  condition: bool


class Placed:
  """A graph with a device for each node.

  Attributes:
    nodes: NodeDefs by name.
    on_gpu: Whether each is on the GPU.
    frames: The loop that each is in, by the names of the loops around it.
    copies: Tensors that are copied.
  """

  def __init__(self, graph: tf.compat.v1.GraphDef, called_on_gpu: bool):
    """Places all nodes of a flat graph.

    Args:
      graph: The graph.
      called_on_gpu: Whether it is called on the GPU, as clients are, and not
        where TensorFlow chooses, as the server is. All that has a kernel there
        then goes there, whatever its priority.
    """
    self._called_on_gpu = called_on_gpu
    self.nodes: dict[str, Any] = {node.name: node for node in graph.node}
    self.inputs = {
      node.name: [_endpoint(text) for text in node.input if text[0] != '^']
      for node in graph.node
    }
    self._readers = collections.defaultdict(list)
    for name, sources in self.inputs.items():
      for position, (source, port) in enumerate(sources):
        self._readers[source].append((port, name, position))
    self.frames = frames_of(self.nodes)
    self.on_gpu = self._place()
    self._memory = {name: self._memory_of(name) for name in self.nodes}
    self.copies = self._copies()

  def _place(self) -> dict[str, bool]:
    priorities = {name: _priorities(node) for name, node in self.nodes.items()}
    groups = _Groups(priorities)
    for name, sources in self.inputs.items():
      types = kernels.input_types(self.nodes[name])
      for (source, _), dtype in zip(sources, types, strict=True):
        if dtype == tf.resource:
          groups.join(source, name)
      if '_class' in self.nodes[name].attr:
        for spec in self.nodes[name].attr['_class'].list.s:
          other = spec.decode().removeprefix('loc:@')
          if other in self.nodes:
            groups.join(other, name)
    placed: dict[str, bool] = {}
    alone = []

    def assign(name: str, preferred: bool | None) -> None:
      group = groups.root(name)
      possible = groups.kinds[group]
      if group not in decided:
        choice = possible[0][0] == 'GPU'
        if self._called_on_gpu:
          choice = any(kind == 'GPU' for kind, _ in possible)
        if preferred is not None:
          if any((kind == 'GPU') == preferred for kind, _ in possible):
            choice = preferred
        decided[group] = choice
      placed[name] = decided[group]

    decided: dict[str, bool] = {}
    order = _in_order(self.nodes, self.inputs)
    for name in order:
      node = self.nodes[name]
      if node.op in ARGUMENTS:
        # A handle is where the ops that use it prefer to be.
        dtype = tf.as_dtype(node.attr['dtype'].type)
        assign(name, None if dtype == tf.resource else dtype != tf.variant)
      elif not self.inputs[name] and len(kernels.output_types(node)) == 1:
        alone.append(name)
      elif node.op in _METADATA:
        assign(name, placed.get(self.inputs[name][0][0]))
      else:
        assign(name, None)
    for name in alone:
      readers = {placed.get(reader) for _, reader, _ in self._readers[name]}
      assign(name, readers.pop() if len(readers) == 1 else None)
    for name in order:
      if self.nodes[name].op in _FOLLOWS:
        placed[name] = placed[self.inputs[name][0][0]]
    return placed

  def _memory_of(self, name: str) -> kernels.Memory:
    node = self.nodes[name]
    if node.op in ARGUMENTS:
      dtype = tf.as_dtype(node.attr['dtype'].type)
      return kernels.Memory([], [not self.on_gpu[name] or dtype in _HOST_TYPES])
    if self.on_gpu[name]:
      return kernels.memory(node, kernels.find(node, 'GPU'))
    return kernels.Memory(
      [True] * len(kernels.input_types(node)),
      [True] * len(kernels.output_types(node)),
    )

  def launches(self, name: str) -> bool:
    """Tells whether a node has work for the GPU: a tensor in its memory."""
    memory = self._memory[name]
    return self.on_gpu[name] and not all((*memory.inputs, *memory.outputs))

  def _copies(self) -> list[Copy]:
    wanted = collections.defaultdict(list)
    for name, sources in self.inputs.items():
      types = kernels.input_types(self.nodes[name])
      for position, (source, port) in enumerate(sources):
        have = self._memory[source].outputs[port]
        want = self._memory[name].inputs[position]
        if have != want and types[position] != tf.resource:
          frame = self.frames[source]
          if self.nodes[source].op == 'Exit':
            frame = frame[:-1]
          key = source, port, want, frame, types[position]
          wanted[key].append((name, position))
    return [
      Copy(
        source,
        self.nodes[source].op,
        tuple(sorted({self.nodes[name].op for name, _ in readers})),
        not to_host,
        frame,
        dtype,
        any(self._decides(name, position) for name, position in readers),
      )
      for (source, _, to_host, frame, dtype), readers in wanted.items()
    ]

  def _decides(self, name: str, position: int) -> bool:
    op = self.nodes[name].op
    return op == 'LoopCond' or (op in ('Switch', 'RefSwitch') and position == 1)


class _Groups:
  """Nodes that must be on one device, and the kinds of device they may have.

  Attributes:
    kinds: By a group's root, pairs of kind and priority, best first.
  """

  def __init__(self, kinds: Mapping[str, list[tuple[str, int]]]):
    self.kinds = dict(kinds)
    self._parent = {name: name for name in kinds}

  def root(self, name: str) -> str:
    while self._parent[name] != name:
      self._parent[name] = self._parent[self._parent[name]]
      name = self._parent[name]
    return name

  def join(self, one: str, other: str) -> None:
    one, other = self.root(one), self.root(other)
    if one == other:
      return
    merged = _merge(self.kinds[one], self.kinds[other])
    if not merged:  # TensorFlow ignores wishes that cannot be.
      return
    self._parent[other] = one
    self.kinds[one] = merged


def _merge(
  one: list[tuple[str, int]], other: list[tuple[str, int]]
) -> list[tuple[str, int]]:
  both = {kind for kind, _ in one} & {kind for kind, _ in other}
  one = [pair for pair in one if pair[0] in both]
  other = [pair for pair in other if pair[0] in both]
  ranked = [any(p for _, p in kinds) for kinds in (one, other)]
  if all(ranked) and [k for k, _ in one] != [k for k, _ in other]:
    return _sorted([(kind, 0) for kind in both])
  return other if ranked[1] and not ranked[0] else one


def _sorted(kinds: list[tuple[str, int]]) -> list[tuple[str, int]]:
  return sorted(kinds, key=lambda pair: (-pair[1], pair[0] != 'GPU'))


def _priorities(node: Any) -> list[tuple[str, int]]:
  if node.op in ARGUMENTS:
    return [('GPU', 0), ('CPU', 0)]
  kinds = ('CPU',) if 'CPU' in node.device.upper() else ('GPU', 'CPU')
  found = [(kind, kernels.find(node, kind)) for kind in kinds]
  return _sorted([(kind, k.priority) for kind, k in found if k is not None])


def _endpoint(text: str) -> tuple[str, int]:
  name, _, port = text.partition(':')
  return name, int(port or 0)


def _in_order(
  nodes: Mapping[str, Any], inputs: Mapping[str, list[tuple[str, int]]]
) -> list[str]:
  """Orders nodes after their inputs, loops' back edges left out."""
  order: dict[str, None] = {}
  for start in nodes:
    stack = [(start, False)]
    while stack:
      name, ready = stack.pop()
      if name in order:
        continue
      if ready or nodes[name].op == 'NextIteration':
        order[name] = None
        continue
      stack.append((name, True))
      stack.extend(
        (source, False)
        for source, _ in inputs[name]
        if source not in order and nodes[source].op != 'NextIteration'
      )
  return list(order)


def frames_of(nodes: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
  """Finds the loops that each node is in, by what its inputs are in."""
  sources: dict[str, list[str]] = {
    name: [text.lstrip('^').partition(':')[0] for text in node.input]
    for name, node in nodes.items()
  }
  readers = collections.defaultdict(list)
  for name, some in sources.items():
    for source in some:
      readers[source].append(name)
  frames: dict[str, tuple[str, ...]] = {}
  waiting = collections.deque()
  for name in nodes:
    if not sources[name]:
      frames[name] = OUTSIDE
      waiting.append(name)
  while waiting:
    name = waiting.popleft()
    node, frame = nodes[name], frames[name]
    outside = frame[:-1] if node.op in ('Exit', 'RefExit') else frame
    for reader in readers[name]:
      inside = outside
      if nodes[reader].op in ('Enter', 'RefEnter'):
        inside = (*outside, nodes[reader].attr['frame_name'].s.decode())
      if reader not in frames or len(frames[reader]) < len(inside):
        frames[reader] = inside
        waiting.append(reader)
  return frames
