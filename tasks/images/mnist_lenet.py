"""LeNet on MNIST, two labels a client: Mukherjee et al., arXiv 2307.06306.

100 clients of equal size with exactly two labels each, no example used twice.
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
  'mnist_lenet',
  summary='LeNet on MNIST, two labels a client.',
  model='LeNet-5, 61,706 weights',
  clients='100 with two labels each (--mnist_lenet_num_clients)',
  files=catalogue.idx_files('mnist'),
  published=catalogue.Published(
    'Mukherjee et al., arXiv 2307.06306', 500, 10, 20
  ),
)
class MnistLenet(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  partition: shared.Rule = 'classes'

  num_clients: parameters.Count = 100

  units: Literal['tanh', 'relu'] = 'tanh'
  """'tanh' for LeNet's original tanh units and average pooling; 'relu' for ReLU
  and max pooling.
  """

  cache_dir: Optional[str] = None
  """Folder that contains the folder mnist with the four IDX files; by default
  ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 20."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    options = self.values
    return mnist.create(
      'mnist',
      lambda: mnist.build_lenet(self.units),
      batch_size=20,
      options=options,
    )
