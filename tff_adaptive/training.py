"""A training run by one call.

  from tff_adaptive import training

  settings = training.settings(
    task='digits', algorithm='fedadam', total_rounds=5
  )
  result = training.run(settings)
  print(settings.folder, result.rows[-1])

Importing this imports no TensorFlow; `run` does.
"""

from tff_adaptive.lab.training import Result
from tff_adaptive.lab.training import run
from tff_adaptive.lab.training import settings

__all__ = ['Result', 'run', 'settings']
