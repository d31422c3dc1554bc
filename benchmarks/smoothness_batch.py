"""Figures of Delta-SGD's two forms against rounds and against gradients.

  python benchmarks/smoothness_batch.py results/smoothness_batch

The folder holds curves.csv: task, alpha, form, seed, round, accuracy, a line an
evaluation. accuracy.png is written beside it, and the accuracies at the same
number of rounds, and of gradients, are printed.
"""

import argparse
import collections
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from benchmarks import pictures


def read(path):
  """Reads accuracies by experiment, form, seed and round."""
  curves = collections.defaultdict(
    lambda: collections.defaultdict(lambda: collections.defaultdict(dict))
  )
  for row in outputs.read_rows(path):
    alpha = f', alpha = {row["alpha"]}' if row['alpha'] else ''
    by_seed = curves[f'{row["task"]}{alpha}'][row['form']]
    by_seed[int(row['seed'])][int(row['round'])] = float(row['accuracy'])
  return curves


def means_of(by_seed):
  """Averages over seeds, by round."""
  rounds = sorted(set.intersection(*map(set, by_seed.values())))
  return {
    n: statistics.fmean(by_round[n] for by_round in by_seed.values())
    for n in rounds
  }


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('folder', type=pathlib.Path)
  folder = parser.parse_args().folder
  curves = read(folder / 'curves.csv')
  pictures.draw_forms(curves, folder / 'accuracy.png')
  print('| experiment | round | same | successive | at half the rounds, same |')
  print('|---|---|---|---|---|')
  for experiment, by_form in curves.items():
    if len(by_form) < 2:
      continue
    forms = {form: means_of(by_seed) for form, by_seed in by_form.items()}
    shared = sorted(set.intersection(*(set(c) for c in forms.values())) - {0})
    for number in shared:
      half = forms['same'].get(number // 2)
      halved = f'{100 * half:.1f}' if half is not None else ''
      print(
        f'| {experiment} | {number} | {100 * forms["same"][number]:.1f} | '
        f'{100 * forms["successive"][number]:.1f} | {halved} |'
      )


if __name__ == '__main__':
  main()
