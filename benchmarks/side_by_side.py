"""Contenders that take turns, each in a process of its own.

Peak memory is then each one's own, and a busy machine is busy for all of them.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Iterable

_ROOT = os.path.abspath(
  os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
)
# Programs that run in this interpreter.
_OURS = ('tensorflow', 'program', 'hand_written')
# What a contender's program is told of the options.
_PASSED = (
  'clients',
  'examples',
  'batch_size',
  'width',
  'threads',
  'devices',
  'population',
  'vectorize_clients',
  'jit_compile',
)


class Contender:
  """A contender's process."""

  def __init__(
    self, name: str, program: str, options, seconds: float | None = None
  ):
    """Starts it, and waits until it is built.

    Args:
      name: The contender.
      program: The program that runs it.
      options: The benchmark's parsed command line.
      seconds: After which the process is ended; methods then raise
        `RuntimeError`.
    """
    self.name = name
    self.seconds: list[float] = []
    path = os.path.join(
      _ROOT, 'benchmarks', 'contenders', f'{program}_rounds.py'
    )
    arguments = [f'--contender={name}', f'--model={options.model}']
    for key in _PASSED:
      if getattr(options, key, None) is not None:
        arguments.append(f'--{key}={getattr(options, key)}')
    rounds = options.warm_up + options.rounds
    arguments.append(f'--rounds={rounds}')
    if getattr(options, 'shuffle', False):
      arguments.append('--shuffle')
    self._process = subprocess.Popen(
      [options.pythons[program], path, *arguments],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=None if options.verbose else subprocess.DEVNULL,
      text=True,
      env={
        **os.environ,
        'PYTHONPATH': _ROOT,
        **getattr(options, 'environment', {}),
      },
    )
    self._end = threading.Timer(seconds or 0, self._process.kill)
    self._end.daemon = True
    if seconds is not None:
      self._end.start()
    built = self._answer()
    self.build, self.first_loss = built['build'], built['loss']

  def _answer(self):
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(
        f'{self.name} ended with exit code {self._process.wait()}; --verbose'
        ' shows why.'
      )
    return json.loads(line)

  def rounds(self, count: int) -> None:
    """Has the contender run rounds one after another."""
    for _ in range(count):
      self._process.stdin.write('round\n')
      self._process.stdin.flush()
      self.seconds.append(self._answer()['seconds'])

  def finish(self) -> dict:
    """Reads the contender's final report: peak memory and final loss."""
    self._process.stdin.close()
    last = self._answer()
    self._process.wait()
    self._end.cancel()
    return last


def build_parser(
  description: str,
  programs: dict[str, str],
  *,
  models: str,
  rounds: int,
  turn: int,
) -> argparse.ArgumentParser:
  """Declares the options that all comparisons have.

  Args:
    description: The first line of the help.
    programs: Contender -> its program.
    models: Models unless told otherwise.
    rounds: Rounds unless told otherwise.
    turn: Rounds of a turn unless told otherwise.
  """
  parser = argparse.ArgumentParser(description=description)
  parser.add_argument('--models', default=models)
  parser.add_argument('--contenders', default=','.join(programs))
  parser.add_argument(
    '--rounds', type=int, default=rounds, help='after warm-up'
  )
  parser.add_argument('--warm_up', type=int, default=3)
  parser.add_argument(
    '--turn',
    type=int,
    default=turn,
    help='rounds of a contender before the next has its turn',
  )
  parser.add_argument(
    '--clients', default='10', help='cohort sizes, separated by commas'
  )
  parser.add_argument('--batch_size', type=int)
  parser.add_argument('--output', help='JSON file to write')
  parser.add_argument('--verbose', action='store_true')
  for program in dict.fromkeys(programs.values()):
    if program not in _OURS:
      parser.add_argument(
        f'--{program}_python', help=f'interpreter that has {program}'
      )
  return parser


def parse(
  parser: argparse.ArgumentParser,
  arguments: list[str] | None,
  programs: dict[str, str],
  known_models: Iterable[str],
) -> argparse.Namespace:
  """Parses options, and puts the interpreter of each program into `pythons`."""
  options = parser.parse_args(arguments)
  options.pythons = {
    program: sys.executable
    if program in _OURS
    else getattr(options, f'{program}_python')
    for program in programs.values()
  }
  for flag, known in (('models', known_models), ('contenders', programs)):
    chosen = getattr(options, flag).split(',')
    unknown = sorted(set(chosen) - set(known))
    if unknown:
      parser.error(f'--{flag} are {", ".join(known)}; got {unknown[0]!r}.')
    setattr(options, flag, chosen)
  return options


def compare(options, programs: dict[str, str], ours: str) -> list[dict]:
  """Runs all contenders on one model; returns a row for each.

  Args:
    options: What is to be done, and `pythons`, the interpreter by program.
    programs: Contender -> its program, contenders/PROGRAM_rounds.py.
    ours: The contender that ratios are to.
  """
  rows, running = [], []
  for name in options.contenders:
    program = programs[name]
    if options.pythons[program] is None:
      reason = f'no --{program}_python given'
      rows.append({'contender': name, 'skipped': reason})
      continue
    running.append(Contender(name, program, options))
  rounds = options.warm_up + options.rounds
  for begin in range(0, rounds, options.turn):
    for contender in running:
      contender.rounds(min(options.turn, rounds - begin))
  for contender in running:
    times = contender.seconds[options.warm_up :]
    last = contender.finish()
    rows.append(
      {
        'contender': contender.name,
        'median_seconds': statistics.median(times),
        'min_seconds': min(times),
        'first_round_seconds': contender.seconds[0],
        'build_seconds': contender.build,
        'first_loss': contender.first_loss,
        'last_loss': last['loss'],
        'peak_bytes': last['peak'],
      }
    )
  base = next((r for r in rows if r['contender'] == ours), None)
  for row in rows:
    row.update(
      model=options.model,
      clients=options.clients,
      examples=options.examples,
      batch_size=options.batch_size,
      width=options.width,
    )
    if base is not None and 'median_seconds' in row:
      row['ratio'] = row['median_seconds'] / base['median_seconds']
  return rows


def print_table(rows: list[dict]) -> None:
  print(
    f'{"model":9} {"clients":>7} {"examples":>8} {"contender":15}'
    f' {"median s":>9} {"min s":>9} {"ratio":>6} {"first s":>8}'
    f' {"loss":>16} {"peak MiB":>9}'
  )
  for row in rows:
    head = (
      f'{row["model"]:9} {row["clients"]:7} {row["examples"]:8}'
      f' {row["contender"]:15}'
    )
    if 'skipped' in row:
      print(f'{head} skipped: {row["skipped"]}')
      continue
    print(
      f'{head} {row["median_seconds"]:9.4f} {row["min_seconds"]:9.4f}'
      f' {row.get("ratio", float("nan")):6.2f}'
      f' {row["first_round_seconds"]:8.2f}'
      f' {row["first_loss"]:7.4f}->{row["last_loss"]:7.4f}'
      f' {row["peak_bytes"] >> 20:9}'
    )
  sys.stdout.flush()


def write(path: str, rows: list[dict]) -> None:
  """Writes rows, and the number of cores they were measured on, as JSON."""
  report = {'cores': len(os.sched_getaffinity(0)), 'rows': rows}
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(report, file, indent=2)
