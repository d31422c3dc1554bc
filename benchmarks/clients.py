"""Seconds a round that each client takes, beside plain SGD's.

  python benchmarks/clients.py [--task=TASK] [--cache_dir=DIR] [NAME ...]

All contenders train the same clients, one round each in turn, so that whatever
else the machine does falls on all of them; what counts is the median over the
repeats of the ratio to the SGD round of the same turn, by the clock and in
seconds of processors, which others on the machine disturb less. Without
--cache_dir the data are synthetic, which costs a client the same. Client steps
are all that differs: the server averages in every one of them.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tasks
from tff_adaptive import algorithms
from tff_adaptive import runtime

# Arguments of `algorithms.build` by contender; the first is the measure.
CONTENDERS = {
  'sgd': dict(name='fedavg'),
  'momentum': dict(name='fedavg', client_momentum=0.9),
  'adam': dict(name='fedavg', client_optimizer='adam'),
  'adagrad': dict(name='fedavg', client_optimizer='adagrad'),
  'sm3_adagrad': dict(name='fedavg', client_optimizer='sm3_adagrad'),
  'delta_sgd successive': dict(name='delta_sgd', smoothness_batch='successive'),
  'delta_sgd same': dict(name='delta_sgd', smoothness_batch='same'),
  'fedsps': dict(name='fedsps'),
  'fedsps smoothing': dict(name='fedsps', smoothing='bound'),
  'feddecsps': dict(name='feddecsps'),
  'fedprox': dict(name='fedprox'),
  'moon': dict(name='moon'),
}
# What docs/step_sizes.md promises.
TARGETS = {
  'delta_sgd successive': 1.2,
  'delta_sgd same': 2.2,
  'fedsps': 1.2,
}


class Contender:
  """A method's rounds on given clients."""

  def __init__(self, task, clients, **method):
    self._process = algorithms.build(model=task.model_fn, **method)
    self._clients = clients
    self._state = self._process.initialize()
    self._own = None
    if algorithms.is_stateful(self._process):
      self._own = [self._process.initialize_client_state() for _ in clients]

  def seconds(self):
    """Runs a round; returns what it took, by the clock and of processors."""
    start = time.perf_counter(), time.process_time()
    if self._own is None:
      output = self._process.next(self._state, self._clients)
    else:
      output = self._process.next(self._state, self._own, self._clients)
      self._own = output.client_states
    self._state = output.state
    return time.perf_counter() - start[0], time.process_time() - start[1]


def datasets(task, arguments):
  """Builds batches of a few clients, in memory."""
  data = task.datasets.train_data
  for client_id in data.client_ids[: arguments.clients]:
    dataset = task.datasets.train_preprocess_fn(
      data.create_tf_dataset_for_client(client_id)
    )
    batches = dataset.repeat().take(arguments.batches)
    yield batches.cache()


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('names', nargs='*', metavar='NAME', default=[])
  parser.add_argument('--task', default='emnist_character')
  parser.add_argument('--cache_dir', help='Folder with the data files.')
  parser.add_argument('--clients', type=int, default=2)
  parser.add_argument('--batches', type=int, default=5)
  parser.add_argument('--repeats', type=int, default=9)
  arguments = parser.parse_args()
  unknown = set(arguments.names) - set(CONTENDERS)
  if unknown:
    parser.error(
      f'no contender {", ".join(sorted(unknown))}; there are '
      f'{", ".join(CONTENDERS)}'
    )
  source = (
    dict(data='native', cache_dir=arguments.cache_dir)
    if arguments.cache_dir
    else dict(data='synthetic')
  )
  runtime.set_in_process_context()
  task = tasks.create(arguments.task, **source)
  clients = list(datasets(task, arguments))
  base = next(iter(CONTENDERS))
  contenders = {
    name: Contender(task, clients, **method)
    for name, method in CONTENDERS.items()
    if name == base or not arguments.names or name in arguments.names
  }
  for contender in contenders.values():
    contender.seconds()  # Traces and compiles.
  seconds = {name: [] for name in contenders}
  for _ in range(arguments.repeats):
    for name, contender in contenders.items():
      seconds[name].append(contender.seconds())
  head = f'{"client":22}{"ms a step":>10}{"of SGD":>9}{"processors":>12}'
  print(f'{head}{"at most":>9}')
  steps = arguments.clients * arguments.batches
  for name, taken in seconds.items():
    target = TARGETS.get(name, '')
    clock, processors = (
      statistics.median(
        own[i] / sgd[i] for own, sgd in zip(taken, seconds[base], strict=True)
      )
      for i in range(2)
    )
    step = statistics.median(own[0] for own in taken) / steps
    print(
      f'{name:22}{1000 * step:10.1f}{clock:9.2f}{processors:12.2f}{target:>9}'
    )


if __name__ == '__main__':
  main()
