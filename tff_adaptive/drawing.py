"""Pictures of Altair's charts, in one theme."""

import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from tff_adaptive.lazy import alt
from tff_adaptive.lazy import vl_convert

Format = Literal['pdf', 'png', 'svg']
FONT_SIZE = 12
# Its lightness increases with the value, so that it prints well in grey.
COLOUR_MAP = 'cividis'
_GREY = '#8a919c'
# Vega's configuration; the report's page replaces colours in the dark.
THEME: dict[str, Any] = {
  'background': '#ffffff',
  # Metrics of this font are vl-convert's own, so that files do not depend on
  # the machine; browsers have one like it.
  'font': 'Liberation Sans, Arial, Helvetica, sans-serif',
  'view': {'stroke': None},
  # Pictures have one description, not one of every point.
  'mark': {'aria': False},
  'concat': {'spacing': 24},
  'axis': {
    'domainColor': _GREY,
    'gridColor': '#e3e6ea',
    'labelColor': '#16191d',
    'labelFontSize': FONT_SIZE,
    'labelSeparation': 8,
    'tickColor': _GREY,
    'titleColor': '#16191d',
    'titleFontSize': FONT_SIZE,
    'titleFontWeight': 'normal',
    'titleLimit': 0,
  },
  'legend': {
    'labelColor': '#16191d',
    'labelFontSize': FONT_SIZE,
    'labelLimit': 0,
    'titleColor': '#16191d',
    'titleFontSize': FONT_SIZE,
    'titleFontWeight': 'normal',
    'titleLimit': 0,
  },
  'text': {'color': '#16191d', 'fontSize': FONT_SIZE},
  'title': {
    'anchor': 'middle',
    'color': '#16191d',
    'fontSize': FONT_SIZE + 1,
    'fontWeight': 'normal',
  },
}


def records(frame: Any) -> list[dict[str, Any]]:
  """Converts a pandas table to rows, in which missing values are `None`.

  Numbers are rounded to visible precision.
  """
  frame = frame.astype(object).where(frame.notna(), None)
  return [
    {
      k: float(f'{v:.6g}') if isinstance(v, float) else v
      for k, v in row.items()
    }
    for row in frame.to_dict('records')
  ]


def table(rows: Sequence[Mapping[str, Any]]) -> 'alt.InlineData':
  """Makes data of rows, as one text, which Altair neither checks nor copies."""
  text = json.dumps(rows, separators=(',', ':'))
  return alt.InlineData(values=text, format=alt.JsonDataFormat(type='json'))


def image(specification: Mapping[str, Any], form: Format) -> bytes:
  """Renders a chart in one format, see `images`."""
  return images(specification, [form])[form]


def images(
  specification: Mapping[str, Any],
  forms: Sequence[Format] = ('pdf', 'png', 'svg'),
) -> dict[Format, bytes]:
  """Renders a chart as PDF, PNG and SVG.

  The same chart has the same bytes, except that entries of a PDF's tables are
  in any order.

  Args:
    specification: What an Altair chart's `to_dict` returns.
    forms: The formats.
  """
  # Lone surrogates, as in names of folders that are no text, cannot be drawn.
  text = json.dumps(specification, ensure_ascii=False)
  text = text.encode('utf-8', 'replace').decode('utf-8')
  svg = vl_convert.vegalite_to_svg(text, config=THEME)
  render: dict[Format, Callable[[str], bytes]] = {
    'pdf': vl_convert.svg_to_pdf,
    'png': _png,
    'svg': str.encode,
  }
  return {form: render[form](svg) for form in forms}


def _png(svg: str) -> bytes:
  """Renders SVG, without the transparency that no pixel has: a quarter."""
  from PIL import Image  # pylint: disable=g-import-not-at-top

  drawn = Image.open(io.BytesIO(vl_convert.svg_to_png(svg, scale=2)))
  buffer = io.BytesIO()
  drawn.convert('RGB').save(buffer, 'png')
  return buffer.getvalue()
