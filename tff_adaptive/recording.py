"""Public modules for recording runs in programs of your own.

  from tff_adaptive.recording import hooks

`hooks` are listeners to a run, `tensorboard` and `trackers` are hooks for
dashboards.
"""

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import tensorboard
from tff_adaptive.lab.recording import trackers

__all__ = ['hooks', 'tensorboard', 'trackers']
