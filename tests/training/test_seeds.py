"""Seeds are stable, and tell apart what they are for."""

import numpy as np

from tff_adaptive.lab.training import seeds as randomness


def test_stable_across_processes_and_versions():
  # A change here changes every recorded run.
  np.testing.assert_array_equal(
    randomness.seed_pair(7, 'client data', 3, 'writer_1'),
    [3683560589298371555, 8526955667739376482],
  )
  assert randomness.seed_32(7, 'initial weights') == 1189599135


def test_every_part_counts():
  draws = [
    (0, 'client data', 1, 'a'),
    (1, 'client data', 1, 'a'),
    (0, 'crops', 1, 'a'),
    (0, 'client data', 2, 'a'),
    (0, 'client data', 1, 'b'),
    (0, 'client data', 11),
    (0, 'client data', 1, 1),
    (0, 'client data', 1, '1'),
    (0, 'client data', '1', '1'),
  ]
  pairs = {tuple(randomness.seed_pair(*draw)) for draw in draws}
  assert len(pairs) == len(draws)
