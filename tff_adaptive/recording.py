"""Public modules for recording runs in programs of your own.

  from tff_adaptive.recording import client_state
  from tff_adaptive.recording import hooks

`client_state` turns methods with client state into ordinary learning processes,
`hooks` are listeners to a run, `releases` wraps them as TFF's release managers,
`tensorboard` and `trackers` are hooks for dashboards.
"""

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import releases
from tff_adaptive.lab.recording import tensorboard
from tff_adaptive.lab.recording import trackers
from tff_adaptive.lab.recording.client_state import (
  learning_process as client_state,
)

# Former name of `client_state`.
remembering = client_state

__all__ = [
  'client_state',
  'hooks',
  'releases',
  'remembering',
  'tensorboard',
  'trackers',
]
