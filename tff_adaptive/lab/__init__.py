"""The laboratory: everything from a command line to a figure.

It stands on the library (`optimizers`, `processes`, `algorithms`, `privacy`)
and on `runtime`, neither of which knows of it.
"""

import importlib
import os
import pathlib
import sys


def _claim_tasks() -> None:
  """Imports the package `tasks` next to this package, under its common name.

  Users may have a module tasks.py, which Python imports instead if it is first
  in the path. Parts that only build learning processes do not need the name.

  Raises:
    ImportError: If another module of this name was imported before.
  """
  root = str(pathlib.Path(__file__).resolve().parents[2])
  sys.path.insert(0, root)
  try:
    tasks = importlib.import_module('tasks')
  finally:
    sys.path.remove(root)
  file = getattr(tasks, '__file__', None)
  own = os.path.join(root, 'tasks', '__init__.py')
  if file is None or not os.path.samefile(file, own):
    raise ImportError(
      f'tff_adaptive needs its own package `tasks`, but {file or tasks} is '
      'imported under that name already: rename that module, or import '
      'tff_adaptive.training before it.'
    )


_claim_tasks()
