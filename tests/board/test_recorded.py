"""Recorded scores are those of the runs beside them."""

import pytest

from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import workloads
from tools import board_tables


def test_every_recorded_workload_has_targets():
  found = references.read(references.FROZEN).quality
  assert {*found} == {
    w for group in board_tables.GROUPS.values() for w in group
  }
  assert {*workloads.QUICK} <= {*found}


@pytest.mark.exhaustive
@pytest.mark.parametrize('group', board_tables.GROUPS)
def test_scores_are_those_of_the_recorded_entries(group):
  for name, text in board_tables.tables_of(group).items():
    assert text == (board_tables.FOLDER / name).read_text('utf-8'), name
