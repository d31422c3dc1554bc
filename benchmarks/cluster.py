"""Rounds on a Ray cluster beside rounds in one process, on the same cores.

  python -m benchmarks.cluster --cache_dir=DATA
  python -m benchmarks.cluster --address=10.0.0.2:6379 --cache_dir=DATA

Without `--address` the cluster is two machines with a core each, both played by
this one: each has a core that its processes do not leave, as if there were no
other. So what is measured is what the cluster costs: compare on a machine of
two cores. Each workload is trained by what `main.py` runs, in process and on
the cluster in turn, twice, from the same weights and on the same examples.

Reported are, of the rounds after the first three, the median seconds of a
round, and their ratio; how far training losses are apart (rounding differs, and
Adam magnifies it); and bytes: those of the model's weights, and what the
loopback interface carried in a round (an actor on the machine of the trainer
shares its memory, so that the weights go to the other machine, and partial sums
come back from there).

Without `--cache_dir` EMNIST is synthetic.
"""

import argparse
import contextlib
import statistics
import tempfile

from tests import ray_nodes
from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.training import experiment

_WORKLOADS = {
  'EMNIST CNN, 10 clients': ['--task=emnist_character'],
  'EMNIST CNN, 10 clients of SCAFFOLD': [
    '--task=emnist_character',
    '--algorithm=scaffold',
  ],
  'digits, 1,000 clients': [
    '--task=digits',
    '--digits_num_clients=1000',
    '--clients_per_round=1000',
  ],
}
_WARM_UP = 3
_TURNS = 2


def _loopback_bytes() -> int:
  with open('/proc/net/dev', encoding='ascii') as file:
    for line in file:
      name, _, counts = line.partition(':')
      if name.strip() == 'lo':
        return int(counts.split()[0])
  return 0


class _Watch:
  """A hook that notes each round's time, loss and bytes."""

  def __init__(self):
    self.rows = []
    self._carried = _loopback_bytes()

  def round(self, event):
    carried = _loopback_bytes()
    if event.row['round']:
      self.rows.append(
        (
          float(event.row['seconds']),
          float(event.row['train/loss']),
          carried - self._carried,
          float(event.row['bytes_down']),
        )
      )
    self._carried = carried

  def median(self, column):
    return statistics.median(row[column] for row in self.rows[_WARM_UP:])


def _measure(flags, rounds):
  with tempfile.TemporaryDirectory() as folder:
    settings = (
      parsing.Flags()
      .parse(
        [
          '--clients_per_round=10',
          '--client_optimizer=sgd',
          '--client_learning_rate=0.1',
          *flags,
          f'--total_rounds={rounds + _WARM_UP}',
          f'--rounds_per_eval={rounds + _WARM_UP}',
          '--num_validation_examples=100',
          f'--root_output_dir={folder}',
        ]
      )
      .settings
    )
    watch = _Watch()
    experiment.run(settings, say=lambda _: None, hooks=[watch])
  return watch


def _options(arguments):
  parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
  parser.add_argument('--address', help='of a Ray cluster; one here unless')
  parser.add_argument('--cache_dir', help='with the data of EMNIST')
  parser.add_argument('--rounds', type=int, default=20)
  parser.add_argument(
    '--workloads', type=int, default=len(_WORKLOADS), help='the first so many'
  )
  return parser.parse_args(arguments)


def main(arguments=None) -> None:
  """Measures, and prints a line a workload."""
  options = _options(arguments)
  data = ['--data=synthetic']
  if options.cache_dir:
    data = [f'--cache_dir={options.cache_dir}']
  with contextlib.ExitStack() as stack:
    address = options.address
    if not address:
      address = stack.enter_context(ray_nodes.started(own_cores=True)).address
    for name, flags in list(_WORKLOADS.items())[: options.workloads]:
      if '--task=digits' not in flags:
        flags = [*flags, *data]
      on_cluster = [*flags, '--runtime=ray', f'--ray_address={address}']
      turns = [
        (_measure(flags, options.rounds), _measure(on_cluster, options.rounds))
        for _ in range(_TURNS)
      ]
      alone, cluster = turns[0]
      seconds = [
        statistics.median(
          row[0] for turn in turns for row in turn[i].rows[_WARM_UP:]
        )
        for i in range(2)
      ]
      differences = [
        abs(a[1] - b[1]) for a, b in zip(alone.rows, cluster.rows, strict=True)
      ]
      print(
        f'{name}: {seconds[0]:.4f} s in process, {seconds[1]:.4f} s on the'
        f' cluster, {seconds[0] / seconds[1]:.2f} of its speed; losses differ'
        f' by {differences[0]:.1e}, {differences[1]:.1e} and'
        f' {differences[-1]:.1e} after 1, 2 and all rounds; weights'
        f' {cluster.median(3) / 1e6:.2f} MB, carried'
        f' {cluster.median(2) / 1e6:.2f} MB a round',
        flush=True,
      )


if __name__ == '__main__':
  main()
