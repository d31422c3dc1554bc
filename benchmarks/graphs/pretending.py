"""TensorFlow's own placement of a graph, with a device that it takes for a GPU.

pretend_gpu.c is a plug-in device that registers as GPU and whose memory is the
host's. TensorFlow's placer chooses for it among the CUDA kernels that the wheel
for Linux registers on any machine. None of them can run there, so a graph is
called with all of its nodes dead, as those of a branch not taken: TensorFlow
places and partitions it, and executes nothing.

Needs a C compiler. A process that has loaded the device cannot unload it, so
graphs are placed in a process of their own, which this module also is:

  python -m benchmarks.graphs.pretending FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph
from tensorflow.python.framework import load_library

from benchmarks.graphs import placing

GraphDef = tf.compat.v1.GraphDef

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SOURCE = pathlib.Path(__file__).with_name('pretend_gpu.c')
_GO = 'pretending_go'
_STOP = 'pretending_stop'


class Placement(NamedTuple):
  """TensorFlow's placement of a graph.

  Attributes:
    on_gpu: By the node's name, whether it is on the GPU. Nodes that nothing
      reads are missing.
    copies: Pairs of a node, whose output is copied between host and device, and
      whether it goes to the device. Control edges are left out.
  """

  on_gpu: dict[str, bool]
  copies: set[tuple[str, bool]]


def build(folder: pathlib.Path) -> pathlib.Path:
  """Compiles the device into a folder, and returns its library.

  Raises:
    FileNotFoundError: If there is no C compiler, `cc`.
  """
  library = folder / 'pretend_gpu.so'
  include = tf.sysconfig.get_include()
  subprocess.run(
    ['cc', '-shared', '-fPIC', f'-I{include}', '-o', library, _SOURCE],
    check=True,
  )
  return library


def place(
  graphs: Mapping[str, GraphDef], called_on_gpu: Mapping[str, bool]
) -> dict[str, Placement]:
  """Has TensorFlow place graphs, in a process of its own.

  Args:
    graphs: Flat graphs by name.
    called_on_gpu: By the same names, whether each is called on the GPU.

  Raises:
    FileNotFoundError: If there is no C compiler, `cc`.
    subprocess.CalledProcessError: If the process fails.
  """
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for number, (key, graph) in enumerate(graphs.items()):
      where = 'gpu' if called_on_gpu[key] else 'any'
      path = folder / f'{number}.{where}.pb'
      path.write_bytes(graph.SerializeToString())
    build(folder)
    done = subprocess.run(
      [sys.executable, '-m', 'benchmarks.graphs.pretending', folder],
      cwd=_ROOT,
      env={
        **os.environ,
        'TF_CPP_MIN_LOG_LEVEL': '3',
        'PYTHONFAULTHANDLER': '1',
      },
      stdout=subprocess.PIPE,
      check=True,
    )
    found = json.loads(done.stdout)
  return {
    key: Placement(
      found[str(number)]['on_gpu'],
      {(name, to_device) for name, to_device in found[str(number)]['copies']},
    )
    for number, key in enumerate(graphs)
  }


def _stopped(graph: GraphDef) -> func_graph.FuncGraph:
  """Makes a function of a graph, in which no node is executed.

  Its last argument must be false.
  """
  frames = placing.frames_of({node.name: node for node in graph.node})
  stopped = GraphDef()
  stopped.CopyFrom(graph)
  for node in stopped.node:
    node.attr.pop('_output_shapes', None)
    if node.op not in placing.ARGUMENTS:
      if not frames[node.name] or node.op == 'Enter':
        node.input.append(f'^{_STOP}')
  with tf.Graph().as_default() as addition, tf.device('/CPU:0'):
    go = tf.compat.v1.placeholder(tf.bool, [], name=_GO)
    branch = tf.raw_ops.Switch(data=go, pred=go, name='pretending_branch')
    tf.identity(branch.output_true, name=_STOP)
  stopped.node.extend(addition.as_graph_def().node)
  made = func_graph.FuncGraph('placed')
  with made.as_default():
    tf.graph_util.import_graph_def(stopped, name='')
  arguments = [n.name for n in graph.node if n.op in placing.ARGUMENTS]
  made.inputs = [
    made.get_tensor_by_name(f'{name}:0') for name in (*arguments, _GO)
  ]
  made.outputs = []
  read = {
    text.lstrip('^').partition(':')[0]
    for node in graph.node
    for text in node.input
  }
  made.control_outputs = [
    made.get_operation_by_name(node.name)
    for node in graph.node
    if node.name not in read and node.op not in placing.ARGUMENTS
  ]
  return made


def _argument(tensor: tf.Tensor) -> tf.Tensor:
  """Makes a tensor of a type, which nothing will read."""
  if tensor.dtype == tf.variant:
    return tf.data.experimental.to_variant(tf.data.Dataset.range(1))
  if tensor.dtype == tf.resource:
    # It stays where it was made, with all that uses it.
    if any(op.type.startswith('Iterator') for op in tensor.consumers()):
      return iter(tf.data.Dataset.range(1))._iterator_resource
    return tf.Variable(0.0).handle
  shape = [1 if size is None else size for size in tensor.shape.as_list()]
  return tf.convert_to_tensor(np.zeros(shape, tensor.dtype.as_numpy_dtype))


def _place(graph: GraphDef, on_gpu: bool) -> dict[str, Any]:
  made = _stopped(graph)
  function = atomic_function.from_func_graph('placed', made, {}, None)
  arguments = [_argument(tensor) for tensor in made.inputs]
  context.context().enable_run_metadata()
  with tf.device('/GPU:0' if on_gpu else None):
    function.call_flat(*arguments)
  # Those of functions that it calls, too.
  for one in context.context().export_run_metadata().function_graphs:
    nodes = [node for part in one.partition_graphs for node in part.node]
    if any(node.name == _STOP for node in nodes):
      return {
        'on_gpu': {node.name: 'GPU' in node.device for node in nodes},
        'copies': sorted(_copies(nodes)),
      }
  raise RuntimeError('TensorFlow has not said where it placed the graph.')


def _copies(nodes: Sequence[Any]) -> set[tuple[str, bool]]:
  """Finds the nodes whose outputs are sent to the other memory."""
  sent = {
    node.attr['tensor_name'].s: node
    for node in nodes
    if node.op in ('_Send', '_HostSend')
  }
  found = set()
  for node in nodes:
    if node.op in ('_Recv', '_HostRecv'):
      there = sent[node.attr['tensor_name'].s]
      to_device = _in_gpu_memory(node)
      if to_device != _in_gpu_memory(there) and there.input[0][0] != '^':
        found.add((there.input[0].partition(':')[0], to_device))
  return found


def _in_gpu_memory(node: Any) -> bool:
  return 'GPU' in node.device and not node.op.startswith('_Host')


def main() -> None:
  folder = pathlib.Path(sys.argv[1])
  load_library.load_pluggable_device_library(str(folder / 'pretend_gpu.so'))
  # It would merge and drop nodes that the rules know.
  tf.config.optimizer.set_experimental_options({'disable_meta_optimizer': True})
  found = {}
  for path in sorted(folder.glob('*.pb')):
    number, where, _ = path.name.split('.')
    graph = GraphDef.FromString(path.read_bytes())
    found[number] = _place(graph, where == 'gpu')
  print(json.dumps(found))


if __name__ == '__main__':
  main()
