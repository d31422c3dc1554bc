"""A measurement of what a run costs and holds on to over thousands of rounds.

  python benchmarks/soak.py [--rounds=3000] [--runtime=in_process] [FLAG ...]

Trains the quadratic task, whose rounds cost little but the loop itself, with an
evaluation every 10 rounds and a checkpoint every 50, and prints after the first
tenth of the rounds and every further one: milliseconds a round over that tenth,
by the clock and of processor time, with evaluations, checkpoints and records,
and what the process holds: resident memory, open files, threads and child
processes. Other flags are those of main.py. The exit code is 1 if something
grew: memory by more than a twentieth from the second line to the last,
processor time by more than a tenth, or files, threads or children at all.

Rounds of 1,000 clients on the model of tags with 5,000,500 weights:

  PYTHONPATH=benchmarks/contenders python benchmarks/soak.py --rounds=40 \\
      --task=program_task:create --program_task_model=tag \\
      --program_task_width=10000 --program_task_num_clients=1000 \\
      --program_task_examples=4 --client_batch_size=4 \\
      --clients_per_round=1000 --algorithm=fedadam \\
      --client_learning_rate=0.1 --server_learning_rate=0.01 \\
      --rounds_per_eval=40 --rounds_per_checkpoint=20 \\
      --validation_split=test --num_validation_examples=100
"""

import argparse
import gc
import os
import pathlib
import sys
import tempfile
import time

import psutil

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training import experiment as train

_SAMPLES = 10


# Growth that is none, by column; 1 for the others.
_MARGINS = {'MiB': 1.05, 'cpu ms': 1.1}
_MEASURED_ONLY = 'ms'


class Samples:
  """What a round costs, and what this process holds, by round."""

  def __init__(self) -> None:
    self._last = 0
    self._clocks = self._read()
    self.by_round: dict[int, dict[str, float]] = {}

  def _read(self) -> dict[str, float]:
    return {'ms': 1e3 * time.monotonic(), 'cpu ms': 1e3 * time.process_time()}

  def add(self, number: int) -> dict[str, float]:
    """Measures after a round, over the rounds since the last measurement."""
    before, self._clocks = self._clocks, self._read()
    gc.collect()
    process = psutil.Process()
    self.by_round[number] = {
      **{
        name: round((clock - before[name]) / (number - self._last), 1)
        for name, clock in self._clocks.items()
      },
      'MiB': process.memory_info().rss >> 20,
      'files': process.num_fds(),
      'threads': process.num_threads(),
      'children': len(process.children(recursive=True)),
    }
    self._last = number
    return self.by_round[number]

  def grown(self) -> list[str]:
    """Names what grew from the second measurement to the last."""
    # The first is before some caches are full.
    _, second, *_, last = self.by_round.values()
    return [
      name
      for name, value in last.items()
      if name != _MEASURED_ONLY and value > second[name] * _MARGINS.get(name, 1)
    ]


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=3000)
  options, others = parser.parse_known_args()
  samples = Samples()

  class Watch(hooks.Hook):
    def round(self, event):
      if event.number == 0 or event.number % (options.rounds // _SAMPLES):
        return
      found = samples.add(event.number)
      if len(samples.by_round) == 1:
        print('| round | ' + ' | '.join(found) + ' |')
        print('|' + '---:|' * (1 + len(found)))
      cells = [event.number, *found.values()]
      print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)

  with tempfile.TemporaryDirectory() as folder:
    parsed = flags.Flags().parse(
      [
        '--task=quadratic',
        '--clients_per_round=2',
        f'--total_rounds={options.rounds}',
        f'--root_output_dir={folder}',
        *others,
      ]
    )
    train.run(parsed.settings, say=lambda _: None, hooks=[Watch()])
  grown = samples.grown()
  if grown:
    print(f'grew: {", ".join(grown)}')
  return int(bool(grown))


if __name__ == '__main__':
  sys.exit(main())
