"""Handwritten digits of MNIST over clients, by label skew or by writer.

As in Kim et al., arXiv 2306.11201: 100 clients of 500 examples by Dirichlet
label skew, and a shallow convolutional network. 'writers' is a natural
partition: one client for each of the 539 people who wrote the training images.
"""

from __future__ import annotations

from typing import ClassVar
from typing import Literal
from typing import Optional

from tasks import catalogue
from tasks import shared
from tasks.images import mnist
from tff_adaptive import parameters
from tff_adaptive.lazy import tff


@catalogue.task(
  'mnist_character',
  summary='Recognise the digits of MNIST, by label skew or by writer.',
  model='CNN with dropout, 21,840 weights',
  clients='100 of 500 digits (--mnist_character_num_clients), or 539 writers',
  files=catalogue.idx_files('mnist'),
  published=catalogue.Published('Kim et al., arXiv 2306.11201', 500, 10, 64),
)
class MnistCharacter(shared.Divided):
  """Images [batch, 28, 28, 1] in [0, 1], labels 0 to 9."""

  later: ClassVar[frozenset[str]] = shared.Divided.later | {'group_size'}

  partition: Literal[shared.Rule, 'writers'] = 'lda'  # type: ignore[assignment]
  """'writers' for one client per writer, or a division of all digits: 'lda' for
  Dirichlet label skew, 'iid', 'classes' for a fixed number of labels a client,
  or another one (docs/tasks.md)."""

  group_size: parameters.Count = 1
  """Number of writers per client, with 'writers'."""

  num_clients: parameters.Count = 100
  """Number of clients, unless the partition is 'writers'."""

  examples_per_client: Optional[parameters.Count] = 500
  """Number of examples per client."""

  pixels: Literal['unit', 'standardized'] = 'unit'
  """'unit' for pixels from 0 to 1; 'standardized' for those less 0.1307,
  divided by 0.3081 (mean and deviation of MNIST), as in the paper's code."""

  cache_dir: Optional[str] = None
  """Folder that contains the folder mnist with the four IDX files, and
  train-writers.csv for 'writers'; by default ~/.tff.
  """

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the paper's 64."""

  def check(self) -> None:
    super().check()
    if self.group_size > 1 and self.partition != 'writers':
      raise parameters.ParameterError(
        'group_size',
        '{}={given} would be ignored: it needs {partition}=writers.',
        given=self.group_size,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    return mnist.create(
      'mnist', mnist.build_cnn, batch_size=64, options=self.values
    )
