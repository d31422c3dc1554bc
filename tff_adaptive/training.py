"""Training runs from Python.

  from tff_adaptive import training

  settings = training.settings(
    task='digits', algorithm='fedadam', total_rounds=5
  )
  result = training.run(settings)
  print(settings.folder, result.rows[-1])

Importing this module does not import TensorFlow; `run` does.
"""

from tff_adaptive.lab.training import Result
from tff_adaptive.lab.training import run
from tff_adaptive.lab.training import settings
from tff_adaptive.lab.training.loop.stopping import Stopped

__all__ = ['Result', 'Stopped', 'run', 'settings']
