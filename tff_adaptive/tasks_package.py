"""The project's package `tasks`, whatever else is called so.

People have modules named tasks.py. Python takes the one that is first in its
path, which may be theirs; the parts of this package that need tasks import this
module first, which imports the right one. What only builds learning processes
leaves the name alone.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys


def claim() -> None:
  """Imports `tasks` from beside this package.

  Raises:
    ImportError: If another module of that name is imported already.
  """
  root = pathlib.Path(__file__).resolve().parents[1]
  spec = importlib.machinery.PathFinder.find_spec('tasks', [str(root)])
  if spec is None or spec.loader is None or spec.origin is None:
    return  # It is installed elsewhere, and found as any other package is.
  loaded = sys.modules.get('tasks')
  if loaded is not None:
    file = getattr(loaded, '__file__', None)
    if file is None or not os.path.samefile(file, spec.origin):
      raise ImportError(
        f'tff_adaptive needs its own package `tasks`, but {file or loaded} is '
        'imported under that name already: give that module another name, or '
        'import tff_adaptive.training before it.'
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
