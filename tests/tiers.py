"""Which cases of a test run in every check, and which with all tests."""

import re
import zlib
from collections.abc import Iterable
from typing import Any

import pytest

import tasks

# Tasks that share code and model with another: the first three with
# cifar10_image, ag_news and mnist_character, then networks for images, and
# words for tags.
_LIKE_OTHERS = ('cifar100_image', 'dbpedia', 'fmnist', 'gld23k', 'zipf_tags')


def exhaustive_but(
  fast: Iterable[Any], cases: Iterable[Any], slow: Iterable[Any] = ()
) -> list[Any]:
  """Marks cases as exhaustive, but for those that every check runs.

  Args:
    fast: Cases that every check runs; each must be among `cases`.
    cases: All, as `pytest.mark.parametrize` takes them.
    slow: Cases among these that only `make test-slow` runs.
  """
  fast, cases, slow = list(fast), list(cases), list(slow)
  assert all(case in cases for case in fast), fast
  return [
    case
    if case in fast
    else pytest.param(
      *(case if isinstance(case, tuple) else (case,)),
      marks=pytest.mark.slow if case in slow else pytest.mark.exhaustive,
    )
    for case in cases
  ]


def every_task() -> list[Any]:
  """Returns tasks' names; every check leaves out those like another."""
  names = tasks.names()
  return exhaustive_but([n for n in names if n not in _LIKE_OTHERS], names)


def in_share(path: str, share: str) -> bool:
  """Returns whether a test file belongs to a share of all, such as '2/4'.

  Args:
    path: The file, from the tests' folder.
    share: The share's number, and how many there are.

  Raises:
    ValueError: If it is no share.
  """
  found = re.fullmatch(r'(\d+)/(\d+)', share)
  if not found or not 1 <= int(found[1]) <= int(found[2]):
    raise ValueError(f'A share is like 1/4 or 4/4, got {share!r}.')
  number, count = int(found[1]), int(found[2])
  return zlib.crc32(path.encode('utf-8')) % count == number - 1
