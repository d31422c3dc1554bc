"""The page of items says what there is."""

import pathlib
import re
import subprocess

import pytest

from tff_adaptive.lab.flags import presets
from tff_adaptive.lab.sweep import flags as sweep_flags
from tff_adaptive.lab.sweep import grids

_ROOT = pathlib.Path(__file__).resolve().parents[1]
_TEXT = (_ROOT / 'docs' / 'fidelity.md').read_text(encoding='utf-8')
_ROWS = re.findall(r'^\| (?!item|---)(.+) \| (.+?) \| (.+) \|$', _TEXT, re.M)
_PAGES = {path.parent.name for path in _ROOT.glob('results/*/README.md')}
_PAGES -= {'vectors'}  # For other implementations, not of a paper.
_STATES = {'faithful', 'departs', 'runs', 'recorded', 'stand-in', 'not here'}


def test_every_item_has_a_state():
  assert len(_ROWS) > 100
  assert {state for _, state, _ in _ROWS} == _STATES


def test_presets_that_are_named_exist():
  names = presets.names()
  named = re.findall(r'`P=(\S+?)`', _TEXT)
  assert len(named) > 15
  assert set(named) <= set(names)


def test_grids_that_are_named_exist():
  named = set(re.findall(r'--grid=([\w/]+)', _TEXT)) - {'reddi2021/TASK'}
  assert named and named <= grids.of_papers().keys()


def test_what_is_recorded_is_linked_and_what_is_not_is_not():
  for item, state, how in _ROWS:
    links = re.findall(r'\]\(\.\./results/(\w+)/README\.md\)', how)
    assert set(links) <= _PAGES, item
    if state in ('runs', 'not here', 'faithful'):
      assert not links, item
  for page in _PAGES:
    assert f'results/{page}' in _TEXT, page


_STUDIES = re.findall(r'^(?:\w+=\S+ )*(results/\w+/run\.sh)(.*)$', _TEXT, re.M)


@pytest.mark.parametrize('script, arguments', _STUDIES)
def test_studies_exist(script, arguments):
  text = (_ROOT / script).read_text(encoding='utf-8')
  assert 'results/studies.sh' in text
  study = arguments.split()[2:]
  if study:
    assert re.search(rf'^{study[0]}\)$', text, re.M), study


@pytest.mark.slow
def test_every_sweep_of_a_study_can_be_parsed(tmp_path, monkeypatch):
  """Each script with a `main.py` that only reads its flags."""
  monkeypatch.chdir(_ROOT)
  recorder = tmp_path / 'python'
  recorder.write_text(
    '#!/bin/sh\n'
    '[ "$1" = benchmarks/step_studies.py ] && echo 0.05 && exit\n'
    f'printf "%s\\n" "$*" >> {tmp_path}/calls\n'
  )
  recorder.chmod(0o755)
  assert len(_STUDIES) == 14
  for script, arguments in _STUDIES:
    words = [
      w.replace('DATA', 'd').replace('RUNS', f'{tmp_path}/r')
      for w in arguments.split()
    ]
    subprocess.run(
      ['sh', str(_ROOT / script), *words],
      env={'PYTHON': str(recorder), 'PATH': '/usr/bin:/bin'},
      check=True,
    )
  calls = (tmp_path / 'calls').read_text().splitlines()
  sweeps = [c.split()[2:] for c in calls if c.startswith('main.py sweep')]
  assert len(sweeps) > 50
  for words in sweeps:
    assert sweep_flags.parse(words).points
