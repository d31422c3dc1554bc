"""Where TensorFlow itself places a graph's nodes if it sees a GPU.

pretend_gpu.c is a device of TensorFlow's plug-in interface that calls itself GPU
and has the host's memory. TensorFlow's placer takes it for a GPU, and chooses
among the CUDA kernels that its wheel for Linux registers on any machine. None of
them may run: a graph is called such that all of its nodes are dead (as behind a
branch that is not taken), so that TensorFlow places it, divides it by device,
and executes nothing.

Needs a C compiler. A process that has loaded the device keeps it, so this is a
program: graphs of a round in, as files, and devices out, as JSON.

  python -m benchmarks.graphs.pretending FOLDER
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import atomic_function
from tensorflow.python.framework import func_graph
from tensorflow.python.framework import load_library

from benchmarks.graphs import placing

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_SOURCE = pathlib.Path(__file__).with_name('pretend_gpu.c')
_GO = 'pretending_go'
_STOP = 'pretending_stop'


def place(
  graphs: Mapping[str, tf.compat.v1.GraphDef], called_on_gpu: Mapping[str, bool]
) -> dict[str, dict[str, bool]]:
  """Has TensorFlow place graphs, in a process of its own.

  Args:
    graphs: Flat graphs by name.
    called_on_gpu: Whether each is called on the GPU.

  Returns:
    By the graph's name and the node's, whether it is on the GPU. Nodes that
    TensorFlow's optimizer drops have no entry.

  Raises:
    FileNotFoundError: If there is no C compiler, `cc`.
    subprocess.CalledProcessError: If TensorFlow refuses a graph.
  """
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    for number, (key, graph) in enumerate(graphs.items()):
      where = 'gpu' if called_on_gpu[key] else 'any'
      path = folder / f'{number}.{where}.pb'
      path.write_bytes(graph.SerializeToString())
    library = folder / 'pretend_gpu.so'
    include = tf.sysconfig.get_include()
    subprocess.run(
      ['cc', '-shared', '-fPIC', f'-I{include}', '-o', library, _SOURCE],
      check=True,
    )
    done = subprocess.run(
      [sys.executable, '-m', 'benchmarks.graphs.pretending', folder],
      cwd=_ROOT,
      env={**os.environ, 'TF_CPP_MIN_LOG_LEVEL': '3', 'PYTHONFAULTHANDLER': '1'},
      stdout=subprocess.PIPE,
      check=True,
    )
    found = json.loads(done.stdout)
  return {key: found[str(number)] for number, key in enumerate(graphs)}


def _stopped(graph: tf.compat.v1.GraphDef) -> func_graph.FuncGraph:
  """Makes a function of a graph, in which no node is executed.

  Its last argument must be false.
  """
  frames = placing.frames_of({node.name: node for node in graph.node})
  stopped = tf.compat.v1.GraphDef()
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
  shape = [1 if size is None else size for size in tensor.shape.as_list()]
  return tf.convert_to_tensor(np.zeros(shape, tensor.dtype.as_numpy_dtype))


def _devices(graph: tf.compat.v1.GraphDef, on_gpu: bool) -> dict[str, bool]:
  made = _stopped(graph)
  function = atomic_function.from_func_graph('placed', made, {}, None)
  arguments = [_argument(tensor) for tensor in made.inputs]
  context.context().enable_run_metadata()
  with tf.device('/GPU:0' if on_gpu else None):
    function.call_flat(*arguments)
  # Those of functions that it calls, too.
  for one in context.context().export_run_metadata().function_graphs:
    placed = {n.name: n.device for n in one.post_optimization_graph.node}
    if _STOP in placed:
      return {name: 'GPU' in device for name, device in placed.items()}
  raise RuntimeError('TensorFlow has not said where it placed the graph.')


def main() -> None:
  folder = pathlib.Path(sys.argv[1])
  load_library.load_pluggable_device_library(str(folder / 'pretend_gpu.so'))
  found = {}
  for path in sorted(folder.glob('*.pb')):
    number, where, _ = path.name.split('.')
    graph = tf.compat.v1.GraphDef.FromString(path.read_bytes())
    found[number] = _devices(graph, where == 'gpu')
  print(json.dumps(found))


if __name__ == '__main__':
  main()
