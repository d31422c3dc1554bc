"""Logistic regression on MNIST: Mukherjee et al., arXiv 2307.06306.

A convex problem: 10 clients with equal shares of the examples, i.i.d. or with
two labels each.
"""

from __future__ import annotations

from typing import Literal
from typing import Optional

from tasks import catalogue
from tasks import shared
from tasks.images import mnist
from tff_adaptive import parameters
from tff_adaptive.lazy import tff


@catalogue.task(
  'mnist_logistic',
  summary='Logistic regression on MNIST, a convex problem.',
  model='logistic regression, 7,850 weights',
  clients='10 of 6,000 digits (--mnist_logistic_num_clients)',
  files=catalogue.idx_files('mnist'),
  published=catalogue.Published(
    'Mukherjee et al., arXiv 2307.06306', 500, 10, 20
  ),
)
class MnistLogistic(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  partition: shared.Rule = 'iid'

  num_clients: parameters.Count = 10

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less their mean,
  divided by their deviation, as many PyTorch programs have them."""

  cache_dir: Optional[str] = None
  """Folder that contains the folder mnist with the four IDX files; by default
  ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 20."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return mnist.create(
      'mnist', mnist.build_logistic, batch_size=20, options=self.values
    )
