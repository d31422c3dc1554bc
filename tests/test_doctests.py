"""The examples in docstrings of public builders run as they are printed."""

import doctest
import importlib

import pytest

_MODULES = [
  'tff_adaptive.algorithms',
  'tff_adaptive.lab.flags.resolving',
  'tff_adaptive.lab.recording.hooks',
  'tff_adaptive.optimizers',
  'tff_adaptive.privacy.mechanism',
]


@pytest.mark.parametrize('module', _MODULES)
def test_examples_run(module, in_process_context):
  del in_process_context  # Restored after the examples that set a context.
  results = doctest.testmod(importlib.import_module(module))
  assert results.attempted
  assert not results.failed
