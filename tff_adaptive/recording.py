"""Public modules for recording runs in programs of your own.

  from tff_adaptive.recording import client_state
  from tff_adaptive.recording import hooks

`client_state` turns methods with client state into ordinary learning processes,
`hooks` are listeners to a run, `releases` wraps them as TFF's release managers,
`tensorboard` and `trackers` are hooks for dashboards.
"""

from tff_adaptive.lab.recording import client_state_process as client_state
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import releases
from tff_adaptive.lab.recording import tensorboard
from tff_adaptive.lab.recording import trackers

__all__ = [
  'client_state',
  'hooks',
  'releases',
  'tensorboard',
  'trackers',
]
