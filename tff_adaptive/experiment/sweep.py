"""Many runs: a grid, worked through by one process or several.

A sweep's folder has `sweep.sqlite` (what there is to run and what became of
it), `results.csv` (the same as text), `runs/` (a run's folder each), `logs/`
and `tensorboard/`. It can be stopped or killed at any moment; the same command
goes on with what is left, runs that were under way from their checkpoints.
"""

import contextlib
import dataclasses
import hashlib
import json
import math
import multiprocessing
import pathlib
import signal
import sys
import time
from collections.abc import Mapping
from collections.abc import Sequence
from multiprocessing import connection as connections
from typing import Any
from typing import IO
from typing import Literal
from typing import Optional
from typing import Protocol

from tff_adaptive import parameters
from tff_adaptive.experiment import errors
from tff_adaptive.experiment import files
from tff_adaptive.experiment import flags as flags_lib
from tff_adaptive.experiment import grids
from tff_adaptive.experiment import options as options_lib
from tff_adaptive.experiment import progress as progress_lib
from tff_adaptive.experiment import results
from tff_adaptive.experiment import search
from tff_adaptive.experiment import selection
from tff_adaptive.experiment import stopping
from tff_adaptive.experiment import sweep_store
from tff_adaptive.experiment import sweep_worker

USAGE = """sweep --axis=FLAG=V1,V2,... [--axis=...] [--flag=value ...]

Runs every combination of the axes, or a paper's grid, and says which is best.
The flags of a run (main.py --help) hold for all of them. Beside those:"""
_RULES = Literal.__getitem__(tuple(selection.RULES))
_flag = parameters.Parameter
_TRIALS = 20
_HALVING_FACTOR = 3


def build_options() -> options_lib.Options:
  """The flags of `main.py sweep` beside those of a run."""
  return options_lib.Options(
    _flag(
      'grid',
      str,
      None,
      "A paper's grid, PAPER/TASK or PAPER/TASK/METHOD, such as "
      'reddi2021/emnist_character; an --axis replaces its axis of that name.',
    ),
    _flag(
      'select',
      _RULES,
      selection.DEFAULT,
      'Which configuration is best: '
      + '; '.join(f'{r.name}: {r.help}' for r in selection.RULES.values())
      + '.',
    ),
    _flag(
      'search',
      Literal['grid', 'halving', 'bayesian'],
      'grid',
      'grid runs every point. halving runs all for a few rounds, then the best '
      'part for more, and so forth. bayesian tries --trials configurations, '
      'each where a Gaussian process over those before expects most.',
    ),
    _flag(
      'trials',
      parameters.Count,
      None,
      'Configurations that --search=bayesian tries; 20 unless given.',
    ),
    _flag(
      'halving_factor',
      parameters.Annotated[int, parameters.Range(low=2)],
      None,
      'One in so many configurations goes on with --search=halving; 3 unless '
      'given.',
    ),
    _flag(
      'workers',
      parameters.NonNegativeInt,
      1,
      'Processes that run at once, each one run after the other; 0 runs them '
      'in this process.',
    ),
    _flag(
      'runs_per_process',
      parameters.Count,
      40,
      'Runs after which a process is replaced by a fresh one, which bounds '
      'its memory.',
    ),
    _flag(
      'divergence_factor',
      parameters.NonNegative,
      10.0,
      'A run is given up when its training loss is for 3 rounds more than this '
      'many times the loss of the untrained model, or is not finite; 0 for '
      'only the latter.',
    ),
    _flag(
      'retry_failed',
      bool,
      False,
      'Run those again that failed; what diverged is not tried again.',
    ),
    repeated=[
      _flag(
        'axis',
        str,
        parameters.REQUIRED,
        'FLAG=V1,V2,...: the values of a flag to try. Given several times, '
        'all combinations are run; seed=0,1,2 repeats them.',
      )
    ],
  )


@dataclasses.dataclass(frozen=True)
class Sweep:
  """What to run.

  Attributes:
    folder: Where everything is.
    points: The runs.
    dry_run: Whether to list them instead.
    options: Values of `build_options`.
  """

  folder: pathlib.Path
  points: Sequence[grids.Point]
  dry_run: bool
  options: Mapping[str, Any]


def parse(arguments: Sequence[str]) -> Sweep:
  """Reads a command line, without TensorFlow.

  Raises:
    SettingsError: In one sentence, what is wrong.
  """
  options, rest = build_options().split(arguments)
  for flag, needed in (('trials', 'bayesian'), ('halving_factor', 'halving')):
    if options[flag] is not None and options['search'] != needed:
      raise errors.SettingsError(
        f'--{flag}={options[flag]} would be ignored: --search='
        f'{options["search"]}.'
      )
  axes: dict[str, Sequence[str]] = {}
  for text in options['axis']:
    flag, values = grids.parse_axis(text)
    if flag in axes:
      raise errors.SettingsError(f'--axis={flag} is given twice.')
    axes[flag] = values
  told = {
    name: text for name, _, text in (a.lstrip('-').partition('=') for a in rest)
  }
  for flag in axes:
    if flag in ('experiment_name', 'root_output_dir', 'dry_run'):
      raise errors.SettingsError(f'--{flag} cannot be an axis of a sweep.')
  if options['grid'] is not None:
    blocks = grids.load(options['grid'], told.get('algorithm'))
  elif axes:
    blocks = [grids.Block()]
  else:
    raise errors.SettingsError(
      'A sweep needs --axis=FLAG=V1,V2,... (one or more) or --grid=NAME.'
    )
  # Also finds what is wrong with the flags that all points share.
  # A point stands for all: what is accepted may depend on an axis.
  shared = flags_lib.Flags().parse(
    [
      *(a for a in rest if a.lstrip('-').partition('=')[0] not in axes),
      *(f'--{flag}={values[0]}' for flag, values in axes.items()),
    ]
    if options['grid'] is None
    else [
      a
      for a in rest
      if a.lstrip('-').partition('=')[0]
      in ('experiment_name', 'root_output_dir', 'dry_run', 'nodry_run')
    ]
  )
  root = pathlib.Path(shared.settings.root_output_dir)
  kept = [
    a
    for a in rest
    if a.lstrip('-').partition('=')[0]
    not in ('experiment_name', 'root_output_dir', 'dry_run', 'nodry_run')
  ]
  blocks = grids.with_axes(blocks, axes)
  points = grids.points(kept, blocks, '')
  name = shared.settings.experiment_name or default_name(points)
  folder = root / name
  points = [
    dataclasses.replace(
      p,
      settings=dataclasses.replace(
        p.settings, root_output_dir=str(folder / 'runs')
      ),
    )
    for p in points
  ]
  return Sweep(folder, points, shared.dry_run, options)


def default_name(points: Sequence[grids.Point]) -> str:
  """A name that tells the sweep's settings apart."""
  text = json.dumps([p.settings.identity for p in points], sort_keys=True)
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'sweep-{points[0].settings.task}-{digest}'


def describe(sweep: Sweep) -> str:
  """The points, for --dry_run."""
  lines = [f'{len(sweep.points)} runs, results in {sweep.folder}']
  lines += [f'  {p.name}' for p in sweep.points]
  total = sum(p.settings.total_rounds for p in sweep.points)
  lines.append(f'{total:,} rounds in all')
  return '\n'.join(lines)


class Plan(Protocol):
  """What to run next."""

  def next(self) -> Optional[sweep_worker.Job]:
    """A job that can be started now, if there is one."""

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    """Takes note of what became of a job."""

  def left(self, rounds: Mapping[str, int]) -> int:
    """Rounds that are still to be run, those of `rounds` being done."""


class GridPlan:
  """Every point that is not over, in order."""

  def __init__(self, jobs: Sequence[sweep_worker.Job]):
    self._waiting = list(jobs)
    self._left = {j.point.name: j.point.settings.total_rounds for j in jobs}

  def next(self) -> Optional[sweep_worker.Job]:
    return self._waiting.pop(0) if self._waiting else None

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    del outcome
    self._left.pop(job.point.name, None)

  def left(self, rounds: Mapping[str, int]) -> int:
    return sum(t - rounds.get(n, 0) for n, t in self._left.items())


class _Progress:
  """How far the sweep is."""

  def __init__(self, store: sweep_store.Store, stream: Optional[IO[str]]):
    self._store = store
    self._stream = stream or sys.stdout
    self._terminal = self._stream.isatty()
    self._start = time.monotonic()
    self._drawn = 0
    self._worked = 0
    self._rounds: dict[str, int] = {}
    self._first: dict[str, int] = {}

  @property
  def rounds(self) -> Mapping[str, int]:
    """Of the runs under way, by name."""
    return self._rounds

  def round(self, name: str, number: int) -> None:
    self._first.setdefault(name, number)
    self._rounds[name] = number

  def over(self, name: str, rounds: int) -> None:
    first = self._first.pop(name, None)
    self._rounds.pop(name, None)
    if first is not None:
      self._worked += max(rounds - first, 0)

  def line(self, plan: Plan) -> str:
    counts: dict[str, int] = {}
    rows = self._store.rows()
    for row in rows:
      counts[row['status']] = counts.get(row['status'], 0) + 1
    over = sum(counts.get(s, 0) for s in sweep_store.OVER)
    parts = [f'sweep {over}/{len(rows)} runs']
    for status in (
      sweep_store.RUNNING,
      sweep_store.DIVERGED,
      sweep_store.FAILED,
      sweep_store.PRUNED,
    ):
      if counts.get(status):
        parts.append(f'{counts[status]} {status}')
    worked = self._worked + sum(
      n - self._first[name] for name, n in self._rounds.items()
    )
    if worked > 0 and over < len(rows):
      each = (time.monotonic() - self._start) / worked
      left = plan.left(self._rounds)
      parts.append(f'{progress_lib.duration(each * left)} left')
    return '  '.join(parts)

  def show(self, plan: Plan) -> None:
    """Redraws the line; only where it is seen at once."""
    if self._terminal:
      line = self.line(plan)
      self._stream.write('\r' + line.ljust(self._drawn))
      self._drawn = len(line)
      self._stream.flush()

  def say(self, sentence: str) -> None:
    if self._drawn:
      self._stream.write('\r' + ' ' * self._drawn + '\r')
      self._drawn = 0
    self._stream.write(sentence + '\n')
    self._stream.flush()


class _Recorder:
  """Writes down what becomes of runs, and says it."""

  def __init__(self, store: sweep_store.Store, progress: _Progress, plan: Plan):
    self._store = store
    self._progress = progress
    self._plan = plan

  def started(self, job: sweep_worker.Job) -> None:
    self._store.set(job.point.name, sweep_store.RUNNING)

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    name = job.point.name
    values: dict[str, Any] = {}
    try:
      run = results.load(job.point.settings.folder)
      values = dict(
        rounds=run.rounds, metric=run.metric, measures=run.measures()
      )
    except errors.SettingsError as e:
      if outcome.status == sweep_store.FINISHED:
        outcome = sweep_worker.Outcome(sweep_store.FAILED, str(e))
    self._store.set(name, outcome.status, reason=outcome.reason, **values)
    self._progress.over(name, values.get('rounds', 0))
    self._plan.done(job, outcome)
    if outcome.status in sweep_store.OVER:
      line = f'{outcome.status:<9} {name}'
      measures = values.get('measures', {})
      if outcome.status == sweep_store.FINISHED and 'train/loss' in measures:
        line += f'  train loss {progress_lib.number(measures["train/loss"])}'
      if outcome.reason:
        line += f': {outcome.reason}'
      self._progress.say(line)
      self._progress.say(self._progress.line(self._plan))
      self._store.export()


def run(
  sweep: Sweep,
  *,
  stream: Optional[IO[str]] = None,
) -> list[dict[str, Any]]:
  """Runs a sweep, or goes on with it.

  Args:
    sweep: What to run.
    stream: Where to say what is going on; standard output unless given.

  Returns:
    The rows of the table.

  Raises:
    SettingsError: If the folder is another experiment's, or somebody else is
      at work in it; nothing is changed.
    Stopped: If a signal stopped it; what was run is kept.
  """
  _check_folder(sweep.folder)
  with files.RunFolder(sweep.folder), sweep_store.Store(sweep.folder) as store:
    store.add(sweep.points)
    store.put('select', sweep.options['select'])
    jobs = _jobs_left(sweep, store)
    plan = _plan(sweep, store, jobs)
    progress = _Progress(store, stream)
    recorder = _Recorder(store, progress, plan)
    progress.say(
      f'{len(sweep.points)} runs, {len(jobs)} of them to do, in {sweep.folder}.'
    )
    signals = stopping.Signals()
    try:
      with signals.handled():
        if sweep.options['workers']:
          _with_workers(
            plan,
            recorder,
            progress,
            signals,
            sweep.options['workers'],
            sweep.options['runs_per_process'],
          )
        else:
          _in_this_process(plan, recorder, progress, signals)
    except stopping.Stopped:
      progress.say(
        'Stopped; what was run is kept, and the same command goes on.'
      )
      raise
    finally:
      store.export()
    if any(r['status'] == sweep_store.FINISHED for r in store.rows()):
      _write_hparams_config(sweep)
    return store.rows()


def _plan(
  sweep: Sweep, store: sweep_store.Store, jobs: Sequence[sweep_worker.Job]
) -> Plan:
  """The way through the grid that --search names."""
  rule = selection.RULES[sweep.options['select']]
  if sweep.options['search'] == 'halving':
    factor = sweep.options['halving_factor'] or _HALVING_FACTOR
    return search.HalvingPlan(store, jobs, rule=rule, factor=factor)
  if sweep.options['search'] == 'bayesian':
    trials = sweep.options['trials'] or _TRIALS
    return search.BayesianPlan(store, jobs, rule=rule, trials=trials)
  return GridPlan(jobs)


def _check_folder(folder: pathlib.Path) -> None:
  inside = files.RunFolder(folder)
  if inside.hparams.exists() or inside.metrics.exists():
    raise errors.SettingsError(
      f'{folder} is the folder of a single run; choose another '
      '--experiment_name for the sweep.'
    )
  files.check_writable(folder)


def _jobs_left(
  sweep: Sweep, store: sweep_store.Store
) -> list[sweep_worker.Job]:
  """Jobs for what is not over; what says it is but is gone, is not."""
  jobs = []
  points = {p.name: p for p in sweep.points}
  for row in store.rows():
    point = points[row['name']]
    status = row['status']
    if status == sweep_store.FINISHED and not _is_there(point):
      status = sweep_store.WAITING
      store.set(point.name, status, reason='its folder was gone or unfinished')
    elif status == sweep_store.PRUNED and sweep.options['search'] != 'halving':
      status = sweep_store.WAITING
      store.set(point.name, status)
    elif status == sweep_store.FAILED and sweep.options['retry_failed']:
      status = sweep_store.WAITING
    if status not in sweep_store.OVER:
      jobs.append(job_of(sweep, point))
  return jobs


def job_of(
  sweep: Sweep, point: grids.Point, until_round: Optional[int] = None
) -> sweep_worker.Job:
  """The job that runs a point of a sweep."""
  return sweep_worker.Job(
    point,
    sweep.folder / 'logs' / f'{point.name}.log',
    sweep.options['divergence_factor'],
    until_round,
  )


def _is_there(point: grids.Point) -> bool:
  try:
    return results.load(point.settings.folder).finished
  except errors.SettingsError:
    return False


def _write_hparams_config(sweep: Sweep) -> None:
  """In a process that has TensorFlow: this one, or one more."""
  arguments = (sweep.folder / 'tensorboard', list(sweep.points))
  if not sweep.options['workers']:
    sweep_worker.write_hparams_config(*arguments)
    return
  process = multiprocessing.get_context('spawn').Process(
    target=sweep_worker.write_hparams_config, args=arguments
  )
  process.start()
  process.join()


def _in_this_process(
  plan: Plan,
  recorder: _Recorder,
  progress: _Progress,
  signals: stopping.Signals,
) -> None:
  while True:
    job = plan.next()
    if job is None:
      return
    signals.check()
    recorder.started(job)
    name = job.point.name

    def report(number: int, name: str = name) -> None:
      progress.round(name, number)
      progress.show(plan)

    try:
      outcome = sweep_worker.run(job, report)
    except stopping.Stopped:
      recorder.done(job, sweep_worker.Outcome(sweep_store.WAITING, 'stopped'))
      raise
    recorder.done(job, outcome)


class _Slot:
  """A worker process and what it is at."""

  def __init__(self) -> None:
    context = multiprocessing.get_context('spawn')
    self.connection, theirs = context.Pipe()
    self.process = context.Process(
      target=sweep_worker.serve, args=(theirs,), daemon=False
    )
    self.process.start()
    theirs.close()
    self.job: Optional[sweep_worker.Job] = None
    self.runs = 0

  def start(self, job: sweep_worker.Job) -> None:
    job.log.parent.mkdir(parents=True, exist_ok=True)
    self.job = job
    self.runs += 1
    self.connection.send(job)

  def close(self) -> None:
    """Lets the process end."""
    with contextlib.suppress(OSError):  # It may have ended by itself.
      self.connection.send(None)
    self.process.join()
    self.connection.close()


def _with_workers(
  plan: Plan,
  recorder: _Recorder,
  progress: _Progress,
  signals: stopping.Signals,
  workers: int,
  runs_per_process: int,
) -> None:
  slots: list[_Slot] = []
  try:
    while True:
      signals.check()
      idle = [s for s in slots if s.job is None]
      while len([s for s in slots if s.job is not None]) < workers:
        job = plan.next()
        if job is None:
          break
        slot = idle.pop() if idle else _Slot()
        if slot not in slots:
          slots.append(slot)
        recorder.started(job)
        slot.start(job)
      busy = {s.connection: s for s in slots if s.job is not None}
      if not busy:
        return
      for ready in connections.wait(list(busy), timeout=1.0):
        slot = next(s for c, s in busy.items() if c is ready)
        job = slot.job
        assert job is not None
        try:
          kind, value = slot.connection.recv()
        except (EOFError, OSError):
          slot.process.join()
          slots.remove(slot)
          recorder.done(job, _died(slot.process.exitcode))
          continue
        if kind == 'round':
          progress.round(job.point.name, value)
          continue
        slot.job = None
        recorder.done(job, value)
        if slot.runs >= runs_per_process or value.reason == 'stopped':
          slots.remove(slot)
          slot.close()
      progress.show(plan)
  finally:
    for slot in slots:
      if slot.job is not None:
        slot.process.terminate()  # SIGTERM: the run is saved first.
    for slot in slots:
      if slot.job is not None:
        slot.process.join()
        recorder.done(
          slot.job, sweep_worker.Outcome(sweep_store.WAITING, 'stopped')
        )
      slot.close()


def _died(code: Optional[int]) -> sweep_worker.Outcome:
  """The outcome of a run whose process ended without a word."""
  how = f'with code {code}'
  if code is not None and code < 0:
    how = f'by {signal.Signals(-code).name}'
  return sweep_worker.Outcome(
    sweep_store.FAILED,
    f'its process was ended {how}, as happens when memory runs out; '
    '--retry_failed tries again',
  )


def summary(rows: Sequence[Mapping[str, Any]], select: str) -> str:
  """The best configuration, and the best of every method.

  Args:
    rows: Of the table.
    select: The name of a rule.
  """
  rule = selection.RULES[select]
  by_method: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
  for row in rows:
    flags = {k: v for k, v in row['flags'].items() if k not in grids.SEEDS}
    method = results.method_of(row['settings'])
    configuration = ', '.join(
      f'{k}={v}' for k, v in flags.items() if k not in ('algorithm', 'task')
    )
    by_method.setdefault(method, {}).setdefault(configuration, []).append(row)
  lines = [f'Best by --select={rule.name}: {rule.help}.']
  table = [('method', rule.measure, 'runs', 'configuration')]
  order = []
  for method, configurations in by_method.items():
    scores = {k: scores_of(rule, v) for k, v in configurations.items()}
    best = selection.best(scores)
    if best is None:
      order.append(
        (math.inf, (method, 'no configuration finished on all seeds', '', ''))
      )
      continue
    values = [r[rule.measure] for r in configurations[best]]
    order.append(
      (
        results.mean(scores[best]),
        (
          method,
          progress_lib.number(results.mean(values)),
          str(len(values)),
          best,
        ),
      )
    )
  table += [cells for _, cells in sorted(order, key=lambda item: item[0])]
  widths = [max(len(row[i]) for row in table) for i in range(3)]
  for cells in table:
    padded = [c.ljust(w) for c, w in zip(cells[:3], widths, strict=True)]
    lines.append('  '.join([*padded, cells[3]]).rstrip())
  return '\n'.join(lines)


def scores_of(
  rule: selection.Rule, rows: Sequence[Mapping[str, Any]]
) -> list[float]:
  """What a configuration's runs are worth; infinite unless finished."""
  return [
    selection.score(
      rule,
      {k: v for k, v in row.items() if isinstance(v, float)},
      row['metric'],
    )
    if row['status'] == sweep_store.FINISHED
    else math.inf
    for row in rows
  ]


def main(arguments: Sequence[str]) -> int:
  """`main.py sweep`; returns the exit code."""
  sweep = parse(arguments)
  if sweep.dry_run:
    print(describe(sweep))
    return 0
  rows = run(sweep)
  print(summary(rows, sweep.options['select']))
  print(f'table    {sweep.folder / "results.csv"}')
  print(f'report   python main.py report {sweep.folder}')
  return 0 if any(r['status'] == sweep_store.FINISHED for r in rows) else 1
