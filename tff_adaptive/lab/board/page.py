"""What the board writes: one page, its tables and its pictures."""

import csv
import io
import pathlib
from collections.abc import Sequence

import jinja2

from tff_adaptive import drawing
from tff_adaptive.lab.board import entries as entries_lib
from tff_adaptive.lab.board import pictures
from tff_adaptive.lab.board import references as references_lib
from tff_adaptive.lab.board import standings as standings_lib
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import formatting

_TEMPLATE = pathlib.Path(__file__).with_name('page.html')


def write(
  folder: pathlib.Path,
  entries: Sequence[entries_lib.Entry],
  references: references_lib.References,
  names: Sequence[str],
) -> str:
  """Writes the page, the main table and the pictures.

  Args:
    folder: Where to.
    entries: The entries.
    references: The targets.
    names: The workloads.

  Returns:
    The main table and where things are, for the terminal.
  """
  standings = standings_lib.of_entries(entries, references, names)
  main = standings_lib.main_table(standings)
  images = {
    name: drawing.images(drawn, ['svg', 'pdf'])
    for name, drawn in pictures.draw(standings).items()
  }
  vectors = {name: of['svg'].decode('utf-8') for name, of in images.items()}
  contents = {
    'board.html': _render(standings, main, vectors, references),
    'board.csv': as_csv(main),
    'board.tex': as_latex(main),
    **{f'{name}.svg': text for name, text in vectors.items()},
  }
  files.make_folder(folder)
  for name, text in contents.items():
    files.write_atomically(folder / name, text.encode('utf-8'))
  for name, of in images.items():
    files.write_atomically(folder / f'{name}.pdf', of['pdf'])
  return '\n'.join(
    [
      *formatting.aligned([main.head, *main.rows], left=2),
      *standings.left_out,
      f'page     {folder / "board.html"}',
      f'tables   {folder / "board.csv"}, {folder / "board.tex"}',
    ]
  )


def _render(
  standings: standings_lib.Standings,
  main: standings_lib.Table,
  vectors: dict[str, str],
  references: references_lib.References,
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
    budget=standings_lib.HEADLINE,
    standings=standings,
    agreement=standings_lib.agreement(standings),
    main=main,
    vectors=vectors,
    workloads=standings_lib.workload_table(standings),
    detail=standings_lib.detail_table(standings),
    untuned=standings_lib.untuned_table(standings),
    measures=standings_lib.measure_table(standings),
    neighbours=standings_lib.neighbour_table(standings),
    quality={w: references.quality[w] for w in standings.workloads},
    spaces={
      standings.printed[name]: standings.entries[name].contestant.space.source
      for name in standings.places
    },
  )


def as_csv(table: standings_lib.Table) -> str:
  """Formats a table as CSV."""
  text = io.StringIO()
  csv.writer(text, lineterminator='\n').writerows(
    [formatting.spreadsheet_cell(cell) for cell in row]
    for row in (table.head, *table.rows)
  )
  return text.getvalue()


def as_latex(table: standings_lib.Table) -> str:
  """Formats a table as a LaTeX tabular, which needs \\usepackage{booktabs}."""
  lines = [
    ' & '.join(map(formatting.latex, row)) + r' \\'
    for row in (table.head, *table.rows)
  ]
  return '\n'.join(
    [
      r'% \usepackage{booktabs}',
      rf'\begin{{tabular}}{{rl{"r" * (len(table.head) - 2)}}}',
      r'\toprule',
      lines[0],
      r'\midrule',
      *lines[1:],
      r'\bottomrule',
      r'\end{tabular}',
      '',
    ]
  )
