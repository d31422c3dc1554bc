"""The import of the project's package `tasks` under its common name.

Users may have a module tasks.py, which Python imports instead if it is first in
the path. Parts of this package that need tasks import this module first, which
imports the right one. Parts that only build learning processes do not need the
name.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys


def claim() -> None:
  """Imports the package `tasks` next to this package.

  Raises:
    ImportError: If another module of this name was imported before.
  """
  root = pathlib.Path(__file__).resolve().parents[1]
  spec = importlib.machinery.PathFinder.find_spec('tasks', [str(root)])
  if spec is None or spec.loader is None or spec.origin is None:
    return  # Installed elsewhere, and found like any other package.
  loaded = sys.modules.get('tasks')
  if loaded is not None:
    file = getattr(loaded, '__file__', None)
    if file is None or not os.path.samefile(file, spec.origin):
      raise ImportError(
        f'tff_adaptive needs its own package `tasks`, but {file or loaded} is '
        'imported under that name already: rename that module, or import '
        'tff_adaptive.training before it.'
      )
    return
  module = importlib.util.module_from_spec(spec)
  sys.modules['tasks'] = module
  try:
    spec.loader.exec_module(module)
  except BaseException:
    del sys.modules['tasks']
    raise


claim()
