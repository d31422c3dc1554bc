"""The build of tff_today with its .pth file, which pyproject.toml lacks."""

import os

import setuptools
from setuptools.command import build_py


class BuildWithPth(build_py.build_py):
  """A build of the module with the .pth file that imports it at start."""

  def run(self):
    super().run()
    self.copy_file(
      'tff_today.pth', os.path.join(self.build_lib, 'tff_today.pth')
    )


setuptools.setup(cmdclass={'build_py': BuildWithPth})
