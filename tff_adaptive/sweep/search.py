"""Ways through a grid: all of it, or only what is worth a run.

All choose among the points of a sweep, and what they know is in its table, so
that searches are stopped, resumed and reported as a whole grid is.
"""

import math
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import Protocol

import numpy as np

from tff_adaptive.report import runs as results
from tff_adaptive.report import selection
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import store as sweep_store
from tff_adaptive.sweep import worker as sweep_worker

_Key = tuple[tuple[str, str], ...]


def configuration(flags: Mapping[str, str]) -> _Key:
  """A point's flags without its seeds."""
  return tuple((k, v) for k, v in flags.items() if k not in grids.SEEDS)


def scores(
  rule: selection.Rule, rows: Sequence[Mapping[str, Any]]
) -> dict[_Key, list[float]]:
  """Every configuration's scores so far, seed by seed; less is better.

  Also of runs that are not finished, by the rounds that they have; infinite for
  those that diverged, failed or have not begun.
  """
  result: dict[_Key, list[float]] = {}
  for row in rows:
    dead = row['status'] in (sweep_store.DIVERGED, sweep_store.FAILED)
    values = {k: v for k, v in row.items() if isinstance(v, float)}
    score = selection.score(rule, values, row['metric'])
    key = configuration(row['flags'])
    result.setdefault(key, []).append(math.inf if dead else score)
  return result


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


class HalvingPlan:
  """Successive halving: Jamieson and Talwalkar, arXiv 1502.07943.

  All configurations run for a few rounds, the best part of them goes on for
  `factor` times as many, and so forth; the last rung is the whole run, which
  has as many rounds for all.
  """

  def __init__(
    self,
    store: sweep_store.Store,
    jobs: Sequence[sweep_worker.Job],
    *,
    rule: selection.Rule,
    factor: int,
  ):
    """Finds out from the table how far the search is.

    Args:
      store: The sweep's table, open.
      jobs: Those of its points that are not over.
      rule: By which configurations are compared.
      factor: The share of configurations that goes on is 1 / factor.
    """
    self._store = store
    self._rule = rule
    self._factor = factor
    rows = store.rows()
    self._total = rows[0]['settings']['total_rounds']
    self._count = len({configuration(row['flags']) for row in rows})
    self.rungs = rungs(self._count, self._total, factor)
    self._jobs = {job.point.name: job for job in jobs}
    self._rounds = {row['name']: row['rounds'] for row in rows}
    self._rung = 0
    self._running: set[str] = set()
    self._queue: list[str] = []
    self._enter()

  def _enter(self) -> None:
    """Queues what the rung has still to run, and goes up where it is done."""
    while True:
      until = self.rungs[self._rung]
      self._queue = [n for n in self._jobs if self._rounds[n] < until]
      if self._queue or self._rung + 1 == len(self.rungs):
        return
      self._prune()
      self._rung += 1

  def _prune(self) -> None:
    kept = math.ceil(self._count / self._factor ** (self._rung + 1))
    means = {
      key: results.mean(values)
      for key, values in scores(self._rule, self._store.rows()).items()
      if any(configuration(j.point.flags) == key for j in self._jobs.values())
    }
    order = sorted(means, key=lambda key: means[key])
    good = {key for key in order[:kept] if math.isfinite(means[key])}
    for name, job in list(self._jobs.items()):
      if configuration(job.point.flags) not in good:
        del self._jobs[name]
        self._store.set(
          name,
          sweep_store.PRUNED,
          reason=(
            f'not among the best {kept} of {self._count} configurations after '
            f'round {self.rungs[self._rung]}'
          ),
        )

  def next(self) -> Optional[sweep_worker.Job]:
    if not self._queue:
      return None  # Others of this rung may be running still.
    name = self._queue.pop(0)
    self._running.add(name)
    job = self._jobs[name]
    until = self.rungs[self._rung]
    last = until == self._total
    return sweep_worker.Job(
      job.point, job.log, job.divergence_factor, None if last else until
    )

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    name = job.point.name
    self._running.discard(name)
    row = next(r for r in self._store.rows() if r['name'] == name)
    self._rounds[name] = row['rounds']
    if outcome.status in sweep_store.OVER:
      self._jobs.pop(name, None)
    if outcome.reason == 'stopped':
      return  # The sweep is being left.
    if not self._queue and not self._running:
      self._enter()

  def left(self, rounds: Mapping[str, int]) -> int:
    before = self.rungs[self._rung - 1] if self._rung else 0
    total = 0
    for i in range(self._rung, len(self.rungs)):
      count = math.ceil(len(self._jobs) / self._factor ** (i - self._rung))
      total += count * (self.rungs[i] - (self.rungs[i - 1] if i else 0))
    for name in self._jobs:
      total -= max(rounds.get(name, self._rounds[name]) - before, 0)
    return max(total, 0)


def rungs(count: int, total_rounds: int, factor: int) -> list[int]:
  """After which rounds configurations are compared; the last is the end."""
  steps = 0
  while factor ** (steps + 1) <= min(count, total_rounds):
    steps += 1
  return [
    max(1, math.ceil(total_rounds / factor**i)) for i in range(steps, -1, -1)
  ]


class BayesianPlan:
  """Expected improvement under a Gaussian process, over the sweep's points.

  Positive numbers that span a decade count by their logarithm, words by being
  equal or not. A configuration that diverged counts as worse than the worst.
  """

  def __init__(
    self,
    store: sweep_store.Store,
    jobs: Sequence[sweep_worker.Job],
    *,
    rule: selection.Rule,
    trials: int,
    seed: int = 0,
  ):
    """Finds out from the table what was tried already.

    Args:
      store: The sweep's table, open.
      jobs: Those of its points that are not over.
      rule: By which configurations are compared.
      trials: How many configurations to try in all.
      seed: Of the first ones, which nothing is known about.
    """
    self._store = store
    self._rule = rule
    self._trials = trials
    rows = store.rows()
    keys = list(dict.fromkeys(configuration(r['flags']) for r in rows))
    self._places = dict(zip(keys, encode(keys), strict=True))
    self._jobs: dict[_Key, list[sweep_worker.Job]] = {}
    for job in jobs:
      key = configuration(job.point.flags)
      self._jobs.setdefault(key, []).append(job)
    begun = {
      configuration(r['flags'])
      for r in rows
      if r['rounds']
      or r['status'] in (sweep_store.DIVERGED, sweep_store.FAILED)
    }
    # What was begun is carried to its end first.
    self._tried = [key for key in keys if key in begun]
    self._queue = [j for key in self._tried for j in self._jobs.get(key, ())]
    self._running: set[str] = set()
    self._rng = np.random.default_rng(seed)

  def next(self) -> Optional[sweep_worker.Job]:
    if not self._queue:
      free = [k for k in self._places if k not in self._tried]
      if len(self._tried) >= self._trials or not free:
        self._leave_out(free)
        return None
      key = self._choose(free)
      self._tried.append(key)
      self._queue = list(self._jobs[key])
    job = self._queue.pop(0)
    self._running.add(job.point.name)
    return job

  def _leave_out(self, free: Sequence[_Key]) -> None:
    for key in free:
      for job in self._jobs.pop(key, ()):
        self._store.set(
          job.point.name,
          sweep_store.PRUNED,
          reason=f'not among the {self._trials} configurations that were tried',
        )
      self._places.pop(key)

  def _choose(self, free: Sequence[_Key]) -> _Key:
    known = scores(self._rule, self._store.rows())
    tried = [k for k in self._tried if k in known]
    values = np.array([results.mean(known[k]) for k in tried])
    pending = [
      any(j.point.name in self._running for j in self._jobs.get(k, ()))
      for k in tried
    ]
    dimensions = len(next(iter(self._places.values())))
    if np.isfinite(values).sum() < max(3, dimensions + 1):
      return self._farthest(free)
    finite = values[np.isfinite(values)]
    worst = finite.max() + (np.ptp(finite) or 1.0) * 0.5
    # What is running is taken for average, so that it is not chosen again.
    values = np.where(pending, finite.mean(), values)
    values = np.where(np.isfinite(values), values, worst)
    return free[
      best_expected(
        np.array([self._places[k] for k in tried]),
        values,
        np.array([self._places[k] for k in free]),
      )
    ]

  def _farthest(self, free: Sequence[_Key]) -> _Key:
    """A configuration far from all that were tried."""
    if not self._tried:
      return free[int(self._rng.integers(len(free)))]
    places = np.array([self._places[k] for k in free])
    tried = np.array([self._places[k] for k in self._tried])
    distances = np.linalg.norm(places[:, None] - tried[None], axis=-1)
    return free[int(distances.min(axis=1).argmax())]

  def done(self, job: sweep_worker.Job, outcome: sweep_worker.Outcome) -> None:
    del outcome
    self._running.discard(job.point.name)

  def left(self, rounds: Mapping[str, int]) -> int:
    each = max(len(jobs) for jobs in self._jobs.values()) if self._jobs else 1
    waiting = max(self._trials - len(self._tried), 0) * each
    waiting += len(self._queue) + len(self._running)
    totals = [r['settings']['total_rounds'] for r in self._store.rows()]
    return max(waiting * max(totals) - sum(rounds.values()), 0)


def encode(keys: Sequence[_Key]) -> np.ndarray:
  """Configurations as points of a unit cube, a row each."""
  flags = list(dict.fromkeys(name for key in keys for name, _ in key))
  columns = []
  for flag in flags:
    texts = [dict(key).get(flag) for key in keys]
    try:
      values = np.array([np.nan if t is None else float(t) for t in texts])
    except ValueError:
      for word in dict.fromkeys(texts):
        columns.append(np.array([float(t == word) for t in texts]))
      continue
    present = values[np.isfinite(values)]
    if present.min() > 0 and present.max() >= 10 * present.min():
      values = np.log10(values)
    low, high = np.nanmin(values), np.nanmax(values)
    # A flag that a method does not have stands in the middle.
    scaled = (values - low) / (high - low) if high > low else values * 0
    columns.append(np.nan_to_num(scaled, nan=0.5))
  if not columns:
    return np.zeros([len(keys), 1])
  return np.stack(columns, axis=1)


def best_expected(
  places: np.ndarray, values: np.ndarray, candidates: np.ndarray
) -> int:
  """Which candidate is expected to improve most on the lowest value.

  Args:
    places: Where values are known, shape [n, d].
    values: The values, shape [n].
    candidates: Where they might be looked for next, shape [m, d].
  """
  # Takes seconds to import, and a whole grid has no need of it.
  from sklearn import gaussian_process  # pylint: disable=g-import-not-at-top

  kernels = gaussian_process.kernels
  kernel = kernels.ConstantKernel(1.0, (1e-2, 1e2)) * kernels.Matern(
    np.full(places.shape[1], 0.3), (0.05, 5.0), nu=2.5
  ) + kernels.WhiteKernel(1e-3, (1e-6, 1e-1))
  model = gaussian_process.GaussianProcessRegressor(
    kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
  )
  import warnings  # pylint: disable=g-import-not-at-top

  with warnings.catch_warnings():
    # A length scale at its bound is what a flag without influence gives.
    warnings.simplefilter('ignore')
    model.fit(places, values)
    mean, deviation = model.predict(candidates, return_std=True)
  deviation = np.maximum(deviation, 1e-12)
  gain = (values.min() - mean) / deviation
  cumulative = np.array([0.5 * (1 + math.erf(g / 2**0.5)) for g in gain])
  density = np.exp(-0.5 * gain**2) / (2 * math.pi) ** 0.5
  return int(np.argmax(deviation * (gain * cumulative + density)))
