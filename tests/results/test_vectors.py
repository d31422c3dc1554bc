"""Vectors for others: made again, told apart, and checked as the page says."""

import itertools
import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

from tests import programs
from tests import tiers
from tff_adaptive import algorithms

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FOLDER = _ROOT / 'results' / 'vectors'
sys.path.insert(0, str(_ROOT / 'tools'))


def read(name):
  return json.loads((_FOLDER / f'{name}.json').read_text(encoding='utf-8'))


def flat(weights):
  return np.concatenate([np.ravel(w) for w in weights])


def test_every_method_has_one_and_none_is_anothers():
  vectors = {path.stem: read(path.stem) for path in _FOLDER.glob('*.json')}
  assert {*vectors} == {*algorithms.names()}
  ends = {name: flat(v['weights'][-1]) for name, v in vectors.items()}
  for name, vector in vectors.items():
    assert np.abs(ends[name] - flat(vector['start'])).max() > 0.01, name
  for one, other in itertools.combinations(ends, 2):
    if len(ends[one]) == len(ends[other]):
      assert np.abs(ends[one] - ends[other]).max() > 1e-5, (one, other)


@pytest.mark.parametrize(
  'name', tiers.exhaustive_but(['fedadam', 'scaffold'], algorithms.names())
)
def test_vectors_are_made_again(in_process_context, name):
  del in_process_context
  import make_vectors  # pylint: disable=g-import-not-at-top

  recorded = read(name)
  made = json.loads(json.dumps(make_vectors.vector(name)))
  start = flat(recorded['start'])
  for before, now in zip(recorded['weights'], made['weights'], strict=True):
    moved = np.abs(flat(before) - start).max()
    np.testing.assert_allclose(flat(now), flat(before), atol=2e-5 * moved)
  del recorded['weights'], made['weights']
  assert made == recorded


@pytest.fixture(name='program')
def program_fixture(tmp_path):
  """The page's FedAdam, and a folder to run it in."""
  page = (_FOLDER / 'README.md').read_text(encoding='utf-8')
  shutil.copytree(_FOLDER, tmp_path / 'results' / 'vectors')
  (code,) = re.findall(r'```python\n(.*?)```', page, re.DOTALL)
  return tmp_path, code


@pytest.mark.parametrize(
  'right, wrong, passes',
  [
    ('', '', True),
    ("np.full_like(w, h['server_adaptivity'] ** 2)", 'np.zeros_like(w)', False),
    (" + (1 - h['beta_2']) * delta**2", ' + delta**2', False),
    ('weights=sizes', 'weights=None', False),
  ],
)
def test_the_checker_tells_fedadam_from_its_neighbours(
  program, right, wrong, passes
):
  folder, code = program
  assert right in code
  (folder / 'mine.py').write_text(code.replace(right, wrong) if right else code)
  programs.run('mine.py', cwd=folder)
  vectors = 'results/vectors'
  words = (f'{vectors}/check.py', f'{vectors}/fedadam.json', 'mine.json')
  checked = programs.run(*words, code=0 if passes else 1, cwd=folder)
  assert ('differs' in checked.stdout) == (not passes)
  assert checked.stdout.count('round') == 3
