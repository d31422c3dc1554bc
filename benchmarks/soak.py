"""A measurement of what a run holds on to over thousands of rounds.

  python benchmarks/soak.py [--rounds=3000] [--runtime=in_process] [FLAG ...]

Trains the quadratic task, whose rounds cost little but the loop itself, with an
evaluation every 10 rounds and a checkpoint every 50, and prints what the
process holds after the first tenth of the rounds and every further one:
resident memory, open files, threads and child processes. Other flags are those
of main.py. The exit code is 1 if something grew: memory by more than a
twentieth from the second line to the last, or anything else at all.

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

import psutil

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.training import experiment as train

_SAMPLES = 10


def sample() -> dict[str, int]:
  """Measures what this process holds now."""
  gc.collect()
  process = psutil.Process()
  return {
    'MiB': process.memory_info().rss >> 20,
    'files': process.num_fds(),
    'threads': process.num_threads(),
    'children': len(process.children(recursive=True)),
  }


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=3000)
  options, others = parser.parse_known_args()
  samples: dict[int, dict[str, int]] = {}

  def watch(number):
    if number and number % (options.rounds // _SAMPLES) == 0:
      samples[number] = sample()
      if len(samples) == 1:
        print('| round | ' + ' | '.join(samples[number]) + ' |')
        print('|' + '---:|' * (1 + len(samples[number])))
      cells = [number, *samples[number].values()]
      print('| ' + ' | '.join(map(str, cells)) + ' |', flush=True)

  class Watch(hooks.Hook):
    def round(self, event):
      watch(event.number)

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
  # The first line is before some caches are full.
  second, last = list(samples.values())[1], list(samples.values())[-1]
  grown = [
    name
    for name, value in last.items()
    if value > second[name] * (1.05 if name == 'MiB' else 1)
  ]
  if grown:
    print(f'grew: {", ".join(grown)}')
  return int(bool(grown))


if __name__ == '__main__':
  sys.exit(main())
