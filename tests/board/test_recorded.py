"""Recorded targets and scores are those of the runs beside them."""

import pytest

from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads
from tools import board_tables

_FOLDER = board_tables.FOLDER


def test_targets_are_those_of_the_recorded_runs(tmp_path):
  recorded = references.FROZEN
  assert {*workloads.QUICK} <= {*references.read(recorded).quality}
  baselines = [
    entries.read(_FOLDER / 'baselines' / f'{name}.json')
    for name in spaces.BASELINES
  ]
  references.make(baselines, tmp_path / 'again.json')
  assert (tmp_path / 'again.json').read_bytes() == recorded.read_bytes()


@pytest.mark.exhaustive
@pytest.mark.parametrize('group', board_tables.GROUPS)
def test_scores_are_those_of_the_recorded_entries(group):
  file = _FOLDER / board_tables.FILES[group][0]
  standings = board_tables.standings_of(group)
  assert board_tables.csv_of(standings) == file.read_text(encoding='utf-8')
