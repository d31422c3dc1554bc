"""Options that tasks share: data, amounts and partitions."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Optional, TYPE_CHECKING

from tasks.formats import data_files
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
  """Folder with the task's data files (docs/tasks.md names them); by default
  ~/.tff."""

  data: Literal['native', 'synthetic'] = 'native'
  """Real data, or small synthetic data of the same shapes, for which numbers of
  clients and examples are upper bounds.
  """

  epochs: parameters.Count = 1
  """Number of epochs over a client's examples per round."""

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default the task's own."""

  max_elements: Optional[parameters.Count] = None
  """Maximum number of examples per client and round."""

  seed: parameters.NonNegativeInt = 0
  """Seed for the order of test examples, partitions and synthetic data."""

  @property
  def values(self) -> dict[str, Any]:
    """The options by name."""
    return dict(vars(self))

  def check_data(self, files: Sequence[str]) -> Optional[int]:
    """Checks that data files exist, before TensorFlow is imported.

    Args:
      files: Patterns of their names, of which each must match a file; ' or '
        is between patterns of which one must.

    Returns:
      The number of clients, if it is known.

    Raises:
      DataError: If a file is missing or invalid.
      ParameterError: If options are inconsistent.
    """
    folder = data_files.cache_folder(self.cache_dir)
    for name in files if self.data == 'native' else ():
      # TFF's loaders put some of them into a folder called datasets.
      places = [
        f'{where}{one}*'
        for one in name.split(' or ')
        for where in ('', 'datasets/')
      ]
      if not any(any(folder.glob(place)) for place in places):
        raise data_files.DataError(
          f'There is no file {folder / name}; put it there, or name the folder '
          'of such files by --cache_dir (docs/tasks.md says where to get them).'
        )
    return getattr(self, 'num_clients', None)

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
_SIZED = ('classes', 'continuous', 'iid', 'inner_dirichlet', 'lda')
_BY_ALPHA = ('dirichlet', 'inner_dirichlet', 'lda', 'pam')
_BY_CLASSES = ('classes', 'lognormal', 'pathological')
# Clients of the data themselves.
_GIVEN = ('native', 'writers')


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
  """Number of examples per client, on average if sizes differ; by default all
  examples, in equal shares.
  """

  smallest_client: Optional[parameters.Count] = None
  """If given, sizes are drawn between this and `examples_per_client`. If they
  follow from the partition or from `sizes`, their minimum.
  """

  sizes: Literal[
    'equal', 'linear', 'square', 'exponential', 'dirichlet', 'lognormal'
  ] = 'equal'
  """Distribution of client sizes: proportional to the client's index, its
  square or exponential, or to Dirichlet or lognormal draws. With 'iid', 'lda',
  'inner_dirichlet', 'classes' and 'continuous'.
  """

  size_skew: Optional[parameters.Positive] = None
  """Concentration of 'dirichlet' sizes, by default 0.5, or standard deviation
  of the logarithm of 'lognormal' ones, by default 2.
  """

  alpha: parameters.Positive = 0.1
  """Concentration of the label skew; small means few labels per client."""

  classes_per_client: parameters.Count = 2
  """Number of labels per client with 'classes', 'pathological' and
  'lognormal'.
  """

  self_balancing: bool = True
  """With 'dirichlet', whether a client that has as many examples as the mean
  client gets none of further labels: so in NIID-Bench, and in flwr-datasets if
  asked."""

  shards_per_client: Optional[parameters.Count] = None
  """Number of shards per client with 'shards'; by default 2."""

  strictness: Optional[parameters.Probability] = None
  """With 'continuous', the influence of the label: from 0 for a random
  partition to 1, the default.
  """

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
  """Transformation of client features, strongest for the last client: Gaussian
  noise as in NIID-Bench, brightness ('shift') or contrast ('scale'), permuted
  features, or images rotated, with noise or without, or blurred. By default
  none."""

  feature_skew_strength: Optional[parameters.Positive] = None
  """Strength of `feature_skew` for the last client: standard deviation of the
  noise (by default 0.1), offset (0.3), relative increase of contrast (0.5),
  fraction of permuted features (1), degrees (90, with noise of 0.1 for each 30
  of them), or standard deviation of the blur in pixels (1)."""

  def check(self) -> None:
    """Raises `ParameterError` for options that the partition would ignore."""
    rule: Any = self.partition
    known = parameters.parameters_of(type(self))['partition'].choices or ()

    def one_of(*rules: str) -> str:
      found = ', '.join(rule for rule in rules if rule in known)
      return f'{{partition}} to be one of {found}'

    lognormal, made = 'lognormal' in (rule, self.sizes), rule not in _GIVEN
    for name, told, used in (
      ('alpha', one_of(*_BY_ALPHA), rule in (None, *_BY_ALPHA)),
      ('classes_per_client', one_of(*_BY_CLASSES), rule in _BY_CLASSES),
      ('num_clients', 'another {partition}', made),
      ('examples_per_client', 'another {partition}', made),
      ('smallest_client', 'another {partition}', made and rule != 'pam'),
      ('sizes', one_of(*_SIZED), rule in (None, *_SIZED)),
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
        raise parameters.UnusedError(
          name,
          '{}={given} would be ignored: it needs ' + told + '.',
          given=value,
        )

  def check_data(self, files: Sequence[str]) -> Optional[int]:
    clients = super().check_data(files)
    return None if self.partition in _GIVEN else clients
