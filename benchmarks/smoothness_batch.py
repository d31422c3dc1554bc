"""Figures of Delta-SGD's two forms against rounds and against gradients.

  python benchmarks/smoothness_batch.py results/smoothness_batch

The folder holds curves.csv: task, alpha, form, seed, round, accuracy, a line an
evaluation. accuracy.png is written beside it, and the accuracies at the same
number of rounds, and of gradients, are printed.
"""

import argparse
import collections
import csv
import pathlib
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from tff_adaptive.recording import styles

LOOKS = {'same': 'delta_sgd', 'successive': 'fedadam'}


def read(path):
  """Reads mean accuracy over seeds by experiment, form and round."""
  cells = collections.defaultdict(
    lambda: collections.defaultdict(lambda: collections.defaultdict(list))
  )
  with open(path, encoding='utf-8', newline='') as file:
    for row in csv.DictReader(file):
      alpha = f', alpha = {row["alpha"]}' if row['alpha'] else ''
      experiment = f'{row["task"]}{alpha}'
      cells[experiment][row['form']][int(row['round'])].append(
        float(row['accuracy'])
      )
  return {
    experiment: {
      form: {r: statistics.fmean(v) for r, v in sorted(rounds.items())}
      for form, rounds in forms.items()
    }
    for experiment, forms in cells.items()
  }


def draw(curves, path):
  """Draws a row of two panels for every experiment."""
  figure, axes = outputs.new_panels(
    len(curves), size=(8.4, 3.2 * len(curves)), sharey='row'
  )
  for panels, (experiment, forms) in zip(axes, curves.items(), strict=True):
    for form, by_round in forms.items():
      style = styles.of_method(LOOKS[form])
      panels[0].plot(by_round.keys(), by_round.values(), label=form, **style)
      panels[1].plot(
        [outputs.GRADIENTS[form] * r for r in by_round],
        by_round.values(),
        **style,
      )
    panels[0].set_title(experiment, fontsize=9)
    panels[0].set_xlabel('round')
    panels[1].set_xlabel('gradients, in rounds of one gradient a step')
    panels[0].set_ylabel('accuracy')
    panels[0].legend(fontsize=8)
  figure.savefig(path)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('folder', type=pathlib.Path)
  folder = parser.parse_args().folder
  curves = read(folder / 'curves.csv')
  draw(curves, folder / 'accuracy.png')
  print('| experiment | round | same | successive | at half the rounds, same |')
  print('|---|---|---|---|---|')
  for experiment, forms in curves.items():
    if len(forms) < 2:
      continue
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
