"""How many threads TensorFlow gives an operation."""

import os
import subprocess
import sys

import pytest

from tff_adaptive import runtime


def threads(*lines, env=None):
  """Runs lines in a Python of its own; returns what they show."""
  program = '\n'.join(
    [
      'import tensorflow as tf',
      'from tff_adaptive import runtime',
      'from tff_adaptive.runtime.engine import resources',
      *lines,
      'print(resources.threads_per_operation(), flush=True)',
    ]
  )
  return subprocess.run(
    [sys.executable, '-c', program],
    env={**os.environ, **(env or {})},
    check=False,
    capture_output=True,
    text=True,
  )


@pytest.mark.exhaustive
def test_it_is_set_once():
  done = threads(
    'runtime.set_threads_per_operation()',
    'tf.constant(1.0) + 1',
    'runtime.set_threads_per_operation(1)',
    'try:',
    '  runtime.set_threads_per_operation(2)',
    'except runtime.RuntimeFailure as e:',
    '  print(e)',
    env={'TF_NUM_INTRAOP_THREADS': '3'},
  )
  assert done.stdout.splitlines() == [
    'TensorFlow has computed in this process with 1 threads per operation and '
    'cannot change that to 2.',
    '1',
  ]


@pytest.mark.exhaustive
def test_as_many_as_cores_is_said():
  done = threads('tf.constant(1.0)', 'runtime.set_threads_per_operation()')
  assert 'as many threads per operation as there are cores and' in done.stderr
  again = threads(
    'tf.constant(1.0)',
    'runtime.set_threads_per_operation(3)',
    env={'TF_NUM_INTRAOP_THREADS': '3'},
  )
  assert again.stdout.strip() == '3'


def test_none_are_refused():
  with pytest.raises(ValueError, match='at least 1, got 0'):
    runtime.set_threads_per_operation(0)
