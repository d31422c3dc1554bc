"""The board's pictures, drawn with Altair; as SVG and PDF."""

from collections.abc import Mapping
from typing import Any

import altair as alt

from tff_adaptive.lab.board import leaderboard

# Methods whose score is drawn against the budget: FedAvg and the first ones.
_LINES = 5
_PALETTE = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#7a3e9d']
_GREY = '#8a919c'
_SIZE: Mapping[str, Any] = {'width': 520, 'height': 300}
# Distance of two methods' points at a budget, in doublings of the budget.
_APART = 0.06


def draw(board: leaderboard.Leaderboard) -> dict[str, dict[str, Any]]:
  """Returns all pictures' Vega-Lite specifications, by name."""
  drawn = {
    'scores': _scores(board).to_dict(),
    'budgets': _budgets(board).to_dict(),
  }
  for specification in drawn.values():
    del specification['config']  # The theme is that of `drawing`.
  return drawn


def _row(
  board: leaderboard.Leaderboard, name: str, found: Any
) -> dict[str, Any]:
  low, high = found.interval
  return {
    'method': board.printed(name),
    'score': found.total,
    'low': low,
    'high': high,
  }


def _scores(board: leaderboard.Leaderboard) -> Any:
  """Scores with intervals, the highest on top, and FedAvg's as a line."""
  scores = board.scores()
  rows = [_row(board, name, found) for name, found in scores.items()]
  y = alt.Y('method:N', sort=[row['method'] for row in rows], title=None)
  base = alt.Chart(alt.Data(values=rows)).encode(y=y)
  layers = [
    base.mark_rule(color=_GREY).encode(
      x=alt.X('low:Q', title='score; the dashed line is that of FedAvg'),
      x2='high:Q',
    ),
    base.mark_point(filled=True, color=_PALETTE[0], size=50).encode(
      x='score:Q'
    ),
  ]
  if leaderboard.BASELINE in scores:
    line = alt.Data(values=[{'score': scores[leaderboard.BASELINE].total}])
    layers.insert(
      0,
      alt.Chart(line)
      .mark_rule(color=_PALETTE[1], strokeDash=[4, 3])
      .encode(x='score:Q'),
    )
  return alt.layer(*layers).properties(width=_SIZE['width'])


def _budgets(board: leaderboard.Leaderboard) -> Any:
  """Score against tuning budget, with intervals."""
  names = list(board.entries)
  shown = [n for n in names if n == leaderboard.BASELINE]
  shown += [n for n in names if n not in shown][: _LINES - len(shown)]
  shown.sort(key=names.index)
  budgets = sorted(
    {b for n in shown for b in board.entries[n].protocol.budgets}
  )
  rows = []
  for budget in budgets:
    scores = board.scores(budget=budget)
    for place, name in enumerate(n for n in shown if n in scores):
      # Side by side, so that intervals do not hide each other.
      beside = 2 ** (_APART * (place - (len(shown) - 1) / 2))
      rows.append(_row(board, name, scores[name]) | {'budget': budget * beside})
  printed = [board.printed(name) for name in shown]
  base = alt.Chart(alt.Data(values=rows)).encode(
    x=alt.X(
      'budget:Q',
      title='trials of tuning',
      scale=alt.Scale(type='log', base=2, nice=False, padding=20),
      axis=alt.Axis(values=budgets, grid=False),
    ),
    color=alt.Color(
      'method:N',
      sort=printed,
      scale=alt.Scale(domain=printed, range=_PALETTE[: len(printed)]),
      legend=alt.Legend(title=None),
    ),
  )
  return alt.layer(
    base.mark_rule(opacity=0.5).encode(
      y=alt.Y('low:Q', title='score'), y2='high:Q'
    ),
    base.mark_line(point=True).encode(y=alt.Y('score:Q', title='score')),
  ).properties(**_SIZE)
