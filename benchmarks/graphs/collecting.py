"""The TensorFlow graphs of a round, of evaluation and of a plain Keras step.

Those of a round are the functions that the in-process runtime calls where it
has a GPU: clients then iterate over datasets. All are flat: calls are inlined,
and loops and conditions are those of TensorFlow's executor (Enter, Switch).
"""

from collections.abc import Callable
from typing import Any
from unittest import mock

import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.framework import convert_to_constants

import tasks
from tff_adaptive import algorithms
from tff_adaptive import runtime
from tff_adaptive import tff_internals
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.runtime.engine import lockstep

GraphDef = tf.compat.v1.GraphDef


def small_task(name: str) -> tff.simulation.baselines.BaselineTask:
  """Creates a task as cheap as its running needs, on made-up data."""
  options = dict(tasks.info(name).small_options, batch_size=4, max_elements=8)
  return tasks.create(name, data='synthetic', **options)


def of_round(
  algorithm: str, model_fn: Callable[[], tff.learning.models.VariableModel]
) -> dict[str, GraphDef]:
  """Traces what a method's round calls.

  Args:
    algorithm: The method.
    model_fn: The model.

  Returns:
    Graphs by what they are: 'server' (before the clients), 'client',
    'aggregation' (of one client), 'server step'; with numbers behind these
    names where a round has several.
  """
  context = runtime.create_in_process_context()
  try:
    process = algorithms.build(algorithm, model_fn)
    executable, _ = context.engine.compile(process.next)
    found: dict[str, GraphDef] = {}

    def add(name: str, function: Any) -> None:
      count = sum(key.startswith(name) for key in found)
      key = f'{name} {count + 1}' if count else name
      found[key] = flat(function._concrete)

    for number, phase in enumerate(executable.phases):
      if phase.server.outputs:
        name = 'server step' if number else 'server'
        add(name, phase.server.function(False))
      if phase.client.outputs:
        add('client', phase.client.function(False))
      if phase.total:
        add('aggregation', phase.fold._function(1))
    return found
  finally:
    context.close()


# Of each client; XLA would make no loop of a single one.
_BATCHES = 4


def of_cohort(
  algorithm: str,
  task: tff.simulation.baselines.BaselineTask,
  clients: int,
  batch_size: int,
) -> list[tuple[GraphDef, str, int]]:
  """Traces and compiles the functions of clients that train together.

  Args:
    algorithm: The method.
    task: The task.
    clients: Their number.
    batch_size: That of their batches.

  Returns:
    For each pass of a round over clients, of which few methods have two: the
    graph, the program that XLA's CPU backend makes of it, as text, and the
    number of tensors that a call copies to the device.
  """
  context = runtime.create_in_process_context()
  try:
    process = algorithms.build(algorithm, task.model_fn)
    executable, _ = context.engine.compile(process.next)
    spec = task.datasets.element_type_structure
    rows = [
      tf.zeros([clients * batch_size, *s.shape[1:]], s.dtype)
      for s in tf.nest.flatten(spec)
    ]
    return [
      _together(phase.together, clients, batch_size, rows)
      for phase in executable.phases
      if phase.client.outputs
    ]
  finally:
    context.close()


def _together(
  together: lockstep.Together,
  clients: int,
  batch_size: int,
  rows: list[tf.Tensor],
) -> tuple[GraphDef, str, int]:
  graph = together.function(clients, batch_size, rows, None)._concrete
  compiled = together.function(clients, batch_size, rows, _BATCHES)._concrete
  zeros = [tf.zeros(t.shape, t.dtype) for t in compiled.inputs[: -len(rows)]]
  program = tf.function(
    lambda *tensors: compiled(*tensors), jit_compile=True, autograph=False
  ).experimental_get_compiler_ir(*zeros, *rows)(stage='optimized_hlo')
  copies = len(compiled.inputs) - len(together.shared)
  return flat(graph), program, copies


def of_evaluation(
  task: tff.simulation.baselines.BaselineTask,
) -> GraphDef:
  """Traces the evaluation of one batch."""
  evaluator = evaluation.Evaluator(task.model_fn)
  step = tf.function(evaluator._one_batch).get_concrete_function(
    task.datasets.element_type_structure
  )
  return flat(step)


def of_keras(task: tff.simulation.baselines.BaselineTask) -> GraphDef:
  """Traces Keras' own step (`Model.train_function`) on a task's model.

  With SGD and the task's loss and metrics, on an iterator over a dataset.
  """
  model = task.model_fn()
  network = tff_internals.keras_model_of(model)
  network.compile(
    tf.keras.optimizers.SGD(0.1),
    loss=model._loss_fns[0],
    metrics=[
      metric
      for metric in model._metrics
      # TFF's own, of which Keras has the loss.
      if metric.name not in ('loss', 'num_examples', 'num_batches')
    ],
  )
  network.make_train_function()
  spec = task.datasets.element_type_structure
  if isinstance(spec, dict):
    spec = (spec['x'], spec['y'])
  zeros = tf.nest.map_structure(
    lambda s: tf.zeros([4 if d is None else d for d in s.shape], s.dtype), spec
  )
  # Of the spec's shapes, which know no batch size.
  data = tf.data.Dataset.from_generator(lambda: [zeros], output_signature=spec)
  return flat(network.train_function.get_concrete_function(iter(data)))


def with_cudnn() -> Any:
  """Has models built as where there is a GPU: with Keras' own LSTM."""
  listed = tf.config.list_logical_devices

  def pretend(kind: Any = None) -> Any:
    return ['GPU:0'] if kind == 'GPU' else listed(kind)

  return mock.patch.object(tf.config, 'list_logical_devices', pretend)


def flat(concrete: tf.types.experimental.ConcreteFunction) -> GraphDef:
  """Inlines all calls of a function, and lowers its control flow."""
  graph = concrete.graph.as_graph_def(add_shapes=True)
  if not any(
    node.op in ('PartitionedCall', 'StatefulPartitionedCall', 'While', 'If')
    or (
      node.op.startswith('Stateless')
      and node.op in ('StatelessWhile', 'StatelessIf', 'StatelessCase')
    )
    for node in graph.node
  ):
    return graph
  return convert_to_constants._run_inline_graph_optimization(
    concrete, lower_control_flow=True, aggressive_inlining=True
  )
