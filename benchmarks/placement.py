"""What a round would do on a GPU, from its graphs; no GPU is needed.

  python benchmarks/placement.py --output=results/gpu_readiness

writes placement.csv, the copies between host and GPU in a client's loop, in a
round and in a plain Keras step, costs.csv, operations, bytes and kernels of a
step, rounds.csv, those of a round, with what published figures of three GPUs
make of them (computed, not measured), together.csv, the kernels of a step
of clients that train together, and the copies and waits of their round, and
methods.csv, the same of every method on digits. With --tables it only prints
the tables of docs/measurements/gpu.md from these files.
"""

import argparse
import math
import os
import pathlib
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs

RESULTS = pathlib.Path(__file__).resolve().parents[1] / 'results'
# Tasks, and the training examples of a client: the mean that the data set's
# counts give (`main.py list`); of characters, 22 speeches of four sequences.
TASKS = {
  'digits': 72,
  'mnist_logistic': 6_000,
  'emnist_character': 198,
  'emnist_autoencoder': 198,
  'cifar100_image': 100,
  'shakespeare_character': 88,
  'stackoverflow_word': 397,
  'stackoverflow_tag': 397,
  'ag_news': 500,
}
# Sizes that only a step can tell: words of 100 posts, the median of 15 batches
# of users of Stack Overflow.
_FOUND = {'stackoverflow_tag': 648}
# Where no paper introduced the task.
_BATCH_SIZE, _COHORT = 20, 10
# Clients that train together, and tasks whose clients can.
_TOGETHER = 16
TOGETHER = (
  'digits',
  'mnist_logistic',
  'emnist_character',
  'emnist_autoencoder',
)
METHOD = 'fedadam'
# Models with batch normalization, which digits has none of.
_NEED_MORE = ('fedbn',)
# In the order of what `measure` returns.
FILES = ('placement', 'costs', 'rounds')


def _count(copies, to_device, in_loop=None):
  # What only a failed check would read is never copied.
  return sum(
    copy.to_device == to_device and in_loop in (None, bool(copy.frame))
    for copy in copies
    if copy.readers != ('Assert',)
  )


def measure(name):
  """Returns a task's row of each table."""
  import tasks
  from benchmarks.graphs import collecting
  from benchmarks.graphs import costs
  from benchmarks.graphs import placing

  published = tasks.info(name).published
  batch_size = published.batch_size if published else _BATCH_SIZE
  cohort = published.clients_per_round if published else _COHORT
  with collecting.with_cudnn():
    task = tasks.create(name, data='synthetic')
    graphs = collecting.of_round(METHOD, task.model_fn)
    keras = placing.Placed(collecting.of_keras(task), called_on_gpu=False)
  client = placing.Placed(graphs['client'], called_on_gpu=True).copies
  server = [
    copy
    for key, graph in graphs.items()
    if key != 'client'
    for copy in placing.Placed(graph, called_on_gpu=False).copies
  ]
  placement = dict(
    task=name,
    step_to_gpu=_count(client, True, in_loop=True),
    step_to_host=_count(client, False, in_loop=True),
    keras_step_to_gpu=_count(keras.copies, True),
    keras_step_to_host=_count(keras.copies, False),
    client_to_gpu=_count(client, True, in_loop=False),
    client_to_host=_count(client, False, in_loop=False),
    server_to_gpu=_count(server, True),
    server_to_host=_count(server, False),
  )
  found = _FOUND.get(name)
  step = costs.of_step(graphs['client'], batch_size, found)
  cost = dict(
    task=name,
    batch_size=batch_size,
    nodes=step.nodes,
    kernels=len(step.kernels),
    mflop=f'{step.flops / 1e6:.4g}',
    mbyte=f'{step.bytes / 1e6:.4g}',
    host_us=f'{step.host() * 1e6:.4g}',
  )
  for device in costs.DEVICES:
    cost[f'{device.name} busy_us'] = f'{step.busy(device) * 1e6:.4g}'
    cost[f'{device.name} fills'] = step.fills(device)
  steps = math.ceil(TASKS[name] / batch_size)
  whole = costs.of_round(graphs, batch_size, steps, cohort, found)
  work = whole.all
  row = dict(
    task=name,
    clients=cohort,
    steps=steps,
    kernels=len(work.kernels),
    gflop=f'{work.flops / 1e9:.4g}',
    gbyte=f'{work.bytes / 1e9:.4g}',
    host_ms=f'{work.host() * 1e3:.4g}',
  )
  for device in costs.DEVICES:
    at_once = whole.client.fills(device)
    row[f'{device.name} busy_ms'] = f'{work.busy(device) * 1e3:.4g}'
    row[f'{device.name} alone_ms'] = f'{whole.seconds(device, 1) * 1e3:.4g}'
    row[f'{device.name} at_once'] = at_once
    row[f'{device.name} shared_ms'] = (
      f'{whole.seconds(device, at_once) * 1e3:.4g}'
    )
    row[f'{device.name} stacked'] = whole.batch_that_fills(device)
  return placement, cost, row


def measure_together(name, method=METHOD):
  """Returns a task's row of a round with its clients together.

  Launches are those of a step; copies, and loops for whose steps the host is
  waited for, are those of a round when XLA compiles it.

  Args:
    name: The task.
    method: The method, all of whose passes over clients are added up.
  """
  import tasks
  from benchmarks.graphs import collecting
  from benchmarks.graphs import costs
  from benchmarks.graphs import placing

  with collecting.with_cudnn():
    task = tasks.create(name, data='synthetic')
    alone = collecting.of_round(method, task.model_fn)
    passes = collecting.of_cohort(method, task, _TOGETHER, _BATCH_SIZE)

  def launches(graph):
    return costs.kernels_in_loops(placing.Placed(graph, called_on_gpu=True))

  of_clients = [g for what, g in alone.items() if what.startswith('client')]
  programs = [program for _, program, _ in passes]
  return dict(
    task=name,
    method=method,
    clients=_TOGETHER,
    alone=_TOGETHER * sum(map(launches, of_clients)),
    together=sum(launches(graph) for graph, _, _ in passes),
    compiled=sum(map(costs.kernels_of_program, programs)),
    copies=sum(copies for _, _, copies in passes),
    waits=sum(map(costs.waits_of_program, programs)),
  )


def methods():
  """Lists the methods whose clients train, on any model."""
  from tff_adaptive import algorithms
  from tff_adaptive.algorithms import methods as table

  return [
    name
    for name in algorithms.names()
    if table.has_clients(name) and name not in _NEED_MORE
  ]


def tables(folder):
  """Yields the lines of the tables in docs/runtimes.md."""
  yield (
    '| copies, to GPU / host | a step | Keras | a client | the server'
    ' | a round | Keras, as many steps |'
  )
  yield '|---' * 7 + '|'
  rounds = {
    row['task']: (int(row['clients']), int(row['steps']))
    for row in outputs.read_rows(folder / 'rounds.csv')
  }
  for row in outputs.read_rows(folder / 'placement.csv'):
    step, keras, client, server = (
      [int(row[f'{part}_to_{there}']) for there in ('gpu', 'host')]
      for part in ('step', 'keras_step', 'client', 'server')
    )
    clients, steps = rounds[row['task']]
    whole = [
      clients * (steps * a + b) + c for a, b, c in zip(step, client, server)
    ]
    as_many = [clients * steps * count for count in keras]
    pairs = (step, keras, client, server, whole, as_many)
    cells = [f'{to_gpu:,} / {to_host:,}' for to_gpu, to_host in pairs]
    yield f'| {row["task"]} | {" | ".join(cells)} |'
  yield ''
  rows = outputs.read_rows(folder / 'costs.csv')
  names = [key.removesuffix(' fills') for key in rows[0] if 'fills' in key]
  heading = [f'{name}: µs, clients' for name in names]
  yield f'| a step | kernels | MFLOP | MB | host µs | {" | ".join(heading)} |'
  yield '|---' * (5 + len(names)) + '|'
  for row in rows:
    cells = [row[key] for key in ('kernels', 'mflop', 'mbyte', 'host_us')]
    cells += [f'{row[f"{n} busy_us"]}, {row[f"{n} fills"]}' for n in names]
    title = f'{row["task"]}, batches of {row["batch_size"]}'
    yield f'| {title} | {" | ".join(cells)} |'
  yield ''
  rows = outputs.read_rows(folder / 'rounds.csv')
  heading = [f'{name}: ms, shared, at once, stacked' for name in names]
  yield f'| a round | kernels | GFLOP | GB | host ms | {" | ".join(heading)} |'
  yield '|---' * (5 + len(names)) + '|'
  for row in rows:
    cells = [row[key] for key in ('kernels', 'gflop', 'gbyte', 'host_ms')]
    cells += [
      ', '.join(
        row[f'{name} {key}']
        for key in ('alone_ms', 'shared_ms', 'at_once', 'stacked')
      )
      for name in names
    ]
    title = f'{row["task"]}, {row["clients"]} clients of {row["steps"]} steps'
    yield f'| {title} | {" | ".join(cells)} |'


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--tasks', default=','.join(TASKS))
  parser.add_argument(
    '--output', type=pathlib.Path, default=RESULTS / 'gpu_readiness'
  )
  parser.add_argument('--tables', action='store_true', help='Only print.')
  options = parser.parse_args()
  if not options.tables:
    rows = [measure(name) for name in options.tasks.split(',')]
    options.output.mkdir(parents=True, exist_ok=True)
    for name, table in zip(FILES, zip(*rows)):
      outputs.write_rows(options.output / f'{name}.csv', table)
    together = [measure_together(name) for name in TOGETHER]
    outputs.write_rows(options.output / 'together.csv', together)
    each = [measure_together(TOGETHER[0], method) for method in methods()]
    outputs.write_rows(options.output / 'methods.csv', each)
  print('\n'.join(tables(options.output)))


if __name__ == '__main__':
  main()
