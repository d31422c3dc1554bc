"""Fashion-MNIST over clients, by label skew.

As in Kim et al., arXiv 2306.11201: 100 clients of 500 examples by Dirichlet
label skew, and a shallow convolutional network.
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
  'fmnist',
  summary='Classify the clothes of Fashion-MNIST, split by label skew.',
  model='CNN with dropout, 21,840 weights',
  clients='100 of 500 images (--fmnist_num_clients)',
  files=catalogue.idx_files('fashion_mnist'),
  published=catalogue.Published('Kim et al., arXiv 2306.11201', 1000, 10, 64),
)
class FashionMnist(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  num_clients: parameters.Count = 100

  examples_per_client: Optional[parameters.Count] = 500
  """Number of examples per client."""

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less 0.1307,
  divided by 0.3081 (mean and deviation of MNIST), as in the paper's code."""

  cache_dir: Optional[str] = None
  """Folder that contains the folder fashion_mnist with the four IDX files; by
  default ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 64."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return mnist.create(
      'fashion_mnist', mnist.build_cnn, batch_size=64, options=self.values
    )
