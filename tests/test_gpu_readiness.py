"""What a GPU would run, by TensorFlow's list of kernels; no GPU is needed."""

import collections
import shutil

import pytest
import tensorflow as tf

import tasks
from benchmarks.graphs import collecting
from benchmarks.graphs import costs
from benchmarks.graphs import kernels
from benchmarks.graphs import placing
from benchmarks.graphs import pretending
from tests import programs
from tests import test_matrix
from tests import tiers

# Ops that no GPU has a kernel for, with the types of their inputs.
_ON_THE_HOST = {
  # Counts of steps and examples: TensorFlow keeps int32 with the host.
  'VarHandleOp()',
  # Texts of messages.
  'Const()',
  # Next words' metrics check that masks are as broad as labels, on shapes,
  # which are with the host anyway.
  'DenseToDenseSetOperation(int32, int32)',
  # Of the input pipeline: a client's first batch, or a part of its batches.
  'TakeDataset(variant, int64)',
}
# Methods that compute two gradients a step.
_TWICE = {'fedsam', 'mime'}
# Copies that are a method's own, in each step.
_OWN = {
  # Whether this client is the one that measures is asked at every batch.
  'fedsps_global': 1,
  # A count, in a branch of the choice between client optimizers.
  'fedada2_blended': 1,
}
# Every task's model once, and the methods that differ from the others.
_OF_A_KIND = {task: (name, task) for name, task in test_matrix._COVERING}
_OTHERS = [
  (name, task)
  for name, task in test_matrix._COVERING
  if (name, task) not in _OF_A_KIND.values() and name not in {*_TWICE, *_OWN}
]


def copies_to_host(placed, a_step, loop=None):
  """Counts copies to the host by their sources, in (all) loops or outside."""
  return collections.Counter(
    copy.op
    for copy in placed.copies
    if not copy.to_device and bool(copy.frame) == a_step
    if loop is None or copy.frame[0] == loop
    # A message is made of them only when a check has failed.
    if copy.readers != ('Assert',)
  )


@pytest.mark.parametrize(
  'algorithm, task_name',
  tiers.exhaustive_but([], test_matrix._COVERING, slow=_OTHERS),
)
def test_all_but_the_input_runs_on_a_gpu(algorithm, task_name):
  with collecting.with_cudnn():
    task = collecting.small_task(task_name)
    graphs = collecting.of_round(algorithm, task.model_fn)
    graphs['evaluation'] = collecting.of_evaluation(task)
    keras = placing.Placed(collecting.of_keras(task), called_on_gpu=False)
  for name, graph in graphs.items():
    assert set(kernels.cpu_only(graph)) <= _ON_THE_HOST, name
    placed = placing.Placed(graph, called_on_gpu=name.startswith('client'))
    for node in placed.nodes.values():
      if node.op.startswith(('Iterator', 'AnonymousIterator', 'Optional')):
        assert not placed.on_gpu[node.name], node.name
      if node.op == 'VarHandleOp' and node.attr['dtype'].type != tf.int32:
        assert placed.on_gpu[node.name], node.name
    if name.startswith('client'):
      _check_client(placed, keras, algorithm)
    elif name.startswith(('server', 'aggregation')):
      # The server's step waits once, to know whether the update is finite.
      waits = copies_to_host(placed, a_step=False)
      assert sum(waits.values()) <= 2, (name, waits)


def _check_client(placed, keras, algorithm):
  """Holds each of a client's loops to Keras' own step on the same model."""
  there = sum(copies_to_host(keras, a_step=False).values())
  allowed = there * (1 + (algorithm in _TWICE)) + _OWN.get(algorithm, 0)
  loops = {frame[0] for frame in placed.frames.values() if frame}
  for loop in loops:
    here = copies_to_host(placed, a_step=True, loop=loop)
    assert sum(here.values()) <= allowed, here
  waits = [c for c in placed.copies if c.frame and c.condition]
  assert not waits or algorithm == 'fedsps_global', waits
  outside = copies_to_host(placed, a_step=False)
  # Whether the update is finite, and counts: a condition, in place of a copy of
  # the whole update.
  assert sum(outside.values()) <= 8, outside
  # An LSTM is one op there and one back, not a loop over time.
  assert all(len(frame) < 2 for frame in placed.frames.values())


# A process cannot unload the device. Every kernel on it would fail.
_READING = """
import sys
import numpy as np
import tensorflow as tf
from tensorflow.python.framework import load_library
load_library.load_pluggable_device_library(sys.argv[1])
import tasks
import tensorflow_federated as tff
from tff_adaptive import runtime
from tff_adaptive.lab.training.data import batches
from tff_adaptive.lab.training.data import datasets
assert tf.config.list_physical_devices('GPU')

def device(dataset):
  return iter(dataset)._iterator_resource.device.rpartition('device:')[2]

task = tasks.create('digits', data='synthetic')
options = dict(seed=1, cache_bytes=2**30)
for clients in (
  datasets.ClientDatasets(task.datasets, seed=1),
  batches.training_clients(task.datasets, as_lists=False, **options),
  batches.training_clients(task.datasets, as_lists=True, **options),
):
  client = clients.client_ids[0]
  found = clients.for_client(client, 1)
  if not isinstance(found, tf.data.Dataset):
    assert all('CPU' in tensor.device for tensor in found[0])
    found = found.dataset()
  print(device(found), clients.num_examples(client, 1) > 0)
# What a computation returns, where only the server is on the GPU.
runtime.set_in_process_context(devices=['CPU:0'])
made = tff.tensorflow.computation(lambda: tf.data.Dataset.range(1))()
short = tf.config.experimental.tensor_float_32_execution_enabled()
print(device(made), not short)
made = tf.function(lambda: tf.data.Dataset.range(1))()
print(device(made))
"""


@pytest.mark.skipif(shutil.which('cc') is None, reason='needs a C compiler')
def test_clients_are_read_on_the_host(tmp_path):
  library = pretending.build(tmp_path)
  done = programs.run('-c', _READING, library)
  # The last shows that the pretended device would have had them.
  assert done.stdout.split() == [*['CPU:0', 'True'] * 4, 'GPU:0']


def test_the_lists_can_tell():
  """A string op, a copy in a loop and an iterator on a GPU are found."""

  @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
  def loop(x):
    while tf.reduce_sum(x) < 10.0:
      x += 1.0
    return tf.strings.as_string(x)

  graph = collecting.flat(loop.get_concrete_function())
  assert set(kernels.cpu_only(graph)) == {'AsString(float32)'}
  placed = placing.Placed(graph, called_on_gpu=True)
  (waits,) = [c for c in placed.copies if c.condition]
  assert waits.frame and not waits.to_device

  @tf.function(input_signature=[tf.TensorSpec([], tf.variant)])
  def first(dataset):
    types = dict(output_types=[tf.float32], output_shapes=[[]])
    iterator = tf.raw_ops.AnonymousIteratorV3(**types)
    tf.raw_ops.MakeIterator(dataset=dataset, iterator=iterator)
    return tf.raw_ops.IteratorGetNext(iterator=iterator, **types)

  graph = collecting.flat(first.get_concrete_function())
  for called_on_gpu in (True, False):
    placed = placing.Placed(graph, called_on_gpu)
    assert placed.on_gpu['IteratorGetNext'] == called_on_gpu


@pytest.mark.parametrize(
  'method',
  tiers.exhaustive_but(['fedadam'], ['fedadam', 'delta_sgd', 'scaffold']),
)
def test_a_compiled_round_waits_for_the_host_at_no_step(method):
  """XLA knows beforehand how often the loop of 16 clients' steps runs."""
  task = tasks.create('mnist_logistic', data='synthetic')
  ((_, program, copies),) = collecting.of_cohort(method, task, 16, 20)
  assert ' while(' in program
  assert costs.waits_of_program(program) == 0
  # Features, labels, where clients begin and end, and what a client kept.
  kept = {'scaffold': 3}.get(method, 0)
  assert copies == 4 + kept
