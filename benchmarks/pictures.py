"""The pictures of studies, drawn from the rows that they write as CSV.

`redraw.py` draws them from the files in results/, without training.
"""

import collections
import dataclasses
import math
import pathlib

import pandas as pd

from benchmarks import outputs
from tff_adaptive import drawing
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import figures
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections

# What curves of sweeps are drawn against, if it is there.
_AXES = {
  'round': 'round',
  'gradients': 'gradients in all',
  'megabytes': 'megabytes sent in all',
}
# How pictures call what settings vary.
_WORDS = {
  'client_learning_rate': 'client rate',
  'server_learning_rate': 'server rate',
  'server_adaptivity': 'tau',
}
# How pictures and pages call clients of Kim et al., in the order of pages.
CLIENTS = {
  'sgd': 'SGD',
  'sgd_decay': 'SGD, decay',
  'sgdm': 'SGD with momentum',
  'sgdm_decay': 'SGD with momentum, decay',
  'adam': 'Adam',
  'adagrad': 'Adagrad',
  'sps': 'SPS',
  'delta_sgd': 'Delta-SGD',
}
# Where Reddi et al. fix tau to look at rates.
_TAU = 0.001
# Lines that a picture can bear.
_MOST_LINES = 10
# How near to 0 weights are at the end of `quadratic.py`, as a share.
WITHIN = 1e-3


def save(path, *charts_, columns=None):
  """Draws charts side by side, two a row unless said otherwise."""
  columns = columns or min(len(charts_), 2)
  methods = list(dict.fromkeys(m for c in charts_ for m in c.methods))
  colours = styles.colours(methods)
  drawn = charts.together(
    [dataclasses.replace(c, colours=c.colours or colours) for c in charts_],
    columns=columns,
  )
  path.write_bytes(drawing.image(drawn, 'png'))


def lines_of(curves):
  """Makes a line a seed from x and y by seed, by name."""
  return pd.concat(
    pd.DataFrame({'method': name, 'x': x, 'y': y, 'run': f'{name} {seed}'})
    for name, by_seed in curves.items()
    for seed, (x, y) in by_seed.items()
  )


def draw_agreement(rows, path):
  """Draws test accuracy against rounds of `agreement.py`."""
  curves = collections.defaultdict(
    lambda: collections.defaultdict(lambda: ([], []))
  )
  for row in rows:
    x, y = curves[row['method']][int(row['seed'])]
    x.append(int(row['round']))
    y.append(float(row['accuracy']))
  chart = charts.Chart(
    'agreement',
    '',
    '',
    'round',
    'test accuracy',
    lines_of(curves),
    whole_x=True,
  )
  save(path, chart)


def draw_quadratic(rows, path):
  """Draws the rounds of `quadratic.py` against a, a panel a form."""
  titles = {
    'shared': 'a shared axis, as in the paper',
    'own': 'an axis for each client',
  }
  found = []
  for axes, title in titles.items():
    points = collections.defaultdict(list)
    for row in rows:
      if row['axes'] == axes and row['rounds']:
        points[row['method']].append((int(row['a']), int(row['rounds'])))
    curves = {m: {0: tuple(zip(*found))} for m, found in points.items()}
    found.append(
      charts.Chart(
        'rounds',
        title,
        '',
        'curvature a of the steep client',
        f'rounds to {WITHIN:g} of the start',
        lines_of(curves),
        log_x=True,
        log_y=True,
        y_limits=(0.7, 600),
      )
    )
  save(path, *found)


def _label(client, rate):
  name = CLIENTS.get(client, client)
  return f'{name}, rate {float(rate):g}' if rate else name


def draw_clients(best, path):
  """Draws accuracy against rounds and gradients, a row of panels an alpha.

  Args:
    best: Rate and rows by seed, by client and alpha; see `step_studies`.
    path: The picture.
  """
  alphas = sorted({alpha for _, alpha in best}, reverse=True)
  clients = list(dict.fromkeys(client for client, _ in best))
  colours = styles.colours(clients)
  found = []
  for alpha in alphas:
    here = {c: best[c, alpha] for c in clients if (c, alpha) in best}
    for column in ('round', 'gradients'):
      curves = {
        _label(client, rate): {
          # The untrained model, which is the same for all, would take the room.
          seed: tuple(
            zip(*((row[column], row['accuracy']) for row in rows[1:]))
          )
          for seed, rows in by_seed.items()
        }
        for client, (rate, by_seed) in here.items()
      }
      found.append(
        charts.Chart(
          'accuracy',
          f'alpha = {float(alpha):g}' if alpha else '',
          '',
          column if column == 'round' else 'gradients in all',
          'accuracy',
          lines_of(curves),
          whole_x=True,
          colours={_label(c, r): colours[c] for c, (r, _) in here.items()},
        )
      )
  save(path, *found)


def draw_forms(curves, path):
  """Draws both forms of Delta-SGD, a row of panels an experiment.

  Args:
    curves: Accuracies by experiment, form, seed and round.
    path: The picture.
  """
  forms_ = ('same', 'successive')
  found = []
  for experiment, forms in curves.items():
    for label, each in (
      ('round', dict.fromkeys(forms_, 1)),
      ('gradients, in rounds of one gradient a step', outputs.GRADIENTS),
    ):
      lines = {
        form: {
          seed: ([each[form] * n for n in by_round], list(by_round.values()))
          for seed, by_round in forms[form].items()
        }
        for form in forms_
      }
      found.append(
        charts.Chart(
          'accuracy',
          experiment,
          '',
          label,
          'accuracy',
          lines_of(lines),
          whole_x=True,
        )
      )
  save(path, *found)


def _configurations(rows, clients_per_round=0):
  """Makes of rows, by method and seed, what a report knows as runs."""
  grouped = collections.defaultdict(lambda: collections.defaultdict(list))
  for row in rows:
    numbers = {k: float(v) for k, v in row.items() if v and k != 'method'}
    grouped[row['method']][int(row['seed'])].append(numbers)
  return {
    method: sections.Configuration(
      method,
      {},
      [
        results.Run(
          pathlib.Path(method),
          {'seed': seed, 'clients_per_round': clients_per_round},
          found,
        )
        for seed, found in by_seed.items()
      ],
    )
    for method, by_seed in grouped.items()
  }


def _judge(best):
  columns = next(iter(best.values())).runs[0].columns
  validated = [c for c in columns if c.startswith('validation/')]
  metric = metric_names.main_metric(
    {c.partition('/')[2]: None for c in validated}
  )
  return sections.Criterion(scores.RULES[scores.WITHOUT_VALIDATION], metric)


def draw_methods(rows, path):
  """Draws training loss and validation quality of methods by round."""
  best = _configurations(rows)
  found = [
    dataclasses.replace(chart, title='')
    for chart in figures.curves(best, _judge(best))
  ]
  save(path, *found)


def draw_bytes(rows, path, clients_per_round):
  """Draws validation quality of methods against what was sent.

  Args:
    rows: Of some rounds; those between them sent as much as the next.
    path: The picture.
    clients_per_round: For what the whole cohort sends.
  """
  best = _configurations(rows, clients_per_round)
  for configuration in best.values():
    for run in configuration.runs:
      last = 0
      for row in run.rows:
        for column in ('bytes_down', 'bytes_up'):
          row[column] = row.get(column, 0.0) * (row['round'] - last)
        last = row['round']
  save(path, *figures.against_bytes(best, _judge(best)))


def draw_sweeps(ends, curves, folder):
  """Draws a picture of the curves of each sweep of `studies.py`.

  Where there are more settings than `_MOST_LINES`, of those that differ only in
  rates the best is drawn.

  Args:
    ends: Rows of results.csv.
    curves: Rows of curves.csv.
    folder: Gets a PNG file named after each sweep.
  """
  metrics = {row['sweep']: row['metric'] for row in ends}
  axes = [column for column in _AXES if column in curves[0]]
  for sweep, metric in metrics.items():
    # The untrained model, which is the same for all, would take the room.
    drawn = _drawn([row for row in ends if row['sweep'] == sweep])
    rows = [
      row
      for row in curves
      if row['sweep'] == sweep
      and int(row['round']) > 0
      and row['setting'] in drawn
    ]
    found = [
      charts.Chart(
        sweep,
        '',
        '',
        _AXES[column],
        metric.replace('_', ' '),
        _lines(rows, column, metric_names.bounds(metric)),
        whole_x=column == 'round',
        log_y=metric == 'distance',
      )
      for column in axes
    ]
    save(folder / f'{sweep}.png', *found, columns=len(found))


def _drawn(ends):
  """Chooses the settings of a sweep that are drawn."""
  by_setting = collections.defaultdict(list)
  for row in ends:
    by_setting[row['setting']].append(float(row['validation/metric']))
  if len(by_setting) <= _MOST_LINES:
    return {*by_setting}
  sign = 1 if metric_names.higher_is_better(ends[0]['metric']) else -1
  groups = collections.defaultdict(list)
  for setting, values in by_setting.items():
    words = setting.split(', ')
    method = tuple(w for w in words if 'learning_rate=' not in w)
    groups[method].append((sign * scores.mean(values), setting))
  return {max(found)[1] for found in groups.values()}


class _End(results.Run):
  """A run of which only the numbers of results.csv are left."""

  @property
  def finished(self):
    return self.rows[0]['status'] == 'finished'

  def measures(self):
    return {k: float(v) for k, v in self.rows[0].items() if '/' in k and v}


def draw_grids(ends, folder):
  """Draws sweeps over grids of rates as Reddi et al. do.

  These are, with tau fixed, validation quality by client and server rate
  (Figures 2 and 5 to 11) and the best server rate of each client rate (Figure
  12), and quality by tau, with the rates of the lowest training loss at each
  (Figure 3).

  Args:
    ends: Rows of results.csv.
    folder: Gets PNG files named after each sweep that varied both rates.
  """
  for sweep in dict.fromkeys(row['sweep'] for row in ends):
    rows = [row for row in ends if row['sweep'] == sweep]
    by_loss, by_quality = (
      sections.Criterion(scores.RULES[name], rows[0]['metric'])
      for name in (scores.WITHOUT_VALIDATION, 'validation_metric')
    )
    name = sweep.replace('_', ' ')
    tried = _tried(rows, name)
    fixed = [
      c for c in tried if c.settings.get('server_adaptivity', _TAU) == _TAU
    ]
    of_rates = _by_name(figures.tuning({name: fixed}, by_quality))
    of_tau = _by_name(figures.tuning({name: tried}, by_loss))
    drawn = {
      'rates': of_rates.get('heat_map'),
      'best_rates': of_rates.get('best_server_rates'),
      'adaptivity': of_tau.get('adaptivity'),
    }
    if drawn['rates'] is None:
      continue
    for kind, chart in drawn.items():
      if chart is not None:
        path = folder / f'{sweep}_{kind}.png'
        path.write_bytes(drawing.image(charts.specification(chart), 'png'))


def _by_name(found):
  return {
    'heat_map' if isinstance(f, charts.HeatMap) else f.name: f for f in found
  }


def _tried(ends, name):
  """Makes of a sweep's ends what a report knows as configurations."""
  by_setting = collections.defaultdict(list)
  for row in ends:
    by_setting[row['setting']].append(row)
  return [
    sections.Configuration(
      name,
      {
        axis: float(value)
        for axis, _, value in (
          word.partition('=') for word in setting.split(', ')
        )
        if axis.endswith(('learning_rate', 'adaptivity'))
      },
      [_End(pathlib.Path(setting), {}, [row]) for row in rows],
      complete=all(row['status'] == 'finished' for row in rows),
    )
    for setting, rows in by_setting.items()
  ]


def draw_steps(steps, folder):
  """Draws the mean step size of a round, a picture for each sweep.

  Args:
    steps: Rows of steps.csv.
    folder: Gets a PNG file for each sweep that has some.
  """
  for sweep in dict.fromkeys(row['sweep'] for row in steps):
    rows = [row for row in steps if row['sweep'] == sweep]
    chart = charts.Chart(
      sweep,
      '',
      '',
      'round',
      'mean step size of a round',
      _lines(rows, 'round', (0.0, math.inf), 'mean'),
      whole_x=True,
    )
    save(folder / f'{sweep}_steps.png', chart)


def _lines(rows, column, bounds, value='value'):
  """Makes the lines of settings over their seeds, as a report has them.

  Args:
    rows: Of curves.csv or steps.csv, of one sweep.
    column: What is across.
    bounds: The least and the greatest value.
    value: What is up.
  """
  settings = _configurations(
    {
      'method': row['setting'],
      **{k: row[k] for k in ('seed', 'round', column, value)},
    }
    for row in rows
  )

  def series(run):
    table = run.table[['round', column, value]]
    return table.set_axis(['at', 'x', 'y'], axis=1).dropna()

  found = figures.lines(settings, series, bounds)
  return found.assign(method=found['method'].map(_short))


def _short(setting):
  """Makes a setting's name fit into a legend."""
  for axis, words in _WORDS.items():
    setting = setting.replace(f'{axis}=', f'{words} ')
  return setting
