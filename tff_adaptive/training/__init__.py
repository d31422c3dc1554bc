"""One run: cohorts, data, rounds, evaluation, stopping, resume.

  from tff_adaptive import training

  settings = training.settings(
    task='digits', algorithm='fedadam', total_rounds=5
  )
  result = training.run(settings)
  print(settings.folder, result.rows[-1])

Importing this imports no TensorFlow; `run` does.
"""

from tff_adaptive.flags.resolving import settings
from tff_adaptive.training.experiment import run
from tff_adaptive.training.result import Result

__all__ = ['Result', 'run', 'settings']
