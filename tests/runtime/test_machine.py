"""Cores, memory and processes, as Linux and as macOS tell them."""

import os
import pathlib
import re

import psutil
import pytest

from tests import programs
from tff_adaptive.runtime import machine

_ROOT = programs.ROOT
# What macOS has not: the system calls, psutil's function and the folder.
_AS_ON_MACOS = """
import os, pathlib, sys
import psutil
del os.sched_getaffinity, os.sched_setaffinity, psutil.Process.cpu_affinity
from tff_adaptive.runtime import machine
machine._PROC = pathlib.Path('/there/is/none')
"""


@pytest.fixture(name='macos')
def macos_fixture(monkeypatch):
  monkeypatch.delattr(os, 'sched_getaffinity')
  monkeypatch.delattr(os, 'sched_setaffinity')
  monkeypatch.delattr(psutil.Process, 'cpu_affinity')
  monkeypatch.setattr(machine, '_PROC', pathlib.Path('/there/is/none'))
  machine.boot.cache_clear()
  yield
  machine.boot.cache_clear()


def test_cores():
  assert machine.cores() == sorted(os.sched_getaffinity(0))


@pytest.mark.usefixtures('macos')
def test_cores_on_macos():
  assert machine.cores() == list(range(os.cpu_count()))
  machine.use_cores([0])  # Changes nothing there.


def test_a_thread_and_those_that_it_starts_keep_to_cores():
  code = (
    'import os\nfrom tff_adaptive.runtime import machine\n'
    'first, *_ = machine.cores()\nmachine.use_cores([first])\n'
    'assert machine.cores() == [first]\n'
    'assert os.sched_getaffinity(0) == {first}'
  )
  programs.run('-c', code, cwd=_ROOT)


@pytest.mark.parametrize('system', ['linux', 'macos'])
def test_processes(system, request):
  if system == 'macos':
    request.getfixturevalue('macos')
  assert machine.boot() == machine.boot()
  assert machine.processor()
  assert 0 < machine.available_memory() < 1 << 50


def test_nobody_else_looks_them_up_as_linux_has_them():
  for folder in ('tff_adaptive', 'tasks'):
    for path in (_ROOT / folder).rglob('*.py'):
      if path.name != 'machine.py':
        found = re.findall(r"'/proc/|\.sched_\w+", path.read_text('utf-8'))
        assert not found, (path, found)


@pytest.mark.exhaustive
def test_a_sweep_as_on_macos(tmp_path):
  """Both the sweep's own process and its workers find what macOS has."""
  (tmp_path / 'sitecustomize.py').write_text(_AS_ON_MACOS, encoding='utf-8')
  words = ['sweep', '--task=digits', '--axis=seed=0,1', '--total_rounds=2']
  words += ['--workers=2', '--experiment_name=s']
  words += [f'--root_output_dir={tmp_path}']
  path = f'{tmp_path}:{_ROOT}'
  done = programs.run(programs.MAIN, *words, cwd=tmp_path, PYTHONPATH=path)
  assert '(2/2)' in done.stdout + done.stderr
