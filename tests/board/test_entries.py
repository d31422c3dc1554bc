"""Entries and references as files, and what is refused of them."""

import dataclasses
import json
import math

import numpy as np
import pytest

from tests.board import made_up
from tff_adaptive import errors
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import records
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import scoring


def rewrite(path, change):
  """Changes the text of an entry."""
  arrays = dict(np.load(path))
  about = json.loads(str(arrays['about']))
  change(about)
  np.savez_compressed(path, **{**arrays, 'about': np.array(json.dumps(about))})


@pytest.fixture(name='path')
def path_fixture(tmp_path):
  path = tmp_path / 'entries' / 'fedprox.npz'
  entries.write(path, made_up.entry('fedprox', 1.0))
  return path


def test_entries_are_read_as_they_are_written(path):
  again = entries.read(path)
  assert made_up.content(again) == made_up.content(
    made_up.entry('fedprox', 1.0)
  )
  (maker,) = again.makers
  assert maker.startswith('tff_adaptive ') and 'machine ' in maker


def test_a_damaged_file_is_named(path):
  content = bytearray(path.read_bytes())
  middle = len(content) // 2
  content[middle : middle + 100] = bytes(100)
  path.write_bytes(content)
  with pytest.raises(errors.SettingsError, match=r'fedprox\.npz cannot be'):
    entries.read(path)


@pytest.mark.parametrize(
  'change, message',
  [
    (lambda e: e.update(board=0), 'is of version 0'),
    (lambda e: e.pop('board'), 'is of version None'),
    (lambda e: e.pop('protocol'), 'cannot be read as an entry'),
    (lambda e: e['protocol'].update(more=1), 'cannot be read as an entry'),
    (
      lambda e: e['space'].pop('source'),
      r'The space of .*fedprox\.npz is no search space',
    ),
    (
      lambda e: e.update(method='pulled'),
      "'pulled', and there is no such method",
    ),
    (lambda e: e.update(method=r'\input{x}'), 'no such method'),
    (
      lambda e: e['space']['dimensions'].update(
        digits_alpha={'values': [1000]}
      ),
      "tunes 'digits_alpha'",
    ),
    (lambda e: e['workloads']['hospitals'].update(hash='x'), 'another version'),
    (
      lambda e: e['workloads'].update(nowhere=e['workloads'].pop('hospitals')),
      'got run',
    ),
    (
      lambda e: e['workloads'].update(nowhere={'hash': 'x', 'made_with': {}}),
      r'fedprox\.npz has runs on another version of the workload nowhere',
    ),
    (lambda e: e['protocol'].update(trials='x'), 'cannot be read as an entry'),
    (lambda e: e['protocol'].update(trials=10**6), 'seed1000'),
    (lambda e: e['protocol'].update(seeds=[9]), 'seed9'),
    (
      lambda e: e['protocol'].update(budgets=[3], in_blocks=True),
      'cannot be read as an entry',
    ),
  ],
)
def test_what_is_no_entry_of_this_version_is_refused(path, change, message):
  rewrite(path, change)
  with pytest.raises(errors.SettingsError, match=message):
    entries.read(path)
  found, complaints = entries.find(path.parent)
  assert not found and len(complaints) == 1


@pytest.mark.parametrize(
  'name', ['hospitals-../x-seed1', 'hospitals-99-seed1', 'digits-0-seed1']
)
def test_runs_of_other_names_are_refused(path, name):
  entry = made_up.entry('fedprox', 1.0)
  runs = entry.records['hospitals']
  runs[name] = runs['hospitals-0-seed1000']
  entries.write(path, entry)
  with pytest.raises(errors.SettingsError, match='got run'):
    entries.read(path)


def test_runs_with_fewer_costs_than_losses_are_refused(path):
  entry = made_up.entry('fedprox', 1.0)
  runs = entry.records['hospitals']
  name = 'hospitals-1-seed1'
  runs[name] = dataclasses.replace(runs[name], costs=runs[name].costs[:-1])
  entries.write(path, entry)
  with pytest.raises(errors.SettingsError, match='cannot be read as an entry'):
    entries.read(path)


@pytest.mark.parametrize('content', [b'', b'{', b'PK\x03\x04', b'\x93NUMPY'])
def test_other_files_are_refused(path, content):
  path.write_bytes(content)
  with pytest.raises(errors.SettingsError, match=r'fedprox\.npz'):
    entries.read(path)


def test_nothing_is_unpickled(path):
  """A pickle could run anything."""
  np.savez(path, about=np.array([print], dtype=object))
  with pytest.raises(errors.SettingsError, match='allow_pickle=False'):
    entries.read(path)


def test_other_workloads_are_kept():
  older = made_up.entry('fedprox', 1.0)
  newer = made_up.entry('fedprox', 2.0, workloads=('hospitals', 'digits'))
  merged = newer.merged(older)
  assert set(merged.records) == {*made_up.WORKLOADS, 'digits'}
  assert merged.records['hospitals'] is newer.records['hospitals']
  assert merged.records['synthetic'] is older.records['synthetic']


def test_tuned_settings_are_those_that_tuning_selects():
  entry = made_up.entry('fedprox', 1.0)
  shares = {k: entry.tuned('hospitals', k, 'rounds') for k in (1, 4)}
  assert len(shares[1]) == 4 and len(shares[4]) == 1
  assert sum(s.share for s in shares[1]) == pytest.approx(1)
  best = entry.repeats('hospitals', 1)
  np.testing.assert_array_equal(
    shares[4][0].runs.loss, [r.losses for r in best]
  )
  assert entry.tuned('hospitals', 0, 'rounds')[0].share == 1.0


def test_references_are_made_of_the_baselines(tmp_path):
  baselines = made_up.baselines()
  path = tmp_path / 'references.json'
  references.make(baselines, path)
  found = references.read(path)
  for workload in made_up.WORKLOADS:
    finals = {
      e.name: [r.final for r in e.repeats(workload, 1)] for e in baselines
    }
    q = min(np.median(losses) for losses in finals.values())
    of = found.quality[workload]
    start = float(records.rounded(2.1))
    assert of['reference'] == q and of['untrained'] == start
    assert finals[of['of']] and np.median(finals[of['of']]) == q
    targets = [start - f * (start - q) for f in (0.5, 0.7, 0.85, 0.95, 1.0)]
    for unit, measure in ((1, 'cross_device'), (5, 'bytes')):
      reference = found.of(workload, measure)
      reached = [c is not None for c in of['costs'][measure]]
      assert of['targets'] == pytest.approx(targets)
      assert [*reference.targets] == pytest.approx(np.array(targets)[reached])
      costs = scoring.reference_costs(
        reference.targets,
        {
          e.name: records.joined(e.repeats(workload, 1), 'cross_device')
          for e in baselines
        },
      )
      np.testing.assert_allclose(reference.costs, unit * np.array(costs))
      assert all(map(math.isfinite, reference.costs))


@pytest.mark.parametrize('text', ['', '[]', '{"board": 1}', '{"board": 0}'])
def test_other_targets_are_refused(tmp_path, text):
  path = tmp_path / 'references.json'
  path.write_text(text)
  with pytest.raises(errors.SettingsError, match=r'references\.json'):
    references.read(path)


def test_workloads_without_targets_are_told(tmp_path):
  path = tmp_path / 'references.json'
  references.make(made_up.baselines(), path)
  found = references.read(path)
  assert found.known(['digits', 'hospitals']) == ['hospitals']
  with pytest.raises(errors.SettingsError, match='no targets for digits'):
    found.known(['digits'])


def test_quick_entries_have_another_name():
  entry = made_up.entry('fedprox', 1.0, protocol=entries.QUICK)
  assert entry.name == 'fedprox (quick)'
