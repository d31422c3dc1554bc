"""What the board writes: one page, its tables and its pictures."""

import pathlib
from collections.abc import Mapping
from typing import Any

import altair as alt
import jinja2
import pandas as pd

from tff_adaptive import drawing
from tff_adaptive.lab.board import leaderboard
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting

_TEMPLATE = pathlib.Path(__file__).with_name('page.html')


def write(folder: pathlib.Path, board: leaderboard.Leaderboard) -> str:
  """Writes the page, the main table and the pictures.

  Args:
    folder: Where to.
    board: The leaderboard.

  Returns:
    The main table and where things are, for the terminal.
  """
  main = leaderboard.main_table(board)
  apart = leaderboard.apart_table(board)
  images = {
    name: drawing.images(drawn, ['svg', 'pdf'])
    for name, drawn in draw(board).items()
  }
  contents = {
    'board.html': _render(board, main, apart, images).encode(),
    'board.csv': formatting.csv_table(main).encode(),
    'board.tex': formatting.latex_table(main.map(formatting.latex)).encode(),
    **{
      f'{name}.{form}': image
      for name, of in images.items()
      for form, image in of.items()
    },
  }
  files.make_folder(folder)
  for name, content in contents.items():
    files.write_atomically(folder / name, content)
  tables = [
    [[*table], *table.values.tolist()]
    for table in (main, apart)
    if not table.empty
  ]
  return '\n'.join(
    [
      *(line for t in tables for line in (*formatting.aligned(t, left=1), '')),
      *board.left_out,
      f'page     {folder / "board.html"}',
      f'tables   {folder / "board.csv"}, {folder / "board.tex"}',
    ]
  )


def _render(
  board: leaderboard.Leaderboard,
  main: pd.DataFrame,
  apart: pd.DataFrame,
  images: Mapping[str, Mapping[drawing.Format, bytes]],
) -> str:
  environment = jinja2.Environment(
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.from_string(_TEMPLATE.read_text('utf-8')).render(
    version=workloads_lib.version_of(
      workloads_lib.choose(','.join(board.workloads))
    ),
    profile=workloads_lib.HEADLINE,
    budget=leaderboard.HEADLINE,
    board=board,
    entries={**board.entries, **board.apart},
    agreement=leaderboard.agreement(board),
    main=main,
    apart=apart,
    vectors={name: of['svg'].decode() for name, of in images.items()},
    ahead=leaderboard.ahead_table(board),
    cases=leaderboard.case_table(board),
    workloads=leaderboard.workload_table(board),
    measures=leaderboard.measure_table(board),
  )


# Methods whose score is drawn against the budget: FedAvg and the first ones.
_LINES = 5
_PALETTE = ['#0072b2', '#d55e00', '#009e73', '#cc79a7', '#7a3e9d']
_GREY = '#8a919c'
_SIZE: Mapping[str, Any] = {'width': 520, 'height': 300}
# Distance of two methods' points at a budget, in doublings of the budget.
_APART = 0.06


def draw(board: leaderboard.Leaderboard) -> dict[str, dict[str, Any]]:
  """Returns all pictures' Vega-Lite specifications, by name."""
  if not board.entries:
    return {}  # A picture without points has no size.
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
    'score': found.value,
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
    line = alt.Data(values=[{'score': scores[leaderboard.BASELINE].value}])
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
