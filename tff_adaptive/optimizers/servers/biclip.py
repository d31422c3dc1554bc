"""The BiClip server optimizer."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import clipping
from tff_adaptive.optimizers import registry


@registry.server_optimizer('biclip', printed='BiClip', makes_method=False)
class ServerBiClip(clipping.TwoSided):
  """The BiClip server optimizer: TailOPT, arXiv 2502.04164.

    x = x + learning_rate B(Delta)

  with Delta the mean client update (the gradient passed in is -Delta) and B as
  in `clipping.TwoSided`. The mean is clipped, not each client's update. The
  defaults clip nothing.
  """

  step_text = 'x = x + learning_rate B(Delta)'
  clipped_name = 'Delta'

  learning_rate: parameters.Positive = 1.0
  """Server step, in units of Delta."""
