"""Which cases of a test run in every check, and which with all tests."""

from collections.abc import Iterable
from typing import Any

import pytest


def exhaustive_but(
  fast: Iterable[Any],
  cases: Iterable[Any],
  slow: Iterable[Any] = (),
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
