"""The standing of entries: scores, places, factors and neighbours.

Computes everything that the page shows from entries and references, as numbers
and tables of text. Imports no TensorFlow.
"""

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Optional

import numpy as np
from scipy import stats

from tff_adaptive.lab.board import curves
from tff_adaptive.lab.board import entries as entries_lib
from tff_adaptive.lab.board import references as references_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import printed_names

# The budget of tuning by which methods are placed.
HEADLINE = 4
# Bootstrap draws of figures that no place depends on.
_FEW_DRAWS = 1000
_NEIGHBOURS = 3


@dataclasses.dataclass(frozen=True)
class Table:
  """A table of text.

  Attributes:
    head: Headings of columns.
    rows: Cells.
  """

  head: Sequence[str]
  rows: Sequence[Sequence[str]]


@dataclasses.dataclass(frozen=True)
class Standings:
  """Entries against references.

  Attributes:
    workloads: Those that all of the entries have run.
    entries: By name.
    printed: Names as papers print them, by name.
    by_budget: Scores by budget of tuning and name.
    by_measure: Scores at the headline's budget by measure of cost and name.
    untuned: Scores of the defaults by name.
    places: Place of each name, the first first.
    left_out: Sentences about entries without runs on some workloads.
    missed: Targets that no baseline reaches, by workload.
    references: By workload, at the headline's cost.
  """

  workloads: Sequence[str]
  entries: Mapping[str, entries_lib.Entry]
  printed: Mapping[str, str]
  by_budget: Mapping[int, Mapping[str, scoring.Scores]]
  by_measure: Mapping[str, Mapping[str, scoring.Scores]]
  untuned: Mapping[str, scoring.Scores]
  places: Mapping[str, int]
  left_out: Sequence[str]
  missed: Mapping[str, Sequence[float]]
  references: Mapping[str, scoring.Reference]

  def ratios(self, name: str, workload: str) -> list[tuple[float, np.ndarray]]:
    """Returns, by tuned setting, its share and t / t_ref of each target."""
    if (name, workload) not in self._ratios:
      self._ratios[name, workload] = self._find_ratios(name, workload)
    return self._ratios[name, workload]

  @functools.cached_property
  def _ratios(self) -> dict[Any, list[tuple[float, np.ndarray]]]:
    """Ratios that were computed before, as several tables need them."""
    return {}

  def _find_ratios(
    self, name: str, workload: str
  ) -> list[tuple[float, np.ndarray]]:
    reference = self.references[workload]
    return [
      (
        setting.share,
        np.array(
          [scoring.expected_cost(setting.curves, t) for t in reference.targets]
        )
        / reference.costs,
      )
      for setting in self.entries[name].tuned(
        workload, HEADLINE, workloads_lib.HEADLINE
      )
    ]

  def profile(self, name: str, taus: np.ndarray) -> np.ndarray:
    """Returns the part of targets reached within tau times t_ref, [taus]."""
    return np.mean(
      [
        sum(
          share * np.mean(ratios <= taus[:, np.newaxis], axis=1)
          for share, ratios in self.ratios(name, workload)
        )
        for workload in self.workloads
      ],
      axis=0,
    )

  def speed(self, name: str, workloads: Sequence[str]) -> float:
    """Returns the geometric mean of t_ref / t over targets that are hit."""
    logs, weights = [0.0], [0.0]
    for workload in workloads:
      for share, ratios in self.ratios(name, workload):
        hit = np.isfinite(ratios)
        logs += [*-np.log(ratios[hit])]
        weights += [share] * int(hit.sum())
    total = sum(weights)
    return math.exp(np.dot(logs, weights) / total) if total else math.nan

  def missed_targets(self, name: str) -> tuple[float, int]:
    """Returns how many targets are missed, in the mean over what tuning
    selects, and how many there are."""
    missed = [
      share * np.sum(np.isinf(ratios))
      for workload in self.workloads
      for share, ratios in self.ratios(name, workload)
    ]
    return sum(missed), sum(len(r.costs) for r in self.references.values())

  def diverged(self, name: str) -> tuple[int, int]:
    """Returns how many of an entry's runs diverged or failed, and how many
    there are, without those of workloads that the method cannot train."""
    ends = [
      record.status
      for workload in self.workloads
      for record in self.entries[name].records[workload].values()
      if record.began
    ]
    return sum(end != 'finished' for end in ends), len(ends)

  def neighbours(self, name: str) -> list[tuple[str, float]]:
    """Returns the entries whose scores by workload are most alike.

    Returns:
      Names and root mean square differences of scores, the nearest first.
    """
    scores = self.by_budget[HEADLINE]

    def vector(of: str) -> np.ndarray:
      return np.array([scores[of].by_workload[w] for w in self.workloads])

    apart = {
      other: float(np.sqrt(np.mean((vector(name) - vector(other)) ** 2)))
      for other in self.places
      if other != name
    }
    return sorted(apart.items(), key=lambda item: item[1])[:_NEIGHBOURS]


def of_entries(
  entries: Sequence[entries_lib.Entry],
  references: references_lib.References,
  names: Sequence[str],
) -> Standings:
  """Scores entries on some workloads.

  Args:
    entries: Those without runs on one of the workloads are left out.
    references: The targets.
    names: The workloads; those without targets are left out.

  Raises:
    SettingsError: If there are no targets for any.
  """
  headline = references.by_measure[workloads_lib.HEADLINE]
  workloads = references_lib.check_known(references, names)
  complete = {
    entry.name: entry for entry in entries if {*workloads} <= {*entry.records}
  }
  left_out = [
    f'{entry.name} has no runs on '
    f'{", ".join(w for w in workloads if w not in entry.records)}.'
    for entry in entries
    if entry.name not in complete
  ]
  left_out += [
    f'There are no targets for {n} yet.' for n in names if n not in workloads
  ]

  def scores(budget: int, measure: str, **more: int) -> dict:
    known = references.by_measure[measure]
    return {
      name: scoring.scores_of(
        {w: entry.tuned(w, budget, measure) for w in workloads},
        {w: known[w] for w in workloads},
        **more,
      )
      for name, entry in complete.items()
      if budget in entry.protocol.budgets
    }

  budgets = sorted({b for e in complete.values() for b in e.protocol.budgets})
  by_budget = {
    budget: scores(
      budget,
      workloads_lib.HEADLINE,
      **({} if budget == HEADLINE else {'draws': _FEW_DRAWS}),
    )
    for budget in budgets
  }
  return Standings(
    workloads=workloads,
    entries=complete,
    printed=_printed(complete),
    by_budget=by_budget,
    by_measure={
      measure: scores(HEADLINE, measure, draws=_FEW_DRAWS)
      for measure in curves.MEASURES
    },
    untuned={
      name: scoring.scores_of(
        {w: entry.untuned(w, workloads_lib.HEADLINE) for w in workloads},
        {w: headline[w] for w in workloads},
        draws=_FEW_DRAWS,
      )
      for name, entry in complete.items()
      if entry.protocol.untuned
    },
    places=scoring.places(by_budget[HEADLINE]),
    left_out=left_out,
    missed={w: references.missed[w] for w in workloads if references.missed[w]},
    references={w: headline[w] for w in workloads},
  )


def _printed(entries: Mapping[str, entries_lib.Entry]) -> dict[str, str]:
  return {
    name: name.replace(
      entry.contestant.method, printed_names.method(entry.contestant.method)
    )
    for name, entry in entries.items()
  }


@dataclasses.dataclass(frozen=True)
class Agreement:
  """How far ranks on core and federated workloads agree.

  Attributes:
    correlation: Spearman's, of scores at the headline's budget.
    interval: A 95 % interval of it, by a bootstrap over workloads and seeds.
    methods: How many are ranked.
  """

  correlation: float
  interval: tuple[float, float]
  methods: int


def agreement(standings: Standings) -> Optional[Agreement]:
  """Computes how far ranks on core and federated workloads agree.

  Returns:
    The agreement; `None` with fewer than three entries, or without workloads of
    both groups.
  """
  parts = [
    [
      w.name
      for w in workloads_lib.GROUPS[group]
      if w.name in standings.workloads
    ]
    for group in ('core', 'federated')
  ]
  entries = [standings.entries[name] for name in standings.by_budget[HEADLINE]]
  if not all(parts) or len(entries) < 3:
    return None
  # Of each group, scores and their bootstrap draws: [methods, 1 + draws].
  groups = []
  for part in parts:
    scores = [
      scoring.scores_of(
        {w: entry.tuned(w, HEADLINE, workloads_lib.HEADLINE) for w in part},
        {w: standings.references[w] for w in part},
        draws=_FEW_DRAWS,
      )
      for entry in entries
    ]
    groups.append(np.array([[s.total, *s.draws] for s in scores]))
  correlation, *draws = (
    float(stats.spearmanr(*pair).statistic)
    for pair in zip(*(scores.T for scores in groups), strict=True)
  )
  low, high = np.nanpercentile(draws, [2.5, 97.5])
  return Agreement(correlation, (float(low), float(high)), len(entries))


def main_table(standings: Standings) -> Table:
  """Tabulates places, scores with intervals, speed, misses and divergences."""
  rows = []
  for name, place in standings.places.items():
    scores = standings.by_budget[HEADLINE][name]
    low, high = scores.interval
    diverged, runs = standings.diverged(name)
    missed, targets = standings.missed_targets(name)
    rows.append(
      [
        f'{place}',
        standings.printed[name],
        f'{scores.total:.3f}',
        f'{low:.3f}',
        f'{high:.3f}',
        _number(standings.speed(name, standings.workloads)),
        f'{missed:.1f} of {targets}',
        f'{diverged} of {runs}',
      ]
    )
  head = (
    'place', 'method', 'score', 'low', 'high', 'speed', 'misses', 'diverged',
  )  # fmt: skip
  return Table(head, rows)


def workload_table(standings: Standings) -> Table:
  """Tabulates who wins where: scores by workload, and the two best."""
  scores = standings.by_budget[HEADLINE]
  rows = []
  for workload in standings.workloads:
    ranked = sorted(scores, key=lambda n: -scores[n].by_workload[workload])
    cells = [workload]
    for name in ranked[:2]:
      cells += [
        standings.printed[name],
        f'{scores[name].by_workload[workload]:.3f}',
        _number(standings.speed(name, [workload])),
      ]
    rows.append(cells + [''] * (7 - len(cells)))
  head = (
    'workload', 'best', 'score', 'speed', 'second', 'score', 'speed',
  )  # fmt: skip
  return Table(head, rows)


def detail_table(standings: Standings) -> Table:
  """Tabulates every method's score on every workload."""
  scores = standings.by_budget[HEADLINE]
  return Table(
    ('method', *standings.workloads),
    [
      [
        standings.printed[name],
        *(f'{scores[name].by_workload[w]:.2f}' for w in standings.workloads),
      ]
      for name in standings.places
    ],
  )


def untuned_table(standings: Standings) -> Table:
  """Tabulates the defaults beside the tuned scores."""
  tuned = standings.by_budget[HEADLINE]
  ranked = sorted(standings.untuned.items(), key=lambda item: -item[1].total)
  rows = []
  for name, scores in ranked:
    low, high = scores.interval
    rows.append(
      [
        standings.printed[name],
        f'{scores.total:.3f}',
        f'{low:.3f}',
        f'{high:.3f}',
        f'{tuned[name].total:.3f}' if name in tuned else '',
      ]
    )
  head = ('method', 'score', 'low', 'high', f'tuned, k = {HEADLINE}')
  return Table(head, rows)


def measure_table(standings: Standings) -> Table:
  """Tabulates scores by each measure of cost."""
  return Table(
    ('method', *curves.MEASURES),
    [
      [
        standings.printed[name],
        *(f'{by[name].total:.3f}' for by in standings.by_measure.values()),
      ]
      for name in standings.places
    ],
  )


def neighbour_table(standings: Standings) -> Table:
  """Tabulates each entry's nearest neighbours."""
  return Table(
    ('method', *(f'neighbour {i + 1}' for i in range(_NEIGHBOURS))),
    [
      [
        standings.printed[name],
        *(
          f'{standings.printed[other]} ({apart:.2f})'
          for other, apart in standings.neighbours(name)
        ),
      ]
      for name in standings.places
    ],
  )


def _number(value: float) -> str:
  return '' if math.isnan(value) else f'{value:.2f}'
