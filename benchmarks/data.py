"""What a round waits for its data, task by task.

    python -m benchmarks.data [--cache_dir=DIR] [--rounds=N] [--clients=N]
                              [--flag=--NAME=VALUE]... [TASK ...]

For each task, a run of `main.py` and its columns `seconds/data` and `seconds`:
how long the loop waited for the cohort's batches, most of which are made while
the cohort before it trains, and how long the round took. The first two rounds,
which trace and compile, are left out. "waited" is the mean of a round, "share"
all that rounds waited of all their time. Tasks whose files are missing run on
made-up data and say so; --flag is for every task.
"""

import argparse
import pathlib
import statistics
import tempfile
from collections.abc import Sequence
from typing import Optional

import tasks
from tff_adaptive import errors
from tff_adaptive import training
from tff_adaptive.lab.flags import parsing
from tff_adaptive.lab.report import runs

# Rounds whose graphs are traced and compiled.
_TRACED = 2


def main(argv: Optional[Sequence[str]] = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('tasks', nargs='*', default=[], metavar='TASK')
  parser.add_argument('--cache_dir', help='Folder with the data files.')
  parser.add_argument('--rounds', type=int, default=12)
  parser.add_argument('--clients', type=int, default=10)
  parser.add_argument(
    '--flag', action='append', default=[], help='A flag of every run.'
  )
  arguments = parser.parse_args(argv)
  if arguments.rounds <= _TRACED:
    parser.error(f'--rounds must be more than {_TRACED}')
  print(
    f'{"task":24}{"data":10}{"examples":>9}{"steps":>7}{"round ms":>10}'
    f'{"waited ms":>10}{"share":>7}'
  )
  for name in arguments.tasks or tasks.names():
    flags = [f'--total_rounds={arguments.rounds}', *arguments.flag]
    flags.append(f'--rounds_per_eval={arguments.rounds}')
    clients = arguments.clients
    if (there := tasks.info(name).num_clients) is not None:
      clients = min(clients, there)
    flags.append(f'--clients_per_round={clients}')
    print(_row(name, flags, arguments.cache_dir), flush=True)


def _row(name: str, flags: Sequence[str], cache_dir: Optional[str]) -> str:
  """Formats a line of the table."""
  with tempfile.TemporaryDirectory() as folder:
    flags = [f'--task={name}', f'--root_output_dir={folder}/runs', *flags]
    files = []
    if cache_dir and tasks.info(name).files:
      files.append(f'--cache_dir={cache_dir}')
    kind = 'native'
    try:
      _run([*flags, *files])
    except (errors.SettingsError, tasks.DataError):
      kind = 'made up'
      _run([*flags, '--data=synthetic'])
    (found,), _ = runs.find(pathlib.Path(folder))
  rows = [row for row in found.rows if row['round'] > _TRACED]
  waited, took, counted, steps = (
    [row[column] for row in rows]
    for column in (
      'seconds/data',
      'seconds',
      'train/num_examples',
      'clients/steps',
    )
  )
  return (
    f'{name:24}{kind:10}{statistics.median(counted):9.0f}'
    f'{statistics.median(steps):7.0f}{1e3 * statistics.median(took):10.1f}'
    f'{1e3 * statistics.fmean(waited):10.1f}{sum(waited) / sum(took):7.1%}'
  )


def _run(flags: Sequence[str]) -> None:
  """Runs what `main.py` with these flags does."""
  training.run(parsing.Flags().parse(flags).settings, say=lambda line: None)


if __name__ == '__main__':
  main()
