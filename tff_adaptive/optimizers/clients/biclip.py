"""BiClip on a client."""

from __future__ import annotations

from tff_adaptive import parameters
from tff_adaptive.optimizers import clipping
from tff_adaptive.optimizers import registry


@registry.client_optimizer('biclip', printed='BiClip')
class BiClip(clipping.TwoSided):
  """BiClip for clients: TailOPT, arXiv 2502.04164.

    x = x - learning_rate B(g)

  with B as in `clipping.TwoSided`. Small gradients are lifted and large ones
  are cut, which resembles Adam without a state. The defaults clip nothing.
  """

  step_text = 'x = x - learning_rate B(g)'
  clipped_name = 'g'

  learning_rate: parameters.Positive = 0.1
  """Step size, in units of x per gradient."""
