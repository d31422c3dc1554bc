"""What is installed, from which files, in which versions."""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import tff_adaptive

_ROOT = pathlib.Path(__file__).resolve().parents[1]


def pins(name):
  text = (_ROOT / name).read_text(encoding='utf-8')
  return dict(re.findall(r'^([A-Za-z0-9._-]+)==([^;\s]+)', text, re.MULTILINE))


@pytest.mark.parametrize('more', ['dev', 'docs', 'gpu'])
def test_requirements_agree_and_are_complete_pins(more):
  locked = pins('requirements.txt')
  added = pins(f'requirements-{more}.txt')
  assert len(locked) > 50 and added
  for package in set(locked) & set(added):
    assert locked[package] == added[package], package
  text = (_ROOT / f'requirements-{more}.txt').read_text(encoding='utf-8')
  unpinned = [
    line
    for line in text.splitlines()
    if line and '==' not in line and not line.startswith(('#', '-r '))
  ]
  assert not unpinned


def test_the_version_stands_in_one_place():
  written = []
  for path in _ROOT.glob('*'):
    if path.suffix in ('.py', '.toml', '.cfg') or path.name == 'BUILD':
      written += re.findall(
        r'^.*version = "\d+\.\d+.*$', path.read_text(), re.MULTILINE
      )
  # mypy's is the version of Python.
  assert written == ['python_version = "3.10"']
  assert re.fullmatch(r'\d+\.\d+\.\d+', tff_adaptive.__version__)


@pytest.mark.slow
def test_wheel_and_sdist(tmp_path):
  tree = tmp_path / 'tree'
  ignored = shutil.ignore_patterns(
    '.git', '.venv', 'build', 'dist', 'runs', 'bazel-*', '*.egg-info'
  )
  shutil.copytree(_ROOT, tree, ignore=ignored, symlinks=True)
  for command in (
    ['-m', 'build', '--no-isolation', '--outdir', 'dist'],
    ['tools/check_dist.py', 'dist'],
  ):
    done = subprocess.run(
      [sys.executable, *command],
      cwd=tree,
      capture_output=True,
      text=True,
      check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
  assert 'installs and runs' in done.stdout
  (sdist,) = (tree / 'dist').glob('*.tar.gz')
  assert tff_adaptive.__version__ in sdist.name
