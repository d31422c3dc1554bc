"""The leaderboard: scores of entries, and what they tell apart.

Computes everything that the page shows from entries and references, as numbers
and tables of text. Imports no TensorFlow.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np
import pandas as pd
from scipy import stats

from tff_adaptive.lab.board import entries as entries_lib
from tff_adaptive.lab.board import records as records_lib
from tff_adaptive.lab.board import references as references_lib
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import formatting

# The budget of tuning by which methods are ordered.
HEADLINE = 4
# What others are compared with.
BASELINE = 'fedavg'
# Methods that a case names.
_MOST_NAMED = 5
# Costs that are dear in some cases, by measure.
_DEAR = {'bytes': 'communication is dear', 'gradients': 'computation is dear'}


@dataclasses.dataclass(frozen=True, eq=False)
class Leaderboard:
  """Entries against references.

  Attributes:
    workloads: Those that all of the entries have run.
    entries: Those that can train all workloads, by name, the highest score at
      the headline's budget first.
    apart: The other entries.
    references: The targets.
    left_out: Sentences about entries and workloads that are left out.
  """

  workloads: Sequence[str]
  entries: Mapping[str, entries_lib.Entry]
  apart: Mapping[str, entries_lib.Entry]
  references: references_lib.References
  left_out: Sequence[str]

  def scores(
    self,
    *,
    budget: int = HEADLINE,
    measure: str = workloads_lib.HEADLINE,
    workloads: Sequence[str] = (),
  ) -> dict[str, scoring.Scores]:
    """Scores the entries of `entries`, in their order.

    Args:
      budget: Of tuning, 0 for the methods' defaults; entries without results
        for it are left out.
      measure: Of cost.
      workloads: All unless given.
    """
    return self._scores(budget, measure, tuple(workloads or self.workloads))

  # Several tables need them, as long as the program runs.
  @functools.cache  # noqa: B019
  def _scores(
    self, budget: int, measure: str, workloads: tuple[str, ...]
  ) -> dict[str, scoring.Scores]:
    references = {w: self.references.of(w, measure) for w in workloads}
    return {
      name: scoring.scores_of(
        {w: entry.tuned(w, budget, measure) for w in workloads}, references
      )
      for name, entry in self.entries.items()
      if budget in (0, *entry.protocol.budgets)
    }

  @functools.cached_property
  def ahead(self) -> Mapping[str, Sequence[str]]:
    """The methods that each is significantly ahead of, by name."""
    scores = self.scores()
    return {
      name: [
        o for o, d in scoring.apart_from(name, scores).items() if d.value < 0
      ]
      for name in scores
    }

  def diverged(self, name: str) -> float:
    """Returns how often what tuning selects diverges on a fresh seed."""
    entry = self.entries[name]
    per_workload = [
      sum(
        share
        * float(np.mean([r.status != 'finished' for r in entry.repeats(w, t)]))
        for t, share in entry.shares(w, HEADLINE).items()
      )
      for w in self.workloads
    ]
    return float(np.mean(per_workload))

  def printed(self, name: str) -> str:
    """Returns an entry's name as papers print it."""
    entry = self.entries.get(name) or self.apart[name]
    method = entry.submission.method
    return name.replace(method, formatting.method(method))


def build(
  entries: Sequence[entries_lib.Entry],
  references: references_lib.References,
  names: Sequence[str],
) -> Leaderboard:
  """Orders entries by their scores on some workloads.

  Args:
    entries: Those without runs on one of the workloads, or without results for
      the headline's budget, are left out.
    references: The targets.
    names: The workloads; those without targets are left out.

  Raises:
    SettingsError: If there are no targets for any.
  """
  workloads = references.known(names)
  tuned = [e for e in entries if HEADLINE in e.protocol.budgets]
  complete = {
    entry.name: entry for entry in tuned if {*workloads} <= {*entry.records}
  }
  left_out = [
    f'{entry.name} has no runs on '
    f'{", ".join(w for w in workloads if w not in entry.records)}.'
    for entry in tuned
    if entry.name not in complete
  ]
  left_out += [
    f'{e.name} has no results of {HEADLINE} trials.'
    for e in entries
    if HEADLINE not in e.protocol.budgets
  ]
  left_out += [
    f'There are no targets for {n} yet.' for n in names if n not in workloads
  ]
  able = {
    name: entry
    for name, entry in complete.items()
    if len(_trained(entry, workloads)) == len(workloads)
  }
  apart = {name: e for name, e in complete.items() if name not in able}
  unordered = Leaderboard(workloads, able, apart, references, left_out)
  scores = unordered.scores()
  ordered = sorted(able, key=lambda name: -scores[name].value)
  return dataclasses.replace(
    unordered, entries={name: able[name] for name in ordered}
  )


def _trained(entry: entries_lib.Entry, workloads: Sequence[str]) -> list[str]:
  """Returns the workloads that a method can train."""
  return [
    w for w in workloads if any(r.began for r in entry.records[w].values())
  ]


def main_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates scores, and what the evidence separates."""
  scores, untuned = board.scores(), board.scores(budget=0)
  behind = next(iter(board.ahead.values()), [])  # Of the first.
  rows = []
  for name, found in scores.items():
    low, high = found.interval
    over = ['', '', '']
    if BASELINE in scores and name != BASELINE:
      d = scoring.difference(found, scores[BASELINE])
      over = [f'{value:.3f}' for value in (d.value, *d.interval)]
    rows.append(
      [
        board.printed(name),
        f'{found.value:.3f}',
        f'{low:.3f}',
        f'{high:.3f}',
        f'{scoring.cost_factor(found.value):.2f}',
        *over,
        'yes' if name in behind else '',
        f'{len(board.ahead[name])}',
        f'{100 * board.diverged(name):.0f} %',
        f'{untuned[name].value:.3f}',
      ]
    )
  head = [
    'method', 'score', 'low', 'high', 'cost', 'over FedAvg', 'from', 'to',
    'behind the first', 'ahead of', 'diverged', 'untuned',
  ]  # fmt: skip
  return pd.DataFrame(rows, columns=head)


def ahead_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates which methods each is significantly ahead of."""
  rows = [
    [board.printed(name), ', '.join(map(board.printed, behind))]
    for name, behind in board.ahead.items()
    if behind
  ]
  return pd.DataFrame(rows, columns=['method', 'ahead of'])


def apart_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates entries that cannot train all workloads, the ablest first."""
  trained = {n: _trained(e, board.workloads) for n, e in board.apart.items()}
  rows = [
    [
      board.printed(name),
      f'{len(able)} of {len(board.workloads)}',
      ', '.join(w for w in board.workloads if w not in able),
    ]
    for name, able in sorted(trained.items(), key=lambda i: -len(i[1]))
  ]
  return pd.DataFrame(rows, columns=['method', 'can train', 'cannot train'])


def case_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates by case the methods that are ahead of FedAvg.

  A case is what somebody may know beforehand of a problem. A method is ahead,
  if its difference is significant after Holm's correction for all methods of
  the case. Its factor says how many times less it costs.
  """
  traits = {w: workloads_lib.choose(w)[0].traits for w in board.workloads}
  cases = [
    (said, workloads_lib.HEADLINE, tuple(w for w in traits if t in traits[w]))
    for t, said in workloads_lib.TRAITS.items()
  ]
  cases += [(said, measure, tuple(traits)) for measure, said in _DEAR.items()]
  rows = []
  for described, measure, workloads in cases:
    if not workloads:
      continue
    scores = board.scores(measure=measure, workloads=workloads)
    found: list[tuple[str, scoring.Estimate]] = []
    if BASELINE in scores:
      found = [
        (name, d)
        for name, d in scoring.apart_from(BASELINE, scores).items()
        if d.value > 0
      ]
      found.sort(key=lambda item: -item[1].value)
    cells = []
    for name, d in found[:_MOST_NAMED]:
      value, low, high = map(_saved, (d.value, *d.interval))
      cells.append(f'{board.printed(name)} {value} ({low} to {high})')
    if more := len(found) - len(cells):
      cells.append(f'and {more} more')
    of = ', '.join(workloads) if len(workloads) < len(traits) else 'all'
    rows.append([described, of, '; '.join(cells) or 'none'])
  head = ['what is known', 'workloads', 'ahead of FedAvg']
  return pd.DataFrame(rows, columns=head)


def _saved(difference: float) -> str:
  factor = scoring.cost_factor(0.0) / scoring.cost_factor(difference)
  return f'{factor:.2f}'


def workload_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates every method's score on every workload."""
  rows = [
    [board.printed(n), *(f'{s.by_workload[w]:.2f}' for w in board.workloads)]
    for n, s in board.scores().items()
  ]
  return pd.DataFrame(rows, columns=['method', *board.workloads])


def measure_table(board: Leaderboard) -> pd.DataFrame:
  """Tabulates scores by each measure of cost."""
  by = {m: board.scores(measure=m) for m in records_lib.MEASURES}
  rows = [
    [board.printed(name), *(f'{s[name].value:.3f}' for s in by.values())]
    for name in board.scores()
  ]
  return pd.DataFrame(rows, columns=['method', *by])


def agreement(board: Leaderboard) -> Optional[tuple[float, float, float]]:
  """Computes how far ranks on the ten and on federated workloads agree.

  Returns:
    Spearman's correlation of scores at the headline's budget, and the ends of a
    95 % interval of it, by a bootstrap over workloads and seeds; `None` with
    fewer than three entries, or without workloads of both groups.
  """
  parts = [
    tuple(
      w.name for w in workloads_lib.GROUPS[group] if w.name in board.workloads
    )
    for group in ('ten', 'federated')
  ]
  if not all(parts) or len(board.entries) < 3:
    return None
  # Of each group, scores and their bootstrap draws: [methods, 1 + draws].
  groups = [
    np.array(
      [
        [s.value, *s.draws[:1000]]
        for s in board.scores(workloads=part).values()
      ]
    )
    for part in parts
  ]
  correlation, *draws = (
    float(stats.spearmanr(*pair).statistic)
    for pair in zip(*(scores.T for scores in groups), strict=True)
  )
  low, high = np.nanpercentile(draws, [2.5, 97.5])
  return correlation, float(low), float(high)
