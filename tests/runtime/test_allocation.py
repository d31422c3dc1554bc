"""Freed memory that is kept, in processes of their own."""

import platform
import subprocess
import sys

import pytest

_STEPS = """
import resource, sys, threading
import numpy as np
from tff_adaptive.runtime import machine

if 'keep' in sys.argv:
  machine.keep_freed_memory()


def step():
  gradient = np.ones(5_000_000, np.float32)
  change = gradient * 2
  del gradient
  change += 1


def faults():
  return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def steps():
  step()
  before = faults()
  for _ in range(10):
    step()
  print(faults() - before)


thread = threading.Thread(target=steps)
thread.start()
thread.join()
"""


def _faults(*arguments, environment=None):
  found = subprocess.run(
    [sys.executable, '-c', _STEPS, *arguments],
    env=environment or {},
    stdout=subprocess.PIPE,
    check=True,
  )
  return int(found.stdout)


@pytest.mark.skipif(
  platform.libc_ver()[0] != 'glibc', reason='needs the C library glibc'
)
def test_steps_use_the_memory_of_those_before():
  # Both arrays have 4,883 pages of 4 KiB.
  assert _faults('keep') < 1_000 < _faults()
  # What the environment sets is left alone.
  chosen = {'MALLOC_ARENA_TEST': '8'}
  assert _faults('keep', environment=chosen) > 1_000
