"""What a program of one's own uses of a run's recording.

  from tff_adaptive.recording import client_state
  from tff_adaptive.recording import hooks

`client_state` makes ordinary learning processes of methods whose clients keep
a state, `hooks` are listeners to a run, `releases` makes TFF's release managers
of them, `tensorboard` and `trackers` are hooks for dashboards.
"""

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import releases
from tff_adaptive.lab.recording import tensorboard
from tff_adaptive.lab.recording import trackers
from tff_adaptive.lab.recording.client_state import (
  learning_process as client_state,
)

# The module's name before clients' states had one name everywhere.
remembering = client_state

__all__ = [
  'client_state',
  'hooks',
  'releases',
  'remembering',
  'tensorboard',
  'trackers',
]
