"""The pieces that a method contributes to a process, by name."""

from __future__ import annotations

from typing import TypedDict

from tff_adaptive import processes
from tff_adaptive.lazy import tff


class Additions(TypedDict, total=False):
  """The pieces that a method adds to a process or replaces.

  Attributes:
    client_optimizer, server_optimizer: Replacements of the chosen optimizers.
    exchange: The statistics exchanged beside the model.
    objective: The terms added to the clients' loss.
  """

  client_optimizer: tff.learning.optimizers.Optimizer
  server_optimizer: tff.learning.optimizers.Optimizer
  exchange: processes.Exchange
  objective: processes.Objective
