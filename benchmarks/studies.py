"""Small CSV files, a picture a sweep and tables of a study's sweeps.

  python benchmarks/studies.py RUNS --output=FOLDER [--curve=COLUMN]

RUNS is the folder that a results/*/run.sh filled with sweeps. FOLDER gets
results.csv, a row a run with its numbers as `main.py sweep` scores them;
curves.csv, the values of COLUMN, or of the validation measure, of every run;
and a picture of the curves of every sweep; sweeps over grids of client and
server rates get a report's pictures of tuning, too. With --costs, curves.csv
also counts gradients and megabytes, and pictures have a panel for each. With
--steps, steps.csv has the step sizes of a round, and sweeps with some a second
picture, of their means. With --join=A,B, sweeps whose names are A or begin with
A_ are one by the name of A, whose settings are named after their methods. The
tables that are printed have the means over seeds, and half of their 95 %
intervals. Of sweeps that RUNS does not have, FOLDER keeps what it has.
"""

import argparse
import collections
import math
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from benchmarks import pictures
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import scores

# What is kept of a run, beside its place: the numbers that settle something.
MEASURES = (
  'train/loss',
  'last/loss',
  'validation/metric',
  'best/metric',
  'recent/metric',
  'test/loss',
  'test/metric',
)
_DIGITS = 5
# Of runs that came to an end.
_ENDS = ('finished', 'diverged')
# Points of a curve that is evaluated more often.
_POINTS = 40


# Axes that name a method.
_METHODS = ('preset', 'algorithm', 'client_optimizer')


def setting_of(row, method=None, shared=()):
  """Names a run's setting: its axes but the seed, in a few words.

  Args:
    row: Of a sweep's results.csv.
    method: What takes the place of the axes that name a method.
    shared: Axes that need no mention.
  """
  axes = list(row)[1 : list(row).index('status')]
  words = [method] if method else []
  unsaid = {'seed', *shared, *(_METHODS if method else ())}
  for axis in axes:
    if axis in unsaid or not row[axis]:
      continue
    value = row[axis].rpartition('/')[2] if axis == 'preset' else row[axis]
    words.append(value if axis in _METHODS else f'{axis}={value}')
  return ', '.join(words)


def rounded(text):
  """Shortens a number; what is none stays empty."""
  return f'{float(text):.{_DIGITS}g}' if text else ''


def thinned(values):
  """Keeps about `_POINTS` of a list, the first and the last among them."""
  if not values:
    return []
  step = max(1, math.ceil((len(values) - 1) / _POINTS))
  return [v for i, v in enumerate(values) if i % step == 0] + (
    [] if (len(values) - 1) % step == 0 else values[-1:]
  )


# What is kept of the step sizes of a round.
STEPS = ('mean', 'between_clients', 'within_clients', 'at_bound')


def steps_of(run, place):
  """Lists the step sizes of a run's rounds, if its clients choose them."""
  found = [
    {**place, 'round': int(row['round'])}
    | {k: f'{row[f"step_size/{k}"]:.{_DIGITS}g}' for k in STEPS}
    for row in run.rows
    if f'step_size/{STEPS[0]}' in row
  ]
  return thinned(found)


def costs_of(run):
  """Counts what a run has spent by round: gradients, and megabytes sent."""
  clients = run.settings['clients_per_round']
  gradients = megabytes = 0.0
  spent = {}
  for row in run.rows:
    gradients += outputs.gradients(run.settings, row)
    megabytes += scores.bytes_sent(row, clients) / 1e6
    spent[int(row['round'])] = {
      'gradients': int(gradients),
      'megabytes': f'{megabytes:.{_DIGITS}g}',
    }
  return spent


def collect(folder, column=None, costs=False, join=()):
  """Reads a study's sweeps.

  Args:
    folder: The folder of the sweeps.
    column: What curves are of; the validation measure unless given.
    costs: Whether curves count gradients and megabytes too.
    join: Beginnings of the names of sweeps that are one.

  Returns:
    The rows of results.csv, of curves.csv, and of steps.csv.
  """
  ends, curves, steps = [], [], []
  for path in sorted(folder.glob('*/results.csv')):
    sweep = path.parent.name
    joined = next(
      (name for name in join if f'{sweep}_'.startswith(f'{name}_')), None
    )
    rows = outputs.read_rows(path)
    # A paper's grid says its whole problem in every row.
    shared = [a for a in rows[0] if len({row[a] for row in rows}) == 1]
    for row in rows:
      if row['status'] not in _ENDS:
        continue
      run = results.load(path.parent / 'runs' / row['name'])
      place = {
        'sweep': joined or sweep,
        'setting': setting_of(row, run.method)
        if joined
        # All axes, where nothing but seeds varies.
        else setting_of(row, shared=shared) or setting_of(row),
        'seed': row['seed'],
      }
      ends.append(
        {**place, **{k: row[k] for k in ('status', 'rounds', 'metric')}}
        | {k: rounded(row[k]) for k in MEASURES}
      )
      curve = run.table[column or f'validation/{row["metric"]}'].dropna()
      points = list(zip(run.table['round'][curve.index].astype(int), curve))
      spent = costs_of(run) if costs else {}
      curves += [
        {**place, 'round': number, 'value': f'{value:.{_DIGITS}g}'}
        | spent.get(number, {})
        for number, value in thinned(points)
      ]
      steps += steps_of(run, place)
  return ends, curves, steps


def with_others(rows, path):
  """Adds the rows of other sweeps that a file has, in the order of sweeps."""
  mine = {row['sweep'] for row in rows}
  others = outputs.read_rows(path) if path.is_file() else []
  return sorted(
    [*rows, *(row for row in others if row['sweep'] not in mine)],
    key=lambda row: row['sweep'],
  )


def by_setting(rows, sweep):
  """Groups the rows of a sweep by setting, in the order of the file."""
  grouped = collections.defaultdict(list)
  for row in rows:
    if row['sweep'] == sweep:
      grouped[row['setting']].append(row)
  return grouped


def mean_of(rows, measure):
  """Returns the mean over runs and half of its interval, if all have it."""
  values = [float(row[measure]) for row in rows if row[measure]]
  if len(values) < len(rows):
    return None
  return statistics.fmean(values), scores.interval(values)


def is_share(row, measure):
  """Tells whether a measure of a run is a share, which is shown in per cent."""
  return measure.endswith('/metric') and metric_names.is_share(row['metric'])


def table(rows, sweep, measures):
  """Writes a sweep's table; shares are given in per cent."""
  lines = [
    f'| setting | seeds | {" | ".join(measures)} |',
    '|---' * (len(measures) + 2) + '|',
  ]
  for setting, found in by_setting(rows, sweep).items():
    cells = []
    for measure in measures:
      mean = mean_of(found, measure)
      share = is_share(found[0], measure)
      if mean is None:
        cells.append(', '.join(sorted({row['status'] for row in found})))
      elif share:
        cells.append(f'{100 * mean[0]:.1f} ± {100 * mean[1]:.1f}')
      else:
        cells.append(f'{mean[0]:.4g} ± {mean[1]:.2g}')
    lines.append(f'| {setting} | {len(found)} | {" | ".join(cells)} |')
  return '\n'.join(lines)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('runs', type=pathlib.Path, help='Folder of the sweeps.')
  parser.add_argument('--output', type=pathlib.Path, required=True)
  parser.add_argument('--costs', action='store_true', help='Count them too.')
  parser.add_argument('--steps', action='store_true', help='Step sizes too.')
  parser.add_argument('--join', help='Names of sweeps that are one.')
  parser.add_argument('--curve', help='Column of metrics.csv that is drawn.')
  parser.add_argument(
    '--show',
    default='train/loss,validation/metric,test/metric',
    help='What the printed tables have.',
  )
  arguments = parser.parse_args()
  ends, curves, steps = collect(
    arguments.runs,
    arguments.curve,
    arguments.costs,
    arguments.join.split(',') if arguments.join else (),
  )
  if not ends:
    parser.error(f'{arguments.runs} has no sweep')
  arguments.output.mkdir(parents=True, exist_ok=True)
  tables = {'results.csv': ends, 'curves.csv': curves}
  if arguments.steps:
    tables['steps.csv'] = steps
  for name, rows in tables.items():
    path = arguments.output / name
    outputs.write_rows(path, with_others(rows, path))
  pictures.draw_sweeps(ends, curves, arguments.output)
  pictures.draw_grids(ends, arguments.output)
  if arguments.steps:
    pictures.draw_steps(steps, arguments.output)
  for sweep in dict.fromkeys(row['sweep'] for row in ends):
    print(f'\n{sweep}\n')
    print(table(ends, sweep, arguments.show.split(',')))


if __name__ == '__main__':
  main()
