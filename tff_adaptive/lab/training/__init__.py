"""Training runs, from settings to a folder of results."""

from tff_adaptive.lab.flags.resolving import settings
from tff_adaptive.lab.training.experiment import run
from tff_adaptive.lab.training.loop.early_stopping import Result

__all__ = ['Result', 'run', 'settings']
