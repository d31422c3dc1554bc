"""Shares of the tests."""

import pathlib

import pytest

from tests import tiers


def test_every_file_is_in_one_share_and_shares_are_of_like_size():
  folder = pathlib.Path(__file__).parent
  paths = [p.relative_to(folder).as_posix() for p in folder.rglob('test_*.py')]
  shares = [f'{number}/4' for number in range(1, 5)]
  sizes = [sum(tiers.in_share(p, share) for p in paths) for share in shares]
  assert sum(sizes) == len(paths)
  assert min(sizes) > len(paths) / 8
  for path in paths:
    assert sum(tiers.in_share(path, share) for share in shares) == 1


@pytest.mark.parametrize('share', ['0/4', '5/4', '1', 'half', '1/0', '-1/4'])
def test_what_is_no_share_is_refused(share):
  with pytest.raises(ValueError, match='A share is like 1/4'):
    tiers.in_share('test_main.py', share)
