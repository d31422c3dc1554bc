"""The board's workloads."""

import dataclasses
import pathlib
import re

import pytest

from tff_adaptive import errors
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.sweep import grids

_ALL = [w for group in workloads.GROUPS.values() for w in group]


@pytest.mark.parametrize('workload', _ALL, ids=lambda w: w.name)
def test_runs_are_evaluated_often_enough(workload):
  settings = (
    grids.Parser({}).parse({**workload.flags(), 'algorithm': 'fedavg'}).settings
  )
  assert settings.total_rounds == workload.rounds
  assert settings.total_rounds // settings.rounds_per_eval >= 50
  assert settings.total_rounds % settings.rounds_per_eval == 0
  assert settings.clients_per_round == workload.cohort
  longer = workload.flags(1.5)
  assert int(longer['total_rounds']) == 1.5 * workload.rounds
  assert longer['rounds_per_eval'] == workload.flags()['rounds_per_eval']


def test_names_and_hashes_are_different():
  assert len({w.name for w in _ALL}) == len(_ALL)
  assert len({w.hash for w in _ALL}) == len(_ALL)
  one = workloads.GROUPS['core'][0]
  for name, value in {'cohort': 3, 'rounds': 150, 'version': 3}.items():
    assert dataclasses.replace(one, **{name: value}).hash != one.hash


def test_twins_differ_in_the_generators_seed_alone():
  groups = workloads.GROUPS
  for one, twin in zip(groups['ten'], groups['twins'], strict=True):
    assert twin.options == {**one.options, 'seed': 1}
    assert (twin.task, twin.cohort, twin.rounds) == (
      one.task,
      one.cohort,
      one.rounds,
    )


def test_the_board_has_twenty_core_workloads_and_four_with_files():
  sizes = {group: len(found) for group, found in workloads.GROUPS.items()}
  assert sizes == {'core': 20, 'federated': 4, 'ten': 10, 'twins': 10}
  for group, found in workloads.GROUPS.items():
    assert {w.files for w in found} == {group == 'federated'}
    assert {w.version for w in found} == {2 if group == 'core' else 1}
    assert {t for w in found for t in w.traits} <= {*workloads.TRAITS}


def test_the_page_has_every_workload_as_it_is():
  page = pathlib.Path(__file__).parents[2] / 'docs' / 'board.md'
  rows = re.findall(
    r'^\| `(\w+)` \| `(\w+)` \| .* \| (\d+) of [\d,]+ \| (\d+) \|$',
    page.read_text(encoding='utf-8'),
    re.MULTILINE,
  )
  assert rows == [
    (w.name, w.task, f'{w.cohort}', f'{w.rounds}')
    for w in workloads.choose('core,federated')
  ]


def test_choosing():
  chosen = workloads.choose('hospitals,ten')
  assert [w.name for w in chosen[:2]] == ['hospitals', 'quadratics']
  assert len(chosen) == 10 and workloads.version_of(chosen) == 1
  assert workloads.version_of(workloads.choose('core')) == 2
  with pytest.raises(errors.SettingsError, match='two versions'):
    workloads.version_of(workloads.choose('core,hospitals'))
  with pytest.raises(errors.SettingsError, match="got 'hospital'"):
    workloads.choose('hospital')
