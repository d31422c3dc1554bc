"""Fixtures of the drills."""

import pytest

from tests.reliability import drills


@pytest.fixture(name='launcher')
def launcher_fixture(tmp_path):
  """Starts the program in an empty folder, as often as one likes."""
  launcher = drills.Launcher(tmp_path)
  yield launcher
  launcher.close()
