"""Options that tasks share: data, amounts and partitions."""

from __future__ import annotations

import abc
from typing import Any
from typing import ClassVar
from typing import Literal
from typing import Optional
from typing import TYPE_CHECKING

from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff


class Options(parameters.Described, abc.ABC):
  """Base class of a task's options, whose `create` builds the task.

  Attributes:
    outside_graph: Names of options that change no TensorFlow graph of the
      model: runs that differ only in these share traced rounds.
  """

  outside_graph: ClassVar[frozenset[str]] = frozenset(
    {
      'alpha',
      'batch_size',
      'cache_dir',
      'classes_per_client',
      'epochs',
      'examples_per_client',
      'feature_skew',
      'feature_skew_strength',
      'group_size',
      'max_elements',
      'num_clients',
      'partition',
      'seed',
      'self_balancing',
      'shards_per_client',
      'size_skew',
      'sizes',
      'smallest_client',
      'strictness',
    }
  )

  cache_dir: Optional[str] = None
  """Folder with the task's data files."""

  data: Literal['native', 'synthetic'] = 'native'
  """The task's own data, or small made-up data of the same shapes, for which
  numbers of clients and examples are upper bounds."""

  epochs: parameters.Count = 1
  """Passes of a client over its examples in a round."""

  batch_size: Optional[parameters.Count] = None
  """Examples in a batch; the task's own unless given."""

  max_elements: Optional[parameters.Count] = None
  """Most examples of a client in a round."""

  seed: parameters.NonNegativeInt = 0
  """Seed of the order of test examples, of partitions, and of made-up data."""

  @property
  def values(self) -> dict[str, Any]:
    """The options by name."""
    return dict(vars(self))

  @abc.abstractmethod
  def create(self) -> tff.simulation.baselines.BaselineTask:
    """Creates the task.

    Raises:
      DataError: If a file is missing or invalid.
      PartitionError: If the examples cannot satisfy the options.
      ParameterError: If options are inconsistent.
    """


# Rules that partition a pool of labelled examples.
Rule = Literal[
  'lda',
  'iid',
  'classes',
  'dirichlet',
  'inner_dirichlet',
  'pathological',
  'shards',
  'lognormal',
  'continuous',
]
# Rules whose client sizes are set by other options.
_SIZED = {'lda', 'iid', 'classes', 'inner_dirichlet', 'continuous'}


class Divided(Options):
  """Options of a task whose examples are partitioned over clients."""

  later: ClassVar[frozenset[str]] = frozenset(
    {
      'feature_skew',
      'feature_skew_strength',
      'self_balancing',
      'shards_per_client',
      'size_skew',
      'sizes',
      'strictness',
    }
  )

  partition: Rule = 'lda'
  """'lda' for Dirichlet label skew, drawn client by client (Hsu et al.); 'iid';
  'classes' for a fixed number of labels a client and exact sizes; 'dirichlet'
  for each label's examples divided over clients (NIID-Bench, flwr-datasets);
  'inner_dirichlet' as 'lda', clients in turns; 'pathological' for a fixed
  number of labels and all examples; 'shards' sorted by label and dealt out
  (McMahan et al.); 'lognormal' for neighbouring labels in very different
  numbers (FedProx); 'continuous' sorted by the label as a number."""

  num_clients: parameters.Count
  """Number of clients."""

  examples_per_client: Optional[parameters.Count] = None
  """Examples of each client, or of the mean client where they differ; all there
  are, equally, unless given."""

  smallest_client: Optional[parameters.Count] = None
  """If given, sizes are drawn between this and `examples_per_client`. Where
  they follow from the partition or from `sizes`, the least of them."""

  sizes: Literal[
    'equal', 'linear', 'square', 'exponential', 'dirichlet', 'lognormal'
  ] = 'equal'
  """How clients differ in numbers of examples: in proportion to the client's
  place, its square or exponential, or to Dirichlet or lognormal draws. With
  'iid', 'lda', 'inner_dirichlet', 'classes' and 'continuous'."""

  size_skew: Optional[parameters.Positive] = None
  """Concentration of 'dirichlet' sizes, 0.5 unless given, or deviation of the
  logarithm of 'lognormal' ones, 2 unless given."""

  alpha: parameters.Positive = 0.1
  """Concentration of the label skew; small means few labels a client."""

  classes_per_client: parameters.Count = 2
  """Labels of a client with 'classes', 'pathological' and 'lognormal'."""

  self_balancing: bool = True
  """With 'dirichlet', whether a client that has as many examples as the mean
  client gets none of further labels: so in NIID-Bench, and in flwr-datasets if
  asked."""

  shards_per_client: Optional[parameters.Count] = None
  """Shards of a client with 'shards', 2 unless given."""

  strictness: Optional[parameters.Probability] = None
  """With 'continuous', how far the label alone decides: from 0 for a division
  at random to 1, which it is unless given."""

  feature_skew: Optional[
    Literal[
      'noise',
      'shift',
      'scale',
      'permutation',
      'rotation',
      'noisy_rotation',
      'blur',
    ]
  ] = None
  """Transforms clients' features, the last client's most: Gaussian noise as in
  NIID-Bench, brightness ('shift') or contrast ('scale'), features that change
  places, or images rotated, with noise or without, or blurred. None unless
  given."""

  feature_skew_strength: Optional[parameters.Positive] = None
  """Strength of `feature_skew` for the last client: deviation of the noise (0.1
  unless given), what is added (0.3), by what share contrast is raised (0.5),
  share of features that change places (1), degrees (90, with noise of 0.1 for
  each 30 of them), or deviation of the blur in pixels (1)."""

  def check(self) -> None:
    """Raises `ParameterError` for options that the partition would ignore."""
    rule, sized = self.partition, self.partition in _SIZED | {None}
    lognormal = 'lognormal' in (rule, self.sizes)
    for name, told, used in (
      ('sizes', '{partition} to be one of {sized}', sized),
      (
        'size_skew',
        '{sizes}=dirichlet, or lognormal sizes',
        self.sizes == 'dirichlet' or lognormal,
      ),
      ('self_balancing', '{partition}=dirichlet', rule == 'dirichlet'),
      ('shards_per_client', '{partition}=shards', rule == 'shards'),
      ('strictness', '{partition}=continuous', rule == 'continuous'),
      (
        'feature_skew_strength',
        '{feature_skew}',
        self.feature_skew is not None,
      ),
    ):
      value = getattr(self, name)
      default = parameters.parameters_of(type(self))[name].default
      if not used and value != default:
        raise parameters.ParameterError(
          name,
          '{}={given} would be ignored: it needs ' + told + '.',
          given=value,
          **({'sized': ', '.join(sorted(_SIZED))} if name == 'sizes' else {}),
        )
