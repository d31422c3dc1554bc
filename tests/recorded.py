"""What runs wrote, as far as it does not depend on the machine."""

import csv


def rows(folder):
  """metrics.csv of a run's folder, without the seconds in it."""
  with open(folder / 'metrics.csv', encoding='utf-8') as file:
    return [
      {k: v for k, v in row.items() if k.split('/')[0] != 'seconds'}
      for row in csv.DictReader(file)
    ]
