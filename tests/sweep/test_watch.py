"""What a sweep gives up on."""

import pytest

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.sweep import worker as watch


def show(looking, row):
  looking.round(hooks.Round(row=row))


def test_given_up_on_what_is_not_finite():
  looking = watch.Watch(divergence_factor=0)
  show(looking, {'round': 0, 'validation/loss': 2.0})
  show(looking, {'round': 1, 'train/loss': 1e30})
  with pytest.raises(watch.DivergedError, match='is nan'):
    show(looking, {'round': 2, 'train/loss': float('nan')})
  looking = watch.Watch(divergence_factor=10)
  show(looking, {'round': 0, 'validation/loss': 2.0})
  left_out = {'clients/count': 2, 'clients/rejected': 2}
  for number in (1, 2):
    show(looking, {'round': number, 'train/loss': 1.0, **left_out})
  with pytest.raises(watch.DivergedError, match='no update'):
    show(looking, {'round': 3, 'train/loss': 1.0, **left_out})


def test_a_run_that_goes_on_is_judged_by_all_its_rounds():
  """Killed after a round more than was saved: that one is run again."""
  bad = [{'round': n, 'train/loss': 100.0} for n in range(6)]
  first = {'round': 0, 'validation/loss': 2.0}
  looking = watch.Watch(divergence_factor=10)
  looking.look_back([first, {'round': 1, 'train/loss': 1.0}, bad[2], bad[3]])
  show(looking, bad[3])
  with pytest.raises(watch.DivergedError, match='round 4'):
    show(looking, bad[4])
  looking = watch.Watch(divergence_factor=10)
  with pytest.raises(watch.DivergedError, match='round 3'):
    looking.look_back([first, *bad[1:4]])


def test_one_bad_round_is_no_divergence():
  looking = watch.Watch(divergence_factor=10)
  show(looking, {'round': 0, 'validation/loss': 2.0})
  for number in range(1, 10):
    show(looking, {'round': number, 'train/loss': 100.0 if number % 3 else 1.0})
