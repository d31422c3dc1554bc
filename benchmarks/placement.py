"""What a round would do on a GPU, from its graphs; no GPU is needed.

  python benchmarks/placement.py --output=results/gpu_readiness

writes placement.csv, the copies between host and GPU in a client's loop, in a
round and in a plain Keras step, and costs.csv, operations, bytes and kernels
of a step, with what published figures of three GPUs make of them (computed, not
measured). With --tables it only prints the tables of docs/runtimes.md from
these files.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs

RESULTS = pathlib.Path(__file__).resolve().parents[1] / 'results'
# Tasks, and the batch size of the paper that introduced each.
TASKS = {
  'digits': 20,
  'mnist_logistic': 20,
  'emnist_character': 20,
  'emnist_autoencoder': 20,
  'cifar100_image': 20,
  'shakespeare_character': 4,
  'stackoverflow_word': 16,
  'stackoverflow_tag': 100,
  'ag_news': 16,
}
METHOD = 'fedadam'


def _count(copies, to_device, in_loop=None):
  # What only a failed check would read is never copied.
  return sum(
    copy.to_device == to_device and in_loop in (None, bool(copy.frame))
    for copy in copies
    if copy.readers != ('Assert',)
  )


def measure(name, batch_size):
  """Returns a task's row of each table."""
  import tasks
  from benchmarks.graphs import collecting
  from benchmarks.graphs import costs
  from benchmarks.graphs import placing

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
  step = costs.of_step(graphs['client'], batch_size)
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
  return placement, cost


def tables(folder):
  """Yields the lines of the tables in docs/runtimes.md."""
  yield '| copies | a step, to GPU / host | Keras | a client | the server |'
  yield '|---|---|---|---|---|'
  for row in outputs.read_rows(folder / 'placement.csv'):
    cells = [
      f'{row[f"{part}_to_gpu"]} / {row[f"{part}_to_host"]}'
      for part in ('step', 'keras_step', 'client', 'server')
    ]
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


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--tasks', default=','.join(TASKS))
  parser.add_argument(
    '--output', type=pathlib.Path, default=RESULTS / 'gpu_readiness'
  )
  parser.add_argument('--tables', action='store_true', help='Only print.')
  options = parser.parse_args()
  if not options.tables:
    placements, costs = [], []
    for name in options.tasks.split(','):
      placement, cost = measure(name, TASKS[name])
      placements.append(placement)
      costs.append(cost)
    options.output.mkdir(parents=True, exist_ok=True)
    outputs.write_rows(options.output / 'placement.csv', placements)
    outputs.write_rows(options.output / 'costs.csv', costs)
  print('\n'.join(tables(options.output)))


if __name__ == '__main__':
  main()
