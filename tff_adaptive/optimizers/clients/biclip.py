"""The BiClip client optimizer."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import clipping
from tff_adaptive.optimizers import registry


@registry.client_optimizer('biclip', printed='BiClip')
class BiClip(clipping.TwoSided):
  """The BiClip client optimizer: TailOPT, arXiv 2502.04164.

    x = x - learning_rate B(g)

  with B as in `clipping.TwoSided`. Small gradients are scaled up and large ones
  clipped, which approximates Adam without keeping a state. The defaults clip
  nothing.
  """

  step_text = 'x = x - learning_rate B(g)'
  clipped_name = 'g'

  learning_rate: parameters.Positive = 0.1
  """Step size, in units of x per gradient."""
