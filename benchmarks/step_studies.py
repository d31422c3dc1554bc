"""One small CSV and figures of a study's runs.

  python benchmarks/step_studies.py RUNS --output=FOLDER
  python benchmarks/step_studies.py RUNS --best=CLIENT

RUNS is a folder with runs below it. FOLDER gets curves.csv, every evaluation of
every finished run, and accuracy.png: accuracy against rounds, and against
gradients, of which the two forms of Delta-SGD do not take the same number. Of
runs that differ only in the client's rate the one with the best accuracy, mean
of the last three evaluations, is drawn and put into the table that is printed;
--best prints that rate of one client alone, by the name that it has in presets.
"""

import argparse
import collections
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from benchmarks import pictures
from tff_adaptive.lab.report import runs as results

RATE = 'client_learning_rate'
LAST = 3


def name_of(settings):
  """Returns a client's name as presets of Kim et al. have it."""
  name = settings['client_optimizer']
  name = {'polyak': 'sps'}.get(name, name)
  if settings.get('client_momentum'):
    name += 'm'
  if settings.get('client_lr_schedule') == 'step_decay':
    name += '_decay'
  if settings.get('smoothness_batch', 'same') != 'same':
    name += f'_{settings["smoothness_batch"]}'
  return name


def setting_of(settings):
  """Returns the Dirichlet alpha, if the clients have one."""
  task = settings['task']
  if settings.get(f'{task}_partition') != 'lda':
    return ''
  return settings[f'{task}_alpha']


def rows_of(run):
  """Reads a run's evaluations."""
  gradients = seconds = 0.0
  for row in run.rows:
    gradients += outputs.gradients(run.settings, row)
    seconds += row.get('seconds', 0)
    accuracy = row.get(f'validation/{run.metric}')
    if accuracy is not None:
      yield {
        'client': name_of(run.settings),
        'alpha': setting_of(run.settings),
        'rate': run.settings.get(RATE, ''),
        'seed': run.settings['seed'],
        'round': int(row['round']),
        'gradients': int(gradients),
        'seconds': round(seconds, 1),
        'accuracy': round(accuracy, 4),
        'test': round(row.get(f'test/{run.metric}', float('nan')), 4),
      }


def score(rows):
  return statistics.fmean(row['accuracy'] for row in rows[-LAST:])


def best_rates(curves):
  """Chooses the best rate of every client and alpha, with curves by seed."""
  by_rate = collections.defaultdict(dict)
  for (client, alpha, rate, seed), rows in curves.items():
    by_rate[client, alpha].setdefault(rate, {})[seed] = rows
  return {
    key: max(
      rates.items(),
      key=lambda item: statistics.fmean(map(score, item[1].values())),
    )
    for key, rates in by_rate.items()
  }


def read_curves(path):
  """Reads the evaluations of every run from curves.csv."""
  curves = collections.defaultdict(list)
  for row in outputs.read_rows(path):
    for column, kind in (('seed', int), ('round', int), ('gradients', int)):
      row[column] = kind(row[column])
    for column in ('seconds', 'accuracy', 'test'):
      row[column] = float(row[column])
    for column in ('alpha', 'rate'):
      row[column] = float(row[column]) if row[column] else ''
    key = tuple(row[k] for k in ('client', 'alpha', 'rate', 'seed'))
    curves[key].append(row)
  return curves


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('runs', type=pathlib.Path, help='Folder of the runs.')
  parser.add_argument('--output', type=pathlib.Path, help='Folder to write to.')
  parser.add_argument('--best', metavar='CLIENT', help='Print its rate only.')
  arguments = parser.parse_args()
  curves = {}
  for run in results.find(arguments.runs)[0]:
    if run.finished:
      rows = list(rows_of(run))
      key = tuple(rows[0][k] for k in ('client', 'alpha', 'rate', 'seed'))
      curves[key] = rows
  if not curves:
    parser.error(f'{arguments.runs} has no finished run')
  best = best_rates(curves)
  if arguments.best:
    rates = [rate for (c, _), (rate, _) in best.items() if c == arguments.best]
    if len(rates) != 1:
      clients = ', '.join(sorted({client for client, _ in best}))
      parser.error(
        f'--best={arguments.best}: {arguments.runs} has it at {len(rates)} '
        f'alphas, not at one; its clients are {clients}'
      )
    print(rates[0])
    return
  if arguments.output is None:
    parser.error('--output is needed, or --best')
  arguments.output.mkdir(parents=True, exist_ok=True)
  outputs.write_rows(
    arguments.output / 'curves.csv',
    [row for rows in curves.values() for row in rows],
  )
  pictures.draw_clients(best, arguments.output / 'accuracy.png')
  print('| client | alpha | rate | seeds | last three evaluations | test |')
  print('|---|---|---|---|---|---|')
  for (client, alpha), (rate, by_seed) in sorted(best.items()):
    test = statistics.fmean(rows[-1]['test'] for rows in by_seed.values())
    mean = statistics.fmean(map(score, by_seed.values()))
    print(
      f'| {client} | {alpha} | {rate} | {len(by_seed)} | {100 * mean:.1f} | '
      f'{100 * test:.1f} |'
    )


if __name__ == '__main__':
  main()
