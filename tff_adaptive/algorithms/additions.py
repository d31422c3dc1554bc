"""The pieces that a method's own module adds to a process, by name."""

from __future__ import annotations

from typing import TypedDict

from tff_adaptive import processes
from tff_adaptive.lazy import tff


class Additions(TypedDict, total=False):
  """The pieces that a method adds, or puts in the place of those chosen.

  Attributes:
    client_optimizer, server_optimizer: In place of those that were asked for.
    exchange: What is exchanged beside the model.
    objective: What clients add to their loss.
  """

  client_optimizer: tff.learning.optimizers.Optimizer
  server_optimizer: tff.learning.optimizers.Optimizer
  exchange: processes.Exchange
  objective: processes.Objective
