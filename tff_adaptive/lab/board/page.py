"""What the board writes: one page, its tables and its pictures."""

import csv
import io
import pathlib
from collections.abc import Mapping

import jinja2

from tff_adaptive import drawing
from tff_adaptive.lab.board import leaderboard
from tff_adaptive.lab.board import pictures
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
    for name, drawn in pictures.draw(board).items()
  }
  contents = {
    'board.html': _render(board, main, apart, images).encode(),
    'board.csv': as_csv(main).encode(),
    'board.tex': as_latex(main).encode(),
    **{
      f'{name}.{form}': image
      for name, of in images.items()
      for form, image in of.items()
    },
  }
  files.make_folder(folder)
  for name, content in contents.items():
    files.write_atomically(folder / name, content)
  tables = [[main.head, *main.rows]]
  tables += [[apart.head, *apart.rows]] if apart.rows else []
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
  main: leaderboard.Table,
  apart: leaderboard.Table,
  images: Mapping[str, Mapping[drawing.Format, bytes]],
) -> str:
  environment = jinja2.Environment(
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
  )
  return environment.from_string(_TEMPLATE.read_text('utf-8')).render(
    version=workloads_lib.VERSION,
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


def as_csv(table: leaderboard.Table) -> str:
  """Formats a table as CSV."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(
    [formatting.spreadsheet_cell(cell) for cell in row]
    for row in (table.head, *table.rows)
  )
  return text.getvalue()


def as_latex(table: leaderboard.Table) -> str:
  """Formats a table as a LaTeX tabular, which needs \\usepackage{booktabs}."""
  lines = [
    ' & '.join(map(formatting.latex, row)) + r' \\'
    for row in (table.head, *table.rows)
  ]
  return '\n'.join(
    [
      r'% \usepackage{booktabs}',
      rf'\begin{{tabular}}{{l{"r" * (len(table.head) - 1)}}}',
      r'\toprule',
      lines[0],
      r'\midrule',
      *lines[1:],
      r'\bottomrule',
      r'\end{tabular}',
      '',
    ]
  )
