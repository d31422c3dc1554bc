"""Presets are what the tables of the papers' released code say."""

import pathlib
import re

import pytest

from tools import released_code

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_PAPERS = released_code.papers()


def _row(paper, setting):
  (row,) = [
    row for row in released_code.read(paper) if row['setting'] == setting
  ]
  return row


def test_every_paper_has_its_table_and_page():
  assert _PAPERS == ['fedada2', 'kim2024', 'mukherjee2023', 'reddi2021']
  navigation = (_ROOT / 'mkdocs.yml').read_text(encoding='utf-8')
  fidelity = (_ROOT / 'docs' / 'fidelity.md').read_text(encoding='utf-8')
  for paper in _PAPERS:
    assert (released_code.FOLDER / f'{paper}.md').is_file()
    assert f'released_code/{paper}.md' in navigation
    assert f'](released_code/{paper}.md)' in fidelity


@pytest.mark.parametrize('paper', _PAPERS)
def test_rows_are_whole(paper):
  rows = released_code.read(paper)
  settings = [row['setting'] for row in rows]
  assert len(rows) > 30 and len(set(settings)) == len(settings)
  for row in rows:
    assert row['setting'] and row['value'] and row['ours'], row
    assert row['verdict'] in ('same', 'departs', 'not found'), row
    assert (row['verdict'] == 'same') == (row['value'] == row['ours']), row
    assert (row['verdict'] == 'not found') == (row['value'] == 'not found'), row
    assert row['verdict'] == 'same' or row['reason'], row
    assert bool(row['flag']) == bool(row['presets']), row
    source = [row[c] for c in ('repository', 'commit', 'path', 'line')]
    if any(source):
      assert re.fullmatch(r'[\w-]+/[\w.-]+', row['repository']), row
      assert re.fullmatch(r'[0-9a-f]{40}', row['commit']), row
      assert row['path'] and re.fullmatch(r'\d+(-\d+)?', row['line']), row
    else:
      # What no code decides: nobody found it, or the paper says it.
      assert row['verdict'] == 'not found' or 'paper' in row['reason'], row


@pytest.mark.parametrize('paper', _PAPERS)
def test_presets_are_what_the_table_says(paper):
  assert not list(released_code.disagreements(released_code.read(paper)))


@pytest.mark.parametrize(
  'paper, setting, value',
  [
    # The five disagreements that tables like these would have shown.
    ('reddi2021', 'EMNIST AE: loss over the batch', 'mean'),
    ('fedada2', 'tags: labels', 'multiple'),
    ('mukherjee2023', 'LeNet: units', 'relu'),
    ('kim2024', 'SGDM: rate', '0.05'),
    ('reddi2021', 'weight of a client, next words', 'examples'),
  ],
)
def test_a_slip_is_seen(paper, setting, value):
  row = _row(paper, setting)
  assert not list(released_code.disagreements([row]))
  (first, *_) = released_code.disagreements([dict(row, ours=value)])
  assert f'--{row["flag"]}={row["ours"]}, the table {value}.' in first


def test_patterns_and_flags_that_do_not_exist_are_seen():
  row = _row('kim2024', 'SGDM: rate')
  (found,) = released_code.disagreements([dict(row, presets='kim2024/nobody')])
  assert "no preset is called 'kim2024/nobody'" in found
  (first, *_) = released_code.disagreements([dict(row, flag='no_such_flag')])
  assert 'not a flag of this run' in first
