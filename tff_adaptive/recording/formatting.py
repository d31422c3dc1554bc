"""Numbers, times and tables as text for people."""

from collections.abc import Sequence


def duration(seconds: float) -> str:
  """Formats a time: '42 s', '3 min 20 s', '2 h 05 min'."""
  seconds = round(seconds)
  if seconds < 100:
    return f'{seconds} s'
  minutes, rest = divmod(seconds, 60)
  if minutes < 100:
    return f'{minutes} min {rest:02d} s'
  hours, minutes = divmod(minutes, 60)
  return f'{hours} h {minutes:02d} min'


def number(value: float) -> str:
  """Formats a number with four significant digits."""
  return f'{value:.4g}'


def printable(text: str) -> str:
  """Escapes lone surrogates, as in names of folders that are no text."""
  return text.encode('utf-8', 'backslashreplace').decode('utf-8')


def aligned(rows: Sequence[Sequence[str]], left: int) -> list[str]:
  """Formats a table as lines.

  Args:
    rows: Cells; as many in every row.
    left: Columns that are set flush left; those after them flush right.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return [
    '  '.join(
      cell.ljust(width) if i < left else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(row, widths, strict=True))
    ).rstrip()
    for row in rows
  ]
