"""The HTML of a report.

The page is a single file that opens from disk: figures are inside it, there is
no script, and a policy in its head forbids the browser to load anything. Texts
are escaped here, unless an argument is said to be HTML.
"""

import base64
import html
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #111; background: #fff;
  max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { margin-top: 2.5rem; border-bottom: 1px solid
  #999; } h3 { margin-bottom: .3rem; }
.row { display: flex; flex-wrap: wrap; gap: 0 1rem; }
figure { margin: 0 0 1.5rem; } img { max-width: 100%; height: auto; }
figcaption, .note { color: #444; font-size: .9rem; max-width: 46rem; }
.row figcaption { max-width: 32rem; } table { font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .5rem; text-align: right; border-bottom: 1px solid
  #ddd; white-space: nowrap; } th { border-bottom: 2px solid #444;
  white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child, th:last-child, td.words { text-align: left; }
td.words { white-space: normal; font-size: .85rem; min-width: 16rem; }
.best { font-weight: 700; } code { font-size: .9em; }
"""
EMPTY_CELL = '<td>&ndash;</td>'


def escape(value: Any) -> str:
  """A value as text in HTML."""
  return html.escape(str(value), quote=True)


def words(flags: Mapping[str, Any]) -> str:
  """Flags and their values in a line of text."""
  return ', '.join(f'{name}={value}' for name, value in flags.items())


def heading(level: int, text: str) -> str:
  return f'<h{level}>{escape(text)}</h{level}>'


def note(text: str, *, code: bool = False) -> str:
  """A paragraph beside the point; `code` sets it as flags are."""
  return f'<p class="note">{_set(text, code)}</p>'


def _set(text: Any, code: bool) -> str:
  return f'<code>{escape(text)}</code>' if code else escape(text)


def cell(
  text: Any, *, best: bool = False, words: bool = False, code: bool = False
) -> str:
  """A cell of a table.

  Args:
    text: What it says.
    best: Whether it is the best of its column.
    words: Whether it may be long, and break.
    code: Whether it is set as flags are.
  """
  kind = ' class="best"' if best else ' class="words"' if words else ''
  return f'<td{kind}>{_set(text, code)}</td>'


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
  """A table that scrolls where it is too wide.

  Args:
    head: Headings of the columns.
    rows: The cells, in HTML.
  """
  lines = ['<div class="scroll"><table>', '<thead><tr>']
  lines += [f'<th scope="col">{escape(h)}</th>' for h in head]
  lines.append('</tr></thead><tbody>')
  lines += ['<tr>' + '\n'.join(cells) + '</tr>' for cells in rows]
  lines.append('</tbody></table></div>')
  return '\n'.join(lines)


def items(texts: Iterable[str]) -> list[str]:
  """A list of texts."""
  return ['<ul>', *(f'<li>{escape(t)}</li>' for t in texts), '</ul>']


def picture(svg: bytes, caption: str) -> str:
  """An SVG image with its caption, which also stands for it."""
  data = base64.b64encode(svg).decode('ascii')
  return (
    f'<figure><img alt="{escape(caption)}" '
    f'src="data:image/svg+xml;base64,{data}">'
    f'<figcaption>{escape(caption)}</figcaption></figure>'
  )


def side_by_side(parts: Iterable[str]) -> list[str]:
  """Parts of the page, in HTML, in a row."""
  return ['<div class="row">', *parts, '</div>']


def page(title: str, body: Iterable[str]) -> str:
  """The page, its body in HTML."""
  return '\n'.join(
    [
      '<!DOCTYPE html>',
      '<html lang="en"><head><meta charset="utf-8">',
      '<meta http-equiv="Content-Security-Policy" content="default-src '
      "'none'; img-src data:; style-src 'unsafe-inline'\">",
      '<meta name="viewport" content="width=device-width, initial-scale=1">',
      f'<title>{escape(title)}</title>',
      f'<style>{_STYLE}</style></head><body>',
      *body,
      '</body></html>',
      '',
    ]
  )
