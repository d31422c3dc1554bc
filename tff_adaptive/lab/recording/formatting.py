"""Formatting of numbers, times and tables."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Optional

from tff_adaptive import optimizers
from tff_adaptive.algorithms import methods as table
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lazy import pandas as pd

# Units of time: seconds, name, and the smallest axis end that uses the unit.
_UNITS = (
  (1.0, 'seconds', 0.0),
  (60.0, 'minutes', 300.0),
  (3600.0, 'hours', 2e4),
)

# Text that spreadsheets take for a formula; numbers are excepted.
_FORMULA = re.compile(r"'*[=+\-@\t\r](?![\d.]*(e[+\-]?\d+)?$)")
_LATEX = str.maketrans(
  {
    '\\': r'\textbackslash{}',
    '{': r'\{',
    '}': r'\}',
    '%': r'\%',
    '&': r'\&',
    '#': r'\#',
    '$': r'\$',
    '_': r'\_',
    '~': r'\textasciitilde{}',
    '^': r'\textasciicircum{}',
    '\N{EN DASH}': '--',
    '\N{GREEK CAPITAL LETTER DELTA}': r'$\Delta$',
    '\N{SUPERSCRIPT TWO}': r'$^2$',
  }
)


def time_unit(longest: float) -> tuple[float, str]:
  """Chooses the unit of a time axis.

  Args:
    longest: The end of the axis, in seconds.

  Returns:
    The unit's length in seconds, and its name.
  """
  return [(s, name) for s, name, least in _UNITS if longest >= least][-1]


def duration(seconds: float) -> str:
  """Formats a duration: '42 s', '3 min 20 s', '2 h 05 min'."""
  seconds = round(seconds)
  if seconds < 100:
    return f'{seconds} s'
  minutes, rest = divmod(seconds, 60)
  if minutes < 100:
    return f'{minutes} min {rest:02d} s'
  hours, minutes = divmod(minutes, 60)
  return f'{hours} h {minutes:02d} min'


def number(value: float) -> str:
  """Formats a number with four significant digits, or as an integer."""
  if 9999.5 <= abs(value) < 1e9:
    return f'{value:,.0f}'
  return f'{value:.4g}'


def fixed(value: float, decimals: int) -> str:
  """Formats a number with a fixed number of decimals, or large ones in e."""
  return f'{value:.3e}' if abs(value) >= 1e7 else f'{value:,.{decimals}f}'


def printable(text: str) -> str:
  """Escapes lone surrogates, as in folder names that are not valid text."""
  return text.encode('utf-8', 'backslashreplace').decode('utf-8')


def latex(text: str) -> str:
  """Escapes text for LaTeX; line breaks become spaces."""
  return ' '.join(printable(text).split()).translate(_LATEX)


def latex_table(table: pd.DataFrame) -> str:
  """Formats a table of LaTeX text, which needs \\usepackage{booktabs}."""
  form = 'l' + 'r' * (table.shape[1] - 1)
  text: str = table.to_latex(index=False, column_format=form, escape=False)
  return f'% \\usepackage{{booktabs}}\n{text}'


def csv_table(table: pd.DataFrame) -> str:
  """Formats a table as CSV, its text as `spreadsheet_cell` has it."""
  cells = table.map(lambda v: spreadsheet_cell(v) if isinstance(v, str) else v)
  text: str = cells.to_csv(index=False, lineterminator='\n')
  return text


def spreadsheet_cell(text: str) -> str:
  """Escapes text that a spreadsheet would take for a formula.

  A word that begins with = + - @ gets an apostrophe before it; numbers are
  kept. `spreadsheet_text` reverses it.
  """
  return f"'{text}" if _FORMULA.match(text) else text


def spreadsheet_text(cell: str) -> str:
  """Returns the text of a cell that `spreadsheet_cell` escaped."""
  plain = cell[1:]
  return plain if cell[:1] == "'" and _FORMULA.match(plain) else cell


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
  """Formats a table as lines.

  Args:
    rows: Cells, equally many in every row.
    left: Number of left-aligned columns; the others are right-aligned.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(
      cell.ljust(width) if i < left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  ]


def method(name: str) -> str:
  """Returns the printed name of a method, such as 'FedAdam + \u0394-SGD'.

  Args:
    name: A name as returned by `report.runs.method_of`; unknown names are
      returned unchanged.
  """
  rest, _, server = name.partition(' / ')
  base, _, client = rest.partition(' + ')
  row = table.table().get(base)
  text = base if row is None else row.printed or base
  if client:
    text += f' + {_optimizer(client)}'
  if server:
    text += f' / {_optimizer(server)}'
  return text


def _optimizer(name: str) -> str:
  """Returns the printed name of an optimizer, the same on both sides."""
  rows = (optimizers.TABLES[side].get(name) for side in optimizers.SIDES)
  return next((row.printed for row in rows if row and row.printed), name)


def methods(names: Collection[str]) -> dict[str, str]:
  """Returns printed names of methods, without duplicates."""
  printed = {name: method(name) for name in names}
  taken = list(printed.values())
  return {n: p if taken.count(p) == 1 else n for n, p in printed.items()}


def heading(words: str, metric: Optional[str]) -> str:
  """Formats words as a heading, such as 'Test accuracy (%)'.

  Args:
    words: The words, such as 'test accuracy'.
    metric: The metric that they describe, if any.
  """
  text = words[:1].upper() + words[1:]
  share = metric is not None and metric_names.is_share(metric)
  return f'{text} (%)' if share else text
