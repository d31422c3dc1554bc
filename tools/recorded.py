"""Tables of pages from the recorded files in results/.

Writers for tools/make_docs.py; each takes the words of its marker and returns
a Markdown table. Paths are below results/.
"""

import collections
import csv
import json
import pathlib
import sys
from collections.abc import Iterable, Sequence

import numpy as np

_ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

# pylint: disable=g-import-not-at-top
from benchmarks import outputs  # noqa: E402
from benchmarks import placement as placement_lib  # noqa: E402
from benchmarks import studies  # noqa: E402
from tff_adaptive import drawing  # noqa: E402
from tff_adaptive.lab.board import references  # noqa: E402
from tff_adaptive.lab.report import scores  # noqa: E402
from tff_adaptive.lazy import alt  # noqa: E402

RESULTS = _ROOT / 'results'
Row = dict[str, str]
_MEASURES = {
  'train/loss': 'training loss',
  'validation/metric': 'validation',
  'test/metric': 'test',
  'test/loss': 'test loss',
  'best/metric': 'best validation',
}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  lines = [f'| {" | ".join(cells)} |' for cells in (head, *rows)]
  return '\n'.join([lines[0], '|---' * len(head) + '|', *lines[1:]])


def verbatim(path: str, *words: str) -> str:
  """Shows a CSV file, or those of its columns that words name, with `|`."""
  columns = ' '.join(words)
  with open(RESULTS / path, newline='', encoding='utf-8') as file:
    reader = csv.DictReader(file)
    names = columns.split('|') if columns else list(reader.fieldnames or ())
    return _table(names, [[row[name] for name in names] for row in reader])


def count(path: str, column: str) -> str:
  """Counts the rows of a file by the values of a column."""
  rows = outputs.read_rows(RESULTS / path)
  counts = collections.Counter(row[column] for row in rows)
  return _table(
    (column, 'number'), [(k, str(n)) for k, n in counts.most_common()]
  )


def placement(number: str) -> str:
  """Shows one of the tables of benchmarks/placement.py."""
  lines = '\n'.join(placement_lib.tables(RESULTS / 'gpu_readiness'))
  return lines.split('\n\n')[int(number)]


def board(name: str) -> str:
  """Shows the recorded scores of the board, the highest first."""
  return _table(
    (
      'method', 'score', '95 % interval', 'times the cost', 'over FedAvg',
      'behind the first', 'ahead of', 'diverged', 'untuned',
    ),
    [
      (
        row['method'],
        row['score'],
        f'{row["low"]} to {row["high"]}',
        row['cost'],
        row['over FedAvg']
        and f'{row["over FedAvg"]} ({row["from"]} to {row["to"]})',
        row['behind the first'],
        row['ahead of'],
        row['diverged'],
        row['untuned'],
      )
      for row in outputs.read_rows(RESULTS / 'board' / name)
    ],
  )  # fmt: skip


def board_losses() -> str:
  """Shows the losses of the board's baselines, from which targets follow."""
  text = references.FROZEN.read_text(encoding='utf-8')
  workloads = json.loads(text)['workloads']
  baselines = list(next(iter(workloads.values()))['medians'])
  return _table(
    ('workload', 'untrained', *baselines),
    [
      (
        f'`{name}`',
        *(
          f'{loss:#.3g}'
          for loss in (of['untrained'], *(of['medians'][b] for b in baselines))
        ),
      )
      for name, of in workloads.items()
    ],
  )


def _papers(folder: str, table: str) -> dict[str, str]:
  """Reads the numbers of a paper beside a table, by the label of the row."""
  path = RESULTS / folder / 'paper.csv'
  rows = outputs.read_rows(path) if path.exists() else []
  return {row['row']: row['paper'] for row in rows if row['table'] == table}


def _with_paper(
  folder: str, table: str, head: list[str], rows: list[list[str]]
) -> str:
  paper = _papers(folder, table)
  if paper:
    head = [*head, 'paper']
    rows = [[*row, paper.get(row[0], '')] for row in rows]
  return _table(head, rows)


def _best(rows: list[Row], rule: str, of: str) -> list[Row]:
  """Keeps the best setting of each value of an axis, or of each method."""
  sign, measure = rule.split(':')
  best: dict[str, tuple[float, Row]] = {}
  for row in rows:
    words = row['setting'].split(', ')
    key = next((w for w in words if w.startswith(of)), words[0])
    value = float(row[measure] or 'nan') * (1 if sign == 'min' else -1)
    if key not in best or value < best[key][0]:
      best[key] = (value, row)
  return [row for _, row in best.values()]


def sweep(path: str, *words: str) -> str:
  """Shows a sweep that benchmarks/studies.py has collected, a row a setting.

  Args:
    path: FOLDER/SWEEP.
    *words: Columns of results.csv, by default the usual three; and
      `best=min:MEASURE:AXIS`, which keeps the best setting of each value of an
      axis.
  """
  folder, name = path.split('/')
  rows = outputs.read_rows(RESULTS / folder / 'results.csv')
  names = [word for word in words if '=' not in word] or [*_MEASURES][:3]
  for word in words:
    if word.startswith('best='):
      rule, _, axis = word.removeprefix('best=').rpartition(':')
      rows = _best([r for r in rows if r['sweep'] == name], rule, axis)
  text = studies.table(rows, name, names)
  rows = [line.strip('| ').split(' | ') for line in text.splitlines()[2:]]
  for row in rows:
    if any('diverged' in cell for cell in row):
      row[2:] = ['diverged'] * len(names)
    elif row[1] == '1':  # An interval needs more.
      row[2:] = [cell.partition(' ± ')[0] for cell in row[2:]]
  head = ['setting', 'seeds', *(_MEASURES[name] for name in names)]
  return _with_paper(folder, name, head, rows)


def _shown(values: Sequence[float], form: str) -> str:
  """Formats a value, two values of two seeds, or a mean with its interval."""
  scale, digits = {'%': (100, '.1f'), 'x1000': (1000, '.1f')}.get(
    form, (1, form or '.4g')
  )
  scaled = [scale * value for value in values if not np.isnan(value)]
  if len(scaled) > 2:
    half = scores.interval(scaled)
    return f'{np.mean(scaled):{digits}} ± {half:{digits}}'
  return ' / '.join(f'{value:{digits}}' for value in scaled)


def pivot(path: str, *words: str) -> str:
  """Shows a column of a file by two keys; seeds share a cell.

  Args:
    path: FOLDER/FILE.
    words: `KEYS | KEY=VALUES | COLUMN [FORM], ...`: columns that name a row,
      the column whose values head columns, and what cells show.
  """
  keys, across, what = (part.strip() for part in ' '.join(words).split('|'))
  rows = outputs.read_rows(RESULTS / path)
  heading, _, chosen = across.partition('=')
  cells: dict[str, dict[tuple[str, str], list[float]]] = {}
  for row in rows:
    label = ', '.join(row[key] for key in keys.split(',') if row[key])
    for column in what.split(', '):
      name, _, _ = column.partition(' ')
      if row[name] not in ('', 'nan'):
        at = cells.setdefault(label, {}).setdefault((row[heading], column), [])
        at.append(float(row[name]))
  columns = [
    (value, column)
    for column in what.split(', ')
    for value in chosen.split(',')
    if any((value, column) in by for by in cells.values())
  ]
  head = [keys.replace(',', ', ')]
  for value, column in columns:
    name = column.split()[0]
    at = value if '=' in value else f'{heading} {value}'
    head.append(f'{name}, {at}' if ',' in what else at)
  shown = [
    [label, *(_shown(by.get(c, ()), c[1].partition(' ')[2]) for c in columns)]
    for label, by in sorted(cells.items())
    if any(c in by for c in columns)
  ]
  folder, _, file = path.partition('/')
  return _with_paper(folder, file, head, shown)


def picture() -> str:
  """Draws accuracy of four methods on real writers, for the first page."""
  shown = {
    'fedadam': 'FedAdam, published rates',
    'delta_sgd': 'Delta-SGD, no rate to tune',
    'fedexp': 'FedExP, client rate 0.1',
    'fedavg': 'FedAvg, client rate 0.1',
  }
  rows = [
    {
      'method': shown[row['setting']],
      'round': int(row['round']),
      'accuracy': float(row['value']),
    }
    for row in outputs.read_rows(RESULTS / 'tuning_free' / 'curves.csv')
    if row['sweep'] == 'emnist_character' and row['setting'] in shown
  ]
  scale = alt.Scale(range=['#0072b2', '#d55e00', '#009e73', '#7a7a7a'])
  colour = alt.Color(
    'method:N',
    sort=[*shown.values()],
    scale=scale,
    # Below, where a browser's wider letters have room.
    legend=alt.Legend(
      title=None, symbolOpacity=1, orient='bottom', columns=2, columnPadding=40
    ),
  )
  base = alt.Chart(drawing.table(rows)).encode(
    x=alt.X('round:Q', title='round'), color=colour
  )
  level = alt.Y('mean(accuracy):Q', title='accuracy', axis=alt.Axis(format='%'))
  chart = base.mark_area(opacity=0.2).encode(
    y=alt.Y('min(accuracy):Q', title=''), y2='max(accuracy):Q'
  ) + base.mark_line(strokeWidth=2.5).encode(y=level)
  chart = chart.properties(width=480, height=260)
  return drawing.image(chart.to_dict(), 'svg').decode('utf-8') + '\n'


WRITERS = {
  'csv': verbatim,
  'count': count,
  'placement': placement,
  'board': board,
  'board_losses': board_losses,
  'sweep': sweep,
  'pivot': pivot,
}
