"""Many runs: a grid, worked through by one process or several.

A sweep's folder has `sweep.sqlite` (what there is to run and what became of
it), `results.csv` (the same as text), `runs/` (a run's folder each), `logs/`
and `tensorboard/`. It can be stopped or killed at any moment; the same command
goes on with what is left, runs that were under way from their checkpoints.
"""

import multiprocessing
import pathlib
from collections.abc import Sequence
from typing import Any
from typing import IO
from typing import Optional

from tff_adaptive import errors
from tff_adaptive.recording import files
from tff_adaptive.report import runs as results
from tff_adaptive.report import selection
from tff_adaptive.sweep import flags as sweep_flags
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import pool as sweep_pool
from tff_adaptive.sweep import progress as sweep_progress
from tff_adaptive.sweep import search
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.sweep import summary as sweep_summary
from tff_adaptive.sweep import worker as sweep_worker
from tff_adaptive.training import stopping

USAGE = """sweep --axis=FLAG=V1,V2,... [--axis=...] [--flag=value ...]

Runs every combination of the axes, or a paper's grid, and says which is best.
The flags of a run (main.py --help) hold for all of them. Beside those:"""
# What the command line asks every command for.
build_options = sweep_flags.build_options
parse = sweep_flags.parse
_TRIALS = 20
_HALVING_FACTOR = 3


def run(
  sweep: sweep_flags.Sweep,
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
    progress = sweep_progress.Progress(store, plan, stream)
    recorder = sweep_progress.Recorder(store, plan, progress)
    progress.say(
      f'{len(sweep.points)} runs, {len(jobs)} of them to do, in {sweep.folder}.'
    )
    signals = stopping.Signals()
    try:
      with signals.handled():
        if sweep.options['workers']:
          sweep_pool.Pool(
            recorder,
            workers=sweep.options['workers'],
            runs_per_process=sweep.options['runs_per_process'],
          ).run(signals)
        else:
          sweep_pool.in_this_process(recorder, signals)
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
  sweep: sweep_flags.Sweep,
  store: sweep_store.Store,
  jobs: Sequence[sweep_worker.Job],
) -> search.Plan:
  """The way through the grid that --search names."""
  rule = selection.RULES[sweep.options['select']]
  if sweep.options['search'] == 'halving':
    factor = sweep.options['halving_factor'] or _HALVING_FACTOR
    return search.HalvingPlan(store, jobs, rule=rule, factor=factor)
  if sweep.options['search'] == 'bayesian':
    trials = sweep.options['trials'] or _TRIALS
    return search.BayesianPlan(store, jobs, rule=rule, trials=trials)
  return search.GridPlan(jobs)


def _check_folder(folder: pathlib.Path) -> None:
  inside = files.RunFolder(folder)
  if inside.hparams.exists() or inside.metrics.exists():
    raise errors.SettingsError(
      f'{folder} is the folder of a single run; choose another '
      '--experiment_name for the sweep.'
    )
  files.check_writable(folder)


def _jobs_left(
  sweep: sweep_flags.Sweep, store: sweep_store.Store
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


def job_of(sweep: sweep_flags.Sweep, point: grids.Point) -> sweep_worker.Job:
  """The job that runs a point of a sweep."""
  return sweep_worker.Job(
    point,
    sweep.folder / 'logs' / f'{point.name}.log',
    sweep.options['divergence_factor'],
  )


def _is_there(point: grids.Point) -> bool:
  try:
    return results.load(point.settings.folder).finished
  except errors.SettingsError:
    return False


def _write_hparams_config(sweep: sweep_flags.Sweep) -> None:
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


def main(arguments: Sequence[str]) -> int:
  """`main.py sweep`; returns the exit code."""
  sweep = parse(arguments)
  if sweep.dry_run:
    print(sweep_flags.describe(sweep))
    return 0
  rows = run(sweep)
  print(sweep_summary.summary(rows, sweep.options['select']))
  print(f'table    {sweep.folder / "results.csv"}')
  print(f'report   python main.py report {sweep.folder}')
  return 0 if any(r['status'] == sweep_store.FINISHED for r in rows) else 1
