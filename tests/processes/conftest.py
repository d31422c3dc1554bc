"""Processes are tested in this project's own runtime."""

import pytest

from tff_adaptive import runtime


@pytest.fixture(autouse=True, scope='session')
def in_process_context():
  runtime.set_native_context()
