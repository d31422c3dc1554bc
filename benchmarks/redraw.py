"""Draws the pictures in results/ anew, from the CSV files there.

  python benchmarks/redraw.py [--output=FOLDER]

Nothing is trained. FOLDER is results/ unless given.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from benchmarks import pictures
from benchmarks import smoothness_batch
from benchmarks import step_studies

RESULTS = pathlib.Path(__file__).resolve().parents[1] / 'results'
REPRODUCTION = 'reproduction_reddi2021'
KIM = 'kim_mnist'
PRIVATE = 'stackoverflow_tag_dp'
# What `studies.py` collected.
STUDIES = (
  'local_steps',
  'mukherjee_libsvm',
  'mukherjee_mnist',
  'noise',
  'private_tags',
  'reddi_full',
  'tuning_free',
)
# Clients of a round of the private study.
PRIVATE_COHORT = 40


def redraw(output):
  """Draws all pictures into a folder, below it as in results/."""

  def rows(name):
    return outputs.read_rows(RESULTS / name)

  def to(name):
    path = output / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path

  pictures.draw_agreement(
    rows('main_job/agreement.csv'), to('main_job/agreement.png')
  )
  pictures.draw_quadratic(
    rows('quadratic/rounds.csv'), to('quadratic/rounds.png')
  )
  for path in sorted((RESULTS / KIM).rglob('table_*/curves.csv')):
    best = step_studies.best_rates(step_studies.read_curves(path))
    table = path.parent.relative_to(RESULTS)
    pictures.draw_clients(best, to(table / 'accuracy.png'))
  pictures.draw_forms(
    smoothness_batch.read(RESULTS / 'smoothness_batch' / 'curves.csv'),
    to('smoothness_batch/accuracy.png'),
  )
  for path in sorted((RESULTS / REPRODUCTION).glob('*_curves.csv')):
    name = path.stem.removesuffix('_curves')
    pictures.draw_methods(
      outputs.read_rows(path), to(f'{REPRODUCTION}/{name}.png')
    )
  for study in STUDIES:
    (output / study).mkdir(parents=True, exist_ok=True)
    pictures.draw_sweeps(
      rows(f'{study}/results.csv'),
      rows(f'{study}/curves.csv'),
      output / study,
    )
    pictures.draw_grids(rows(f'{study}/results.csv'), output / study)
    if (RESULTS / study / 'steps.csv').exists():
      pictures.draw_steps(rows(f'{study}/steps.csv'), output / study)
  curves = rows(f'{PRIVATE}/curves.csv')
  pictures.draw_methods(curves, to(f'{PRIVATE}/curves.png'))
  pictures.draw_bytes(curves, to(f'{PRIVATE}/bytes.png'), PRIVATE_COHORT)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument(
    '--output', type=pathlib.Path, default=RESULTS, help='Folder to write to.'
  )
  redraw(parser.parse_args().output)


if __name__ == '__main__':
  main()
