"""The board's pictures, drawn with Altair; as SVG and PDF."""

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt
import numpy as np

from tff_adaptive.lab.board import standings as standings_lib

# Lines that can be told apart; the others are grey.
_COLOURED = 10
# Distance of two methods' points at a budget, and of the first and last budget
# to the frame, in doublings of the budget.
_APART = 0.06
_MARGIN = 0.4
_TAUS = np.geomspace(0.25, 4.0, 97)
_SIZE: Mapping[str, Any] = {'width': 520, 'height': 340}


def draw(standings: standings_lib.Standings) -> dict[str, dict[str, Any]]:
  """Returns all pictures' Vega-Lite specifications, by name."""
  makers: Mapping[str, Callable[..., Any]] = {
    'budgets': _budgets,
    'places': _places,
    'profiles': _profiles,
  }
  drawn = {name: make(standings).to_dict() for name, make in makers.items()}
  for specification in drawn.values():
    del specification['config']  # The theme is that of `drawing`.
  return drawn


def _method(standings: standings_lib.Standings) -> alt.Color:
  """Colours the first methods, and leaves the others grey."""
  names = [standings.printed[name] for name in standings.places]
  palette = [
    '#0072b2', '#d55e00', '#009e73', '#cc79a7', '#e69f00', '#56b4e9',
    '#7a3e9d', '#8c564b', '#17807e', '#b22222',
  ]  # fmt: skip
  colours = palette[: len(names)] + ['#c4c8ce'] * (len(names) - _COLOURED)
  return alt.Color(
    'method:N',
    sort=names,
    scale=alt.Scale(domain=names, range=colours),
    legend=alt.Legend(title=None, values=names[:_COLOURED], symbolOpacity=1),
  )


def _budgets(standings: standings_lib.Standings) -> Any:
  """Score against tuning budget, with intervals of the first methods."""
  coloured = list(standings.places)[:_COLOURED]
  # Side by side, so that intervals do not hide each other.
  beside = {
    name: 2 ** (_APART * (place - (len(coloured) - 1) / 2))
    for place, name in enumerate(coloured)
  }
  rows = []
  for budget, scores in standings.by_budget.items():
    for name, found in scores.items():
      low, high = found.interval
      rows.append(
        {
          'budget': budget * beside.get(name, 1.0),
          'method': standings.printed[name],
          'score': found.total,
          'low': low,
          'high': high,
        }
      )
  first = [standings.printed[name] for name in coloured]
  base = alt.Chart(alt.Data(values=rows)).encode(
    x=alt.X(
      'budget:Q',
      title='trials of tuning',
      scale=alt.Scale(
        type='log',
        base=2,
        domain=[
          min(standings.by_budget) / 2**_MARGIN,
          max(standings.by_budget) * 2**_MARGIN,
        ],
      ),
      axis=alt.Axis(values=list(standings.by_budget), grid=False),
    ),
    color=_method(standings),
  )
  bars = base.transform_filter(
    alt.FieldOneOfPredicate(field='method', oneOf=first)
  ).mark_rule(opacity=0.5)
  return alt.layer(
    bars.encode(y=alt.Y('low:Q', title='score'), y2='high:Q'),
    base.mark_line(point=True).encode(y=alt.Y('score:Q', title='score')),
  ).properties(**_SIZE)


def _places(standings: standings_lib.Standings) -> Any:
  """Scores with intervals, the first method on top."""
  rows: list[dict[str, Any]] = []
  for name, place in standings.places.items():
    scores = standings.by_budget[standings_lib.HEADLINE][name]
    low, high = scores.interval
    rows.append(
      {
        'method': f'{place}. {standings.printed[name]}',
        'score': scores.total,
        'low': low,
        'high': high,
      }
    )
  y = alt.Y('method:N', sort=[row['method'] for row in rows], title=None)
  base = alt.Chart(alt.Data(values=rows)).encode(y=y)
  return alt.layer(
    base.mark_rule(color='#8a919c').encode(
      x=alt.X('low:Q', title='score', scale=alt.Scale(domain=[0, 1])),
      x2='high:Q',
    ),
    base.mark_point(filled=True, color='#0072b2', size=50).encode(x='score:Q'),
  ).properties(width=_SIZE['width'])


def _profiles(standings: standings_lib.Standings) -> Any:
  """The part of targets that is reached within tau times the reference."""
  rows = [
    {'tau': float(tau), 'method': standings.printed[name], 'part': float(part)}
    for name in standings.places
    for tau, part in zip(_TAUS, standings.profile(name, _TAUS), strict=True)
  ]
  return alt.layer(
    alt.Chart(alt.Data(values=rows))
    .mark_line(interpolate='step-after')
    .encode(
      x=alt.X(
        'tau:Q',
        title='cost over that of the best tuned baseline',
        scale=alt.Scale(type='log', base=2, domain=[0.25, 4]),
        axis=alt.Axis(values=[0.25, 0.5, 1, 2, 4]),
      ),
      y=alt.Y('part:Q', title='part of targets reached'),
      color=_method(standings),
    )
  ).properties(**_SIZE)
