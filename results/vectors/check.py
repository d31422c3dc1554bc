"""Compares rounds computed elsewhere with a vector; needs NumPy alone.

  python check.py fedadam.json mine.json

mine.json holds, for each round of the vector, the list of weights after it.
From Python: `check.compare(json.load(...), my_rounds)`.
"""

import json
import sys

import numpy as np


def compare(vector, rounds, tolerance=1e-4):
  """Returns the largest deviation relative to how far weights have moved."""
  if len(rounds) != len(vector['weights']):
    sys.exit(f'{len(vector["weights"])} rounds are needed, got {len(rounds)}.')
  flat = lambda weights: np.concatenate([np.ravel(w) for w in weights])
  start, worst = flat(vector['start']), 0.0
  for number, (expected, own) in enumerate(zip(vector['weights'], rounds), 1):
    moved = np.abs(flat(expected) - start).max()
    deviation = np.abs(flat(own) - flat(expected)).max() / moved
    print(f'round {number}: {deviation:.1e} of the way', end='')
    print('' if deviation < tolerance else '  differs')
    worst = max(worst, deviation)
  return worst


if __name__ == '__main__':
  with open(sys.argv[1]) as theirs, open(sys.argv[2]) as mine:
    sys.exit(int(compare(json.load(theirs), json.load(mine)) >= 1e-4))
