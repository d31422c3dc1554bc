"""Partitions of examples over clients: pure NumPy, seeded, disjoint.

Partitioners return a `Partition` in which client i has exactly `sizes[i]`
examples and no example occurs twice. Equal arguments and seeds give equal
partitions.

  iid         uniformly random
  lda         Dirichlet label skew; Hsu et al., arXiv 1909.06335
  pam         Pachinko allocation; Reddi et al., arXiv 2003.00295, Appendix F
  by_group    natural partition: one client per value, such as a writer

  continuous  sorted by a numeric target: ContinuousPartitioner of flwr-datasets
  grouped     natural clients in groups

Sizes come from `equal_sizes`, `sizes_in_range` or `draw_sizes`, or are a list
of counts. Of the latter's rules linear, square and exponential are those of
flwr-datasets; dirichlet is 'iid-diff-quantity' of NIID-Bench (Li et al., arXiv
2102.02079, Section 4.3), lognormal has few large clients (Li et al., arXiv
1812.06127). `tasks.partitioners` has further rules for labels and features.
"""

import dataclasses
import os
from collections.abc import Callable, Sequence
from typing import Optional, Union

import numpy as np

from tasks.formats import data_files

# Number of examples of each client.
Sizes = Union[Sequence[int], np.ndarray]
PathType = Union[str, 'os.PathLike[str]']


@dataclasses.dataclass(frozen=True)
class Partition:
  """Example indices per client.

  Attributes:
    client_ids: Names of the clients.
    indices: Example indices of each client, an int64 array per client.
  """

  client_ids: tuple[str, ...]
  indices: tuple[np.ndarray, ...]

  def __post_init__(self) -> None:
    if len(self.client_ids) != len(self.indices):
      raise ValueError(
        'A partition needs one client id per index array, got '
        f'{len(self.client_ids)} and {len(self.indices)}.'
      )
    if len(set(self.client_ids)) != len(self.client_ids):
      raise ValueError('The client ids of a partition must be distinct.')
    every = np.concatenate(self.indices) if self.indices else np.array([])
    if len(np.unique(every)) != len(every):
      raise ValueError('The clients of a partition must not share examples.')

  @property
  def sizes(self) -> np.ndarray:
    """Number of examples of each client, int64 [clients]."""
    return np.array([len(i) for i in self.indices], np.int64)

  def label_counts(
    self, labels: np.ndarray, num_classes: Optional[int] = None
  ) -> np.ndarray:
    """Counts each client's examples by label, int64 [clients, classes]."""
    labels = np.asarray(labels)
    if num_classes is None:
      num_classes = int(labels.max()) + 1
    return np.stack(
      [np.bincount(labels[i], minlength=num_classes) for i in self.indices]
    )

  def save(self, path: PathType) -> None:
    """Writes the partition to an .npz file atomically."""
    partial = f'{os.fspath(path)}.partial'
    with open(partial, 'wb') as file:
      np.savez_compressed(
        file,
        client_ids=np.array(self.client_ids, dtype=np.str_),
        sizes=self.sizes,
        indices=np.concatenate(self.indices).astype(np.int64),
      )
    os.replace(partial, path)

  @classmethod
  def load(cls, path: PathType) -> 'Partition':
    """Reads a file written by `save`.

    Raises:
      DataError: If the file is missing or invalid.
    """
    try:
      arrays = data_files.read_npz(path)
      sizes, every = arrays['sizes'], arrays['indices']
      if not (_are_counts(sizes) and _are_counts(every)):
        raise ValueError('sizes and positions must be nonnegative integers')
      if sizes.sum() != len(every):
        raise ValueError(f'sizes of {sizes.sum()} for {len(every)} positions')
      return cls(
        tuple(map(str, arrays['client_ids'])),
        tuple(np.split(every, np.cumsum(sizes)[:-1])),
      )
    except (KeyError, TypeError, ValueError) as e:
      raise data_files.DataError(
        f'{os.fspath(path)} is no partition saved by `Partition.save`: {e}'
      ) from e


def equal_sizes(num_examples: int, num_clients: int) -> np.ndarray:
  """Returns the largest equal sizes of clients.

  Raises:
    PartitionError: If there are more clients than examples.
  """
  if num_clients < 1 or num_clients > num_examples:
    raise data_files.PartitionError(
      f'{num_examples} examples can be given to 1 to {num_examples} clients,'
      f' got {num_clients}.'
    )
  return np.full(num_clients, num_examples // num_clients, np.int64)


def sizes_in_range(
  num_clients: int, smallest: int, largest: int, *, seed: int = 0
) -> np.ndarray:
  """Draws sizes uniformly from `smallest` to `largest`, inclusive.

  Raises:
    PartitionError: If the range is empty or begins below 1.
  """
  if not 1 <= smallest <= largest:
    raise data_files.PartitionError(
      'Client sizes must lie in a range from at least 1 upwards, got '
      f'{smallest} to {largest}.'
    )
  rng = np.random.default_rng([seed, 0x512E5])
  return rng.integers(smallest, largest, num_clients, np.int64, endpoint=True)


def iid(num_examples: int, *, sizes: Sizes, seed: int = 0) -> Partition:
  """Partitions examples uniformly at random.

  Args:
    num_examples: Number of examples.
    sizes: Number of examples of each client.
    seed: Seed of all draws.

  Raises:
    PartitionError: If the sizes exceed the number of examples.
  """
  exact = check_sizes(sizes, num_examples)
  order = np.random.default_rng(seed).permutation(num_examples)
  return name_clients(np.split(order, np.cumsum(exact))[:-1])


def lda(
  labels: np.ndarray, *, alpha: float, sizes: Sizes, seed: int = 0
) -> Partition:
  """Draws Dirichlet label skew: Hsu et al., arXiv 1909.06335, Section 3.

  Client by client, a distribution over labels is drawn from the symmetric
  Dirichlet distribution with parameter alpha, then each example by its label
  and uniformly among the label's examples, without replacement. An exhausted
  label is removed and the distribution renormalized, for this client and later
  ones.

  Args:
    labels: The label of each example, int [examples], from 0.
    alpha: Concentration, positive; small values give few labels per client.
    sizes: Number of examples of each client.
    seed: Seed of all draws.

  Raises:
    PartitionError: If alpha is not positive or the sizes exceed the number of
      examples.
  """
  check_positive('alpha', alpha)
  labels = check_labels(labels)
  exact = check_sizes(sizes, len(labels))
  rng = np.random.default_rng(seed)
  pools = build_pools(labels, rng)
  clients = []
  for size in exact:
    available = np.array([len(pool) for pool in pools])
    log_p = log_dirichlet(alpha, len(pools), rng)
    counts = _draw_counts(size, log_p, available, rng)
    clients.append(take(pools, counts, rng))
  return name_clients(clients)


def pam(
  coarse: np.ndarray,
  fine: np.ndarray,
  *,
  alpha: float = 0.1,
  beta: float = 10.0,
  sizes: Sizes,
  seed: int = 0,
) -> Partition:
  """Draws Pachinko allocation: Reddi et al., 2003.00295, Algorithms 7, 8.

  Each client draws a distribution over coarse labels from Dir(alpha) and, for
  each coarse label, one over its fine labels from Dir(beta). An example is
  drawn by coarse label, fine label, and then uniformly, without replacement. An
  exhausted fine label is removed and its coarse label's distribution
  renormalized; likewise exhausted coarse labels.

  Args:
    coarse: Coarse label of each example, int [examples], from 0.
    fine: Fine label of each example, int [examples], from 0; each belongs to
      one coarse label.
    alpha: Concentration at the root, positive. The paper's is 0.1.
    beta: Concentration at the coarse labels, positive. The paper's is 10.
    sizes: Number of examples of each client.
    seed: Seed of all draws.

  Raises:
    PartitionError: If alpha or beta is not positive, the sizes exceed the
      number of examples, or a fine label has two coarse ones.
  """
  check_positive('alpha', alpha)
  check_positive('beta', beta)
  coarse, fine = check_labels(coarse), check_labels(fine)
  if len(coarse) != len(fine):
    raise data_files.PartitionError(
      f'There are {len(coarse)} coarse but {len(fine)} fine labels.'
    )
  exact = check_sizes(sizes, len(fine))
  parents = [np.unique(coarse[fine == y]) for y in range(fine.max() + 1)]
  for y, parent in enumerate(parents):
    if len(parent) > 1:
      raise data_files.PartitionError(
        f'Fine label {y} must have one coarse label, got {parent.tolist()}.'
      )
  children = [
    np.array([y for y, p in enumerate(parents) if len(p) and p[0] == c], int)
    for c in range(coarse.max() + 1)
  ]
  rng = np.random.default_rng(seed)
  pools = build_pools(fine, rng)
  clients = []
  for size in exact:
    available = np.array([len(pool) for pool in pools])
    room = np.array([available[ys].sum() for ys in children])
    root = log_dirichlet(alpha, len(children), rng)
    # Coarse draws do not depend on fine draws: a coarse label is exhausted
    # exactly when all its fine labels are.
    wanted = _draw_counts(size, root, room, rng)
    counts = np.zeros(len(pools), np.int64)
    for ys, n in zip(children, wanted, strict=True):
      # Drawn for all coarse labels, so that a client's random numbers do not
      # depend on other clients.
      leaf = log_dirichlet(beta, len(ys), rng)
      counts[ys] = _draw_counts(n, leaf, available[ys], rng)
    clients.append(take(pools, counts, rng))
  return name_clients(clients)


def in_order(sizes: Sizes, name: str = 'client') -> Partition:
  """Assigns consecutive examples to clients; ids are `name` and a number."""
  ends = np.cumsum(np.asarray(sizes, np.int64))
  return Partition(
    tuple(f'{name}_{i}' for i in range(len(ends))),
    tuple(np.split(np.arange(ends[-1]), ends[:-1])),
  )


def by_group(
  groups: Union[Sequence, np.ndarray], prefix: str = ''
) -> Partition:
  """Builds one client per distinct value; ids are `prefix` and the value."""
  values, inverse = np.unique(np.asarray(groups), return_inverse=True)
  order = np.argsort(inverse, kind='stable')
  starts = np.cumsum(np.bincount(inverse))[:-1]
  return Partition(
    tuple(f'{prefix}{value}' for value in values),
    tuple(np.split(order, starts)),
  )


def check_sizes(sizes: Sizes, num_examples: int) -> np.ndarray:
  given = np.asarray(sizes)
  if not _are_counts(given) or not len(given) or given.min() < 1:
    raise data_files.PartitionError(
      f'Client sizes must be a list of counts of at least 1, got {given}.'
    )
  exact = given.astype(np.int64)
  if exact.sum() > num_examples:
    raise data_files.PartitionError(
      f'{len(exact)} clients need {exact.sum()} examples in total, but there '
      f'are {num_examples}: ask for fewer clients or fewer examples each.'
    )
  return exact


def _are_counts(numbers: np.ndarray) -> bool:
  """Returns whether an array is a vector of non-negative integers."""
  return (
    numbers.ndim == 1
    and np.issubdtype(numbers.dtype, np.integer)
    and numbers.min(initial=0) >= 0
  )


def check_classes(classes_per_client: int, num_classes: int) -> None:
  """Raises `PartitionError` unless clients can have this many labels each."""
  if not 1 <= classes_per_client <= num_classes:
    raise data_files.PartitionError(
      f'A client can have 1 to {num_classes} of the {num_classes} labels, '
      f'got {classes_per_client}.'
    )


def check_positive(name: str, value: float) -> None:
  if not 0 < value < np.inf:
    raise data_files.PartitionError(
      f'`{name}` must be positive and finite, got {value!r}.'
    )


def check_labels(labels: np.ndarray) -> np.ndarray:
  labels = np.asarray(labels)
  if not _are_counts(labels) or not len(labels):
    raise data_files.PartitionError(
      'Labels must be a vector of whole numbers from 0, got '
      f'{labels.dtype} of shape {labels.shape}.'
    )
  return labels


def build_pools(
  labels: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
  """Returns shuffled indices of each label's examples."""
  return [
    rng.permutation(np.flatnonzero(labels == y))
    for y in range(int(labels.max()) + 1)
  ]


def take(
  pools: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
  """Removes `counts` [labels] examples from pools; returns them shuffled."""
  taken = []
  for y, n in enumerate(counts):
    taken.append(pools[y][:n])
    pools[y] = pools[y][n:]
  return rng.permutation(np.concatenate(taken)).astype(np.int64)


def log_dirichlet(
  alpha: float, categories: int, rng: np.random.Generator
) -> np.ndarray:
  """Draws the log of an unnormalized symmetric Dirichlet variate.

  In logarithms, because with alpha = 0.01 all but the largest entries
  underflow, and the rest could not be renormalized once the largest is
  exhausted: Gamma(alpha) is Gamma(alpha + 1) times U^(1/alpha).
  """
  gamma = rng.gamma(alpha + 1, size=categories)
  return np.log(gamma) + np.log1p(-rng.random(categories)) / alpha


def _draw_counts(
  size: int,
  log_p: np.ndarray,
  available: np.ndarray,
  rng: np.random.Generator,
) -> np.ndarray:
  """Draws `size` labels and counts them; exhausted labels are dropped.

  Same distribution as single draws with renormalization whenever a label is
  exhausted: draws in excess of a label's examples are redrawn among the
  remaining labels.
  """
  counts = np.zeros(len(log_p), np.int64)
  left = size
  while left:
    live = counts < available
    p = np.where(live, log_p, -np.inf)
    p = np.exp(p - p.max())
    counts += rng.multinomial(left, p / p.sum())
    counts = np.minimum(counts, available)
    left = size - counts.sum()
  return counts


def name_clients(indices: Sequence[np.ndarray]) -> Partition:
  width = len(str(len(indices) - 1))
  return Partition(
    tuple(f'client_{i:0{width}d}' for i in range(len(indices))),
    tuple(np.asarray(i, np.int64) for i in indices),
  )


def continuous(
  values: np.ndarray,
  *,
  strictness: float,
  sizes: Sizes,
  seed: int = 0,
) -> Partition:
  """Sorts examples by a number plus noise, and gives clients contiguous parts.

  ContinuousPartitioner of flwr-datasets, which sorts by

    strictness (value - mean) / deviation + (1 - strictness) noise

  with standard normal noise. The first client has the smallest numbers.

  Args:
    values: Finite numbers [examples].
    strictness: 0 for a random partition, 1 for one without noise.
    sizes: Number of examples of each client. If their sum is smaller than the
      number of examples, a random subset is used.
    seed: Seed of all draws.

  Raises:
    PartitionError: If values are constant or not finite, or the sizes exceed
      the number of examples.
  """
  values = np.asarray(values, np.float64)
  exact = check_sizes(sizes, len(values))
  deviation = values.std()
  if not np.isfinite(values).all() or not deviation:
    raise data_files.PartitionError(
      'Examples must be sorted by finite numbers that are not all equal; got '
      f'{values.min():g} to {values.max():g}.'
    )
  rng = np.random.default_rng(seed)
  chosen = rng.permutation(len(values))[: exact.sum()]
  noise = rng.standard_normal(len(values))
  blurred = strictness * (values - values.mean()) / deviation
  blurred += (1 - strictness) * noise
  order = chosen[np.argsort(blurred[chosen], kind='stable')]
  return name_clients(
    [rng.permutation(rows) for rows in np.split(order, np.cumsum(exact)[:-1])]
  )


def grouped(split: Partition, group_size: int) -> Partition:
  """Joins natural clients to groups, in the order of their names.

  GroupedNaturalIdPartitioner of flwr-datasets with 'allow-smaller': the last
  group may be smaller.

  Args:
    split: The natural clients.
    group_size: Number of natural clients in a group.
  """
  if group_size == 1:
    return split
  starts = range(0, len(split.indices), group_size)
  return name_clients(
    [np.concatenate(split.indices[i : i + group_size]) for i in starts]
  )


# Maximum number of draws until the smallest client is large enough.
_SIZE_ATTEMPTS = 1000
_SIZE_GROWTH: dict[str, Callable[[np.ndarray], np.ndarray]] = {
  'linear': lambda place: place,
  'square': np.square,
  # Normalized to 1 for the last client to avoid overflow.
  'exponential': lambda place: np.exp(place - place[-1]),
}
# Concentration of Dirichlet sizes, as in NIID-Bench, and standard deviation of
# lognormal sizes' logarithm, as in FedProx.
_SIZE_SKEW = {'dirichlet': 0.5, 'lognormal': 2.0}


def draw_sizes(
  rule: str,
  total: int,
  num_clients: int,
  *,
  skew: Optional[float] = None,
  least: int = 1,
  seed: int = 0,
) -> np.ndarray:
  """Divides a number of examples into client sizes.

  Args:
    rule: 'linear', 'square' or 'exponential' in the client's index, from 1;
      'dirichlet' or 'lognormal'.
    total: Number of examples; all are assigned.
    num_clients: Number of clients.
    skew: Concentration of 'dirichlet', by default 0.5; standard deviation of
      the logarithm of 'lognormal', by default 2.
    least: Minimum size. 'dirichlet' is redrawn until no client is smaller; with
      other rules the largest clients cede examples to smaller ones.
    seed: Seed of all draws.

  Returns:
    Sizes, int64 [num_clients].

  Raises:
    PartitionError: If there are too few examples, or clients are too small in
      all draws.
  """
  if num_clients * least > total:
    raise data_files.PartitionError(
      f'{num_clients} clients of at least {least} examples need '
      f'{num_clients * least}, but there are {total}: ask for fewer clients or '
      'a smaller `smallest_client`.'
    )
  if skew is None:
    skew = _SIZE_SKEW.get(rule, 1.0)
  rng = np.random.default_rng([seed, 0x517E])
  if rule == 'dirichlet':
    for _ in range(_SIZE_ATTEMPTS):
      log_p = log_dirichlet(skew, num_clients, rng)
      sizes = cut(np.exp(log_p - log_p.max()), total)
      if sizes.min() >= least:
        return sizes
    raise data_files.PartitionError(
      f'In {_SIZE_ATTEMPTS} draws of sizes from a Dirichlet distribution with '
      f'parameter {skew:g}, one of {num_clients} clients always had fewer than '
      f'{least} of {total} examples: raise `size_skew`, or ask for fewer '
      'clients.'
    )
  if rule == 'lognormal':
    units = rng.lognormal(0, skew, num_clients)
  else:
    units = _SIZE_GROWTH[rule](np.arange(1.0, num_clients + 1))
  sizes = (units / units.sum() * total).astype(np.int64)
  # As in flwr-datasets, the last client gets the rounding remainder.
  sizes[-1] += total - sizes.sum()
  return at_least(sizes, least)


def cut(weights: np.ndarray, total: int) -> np.ndarray:
  """Divides a total into integer sizes in proportion to weights.

  Cumulative sums are rounded down, as in NIID-Bench, so that sizes sum to
  `total`.

  Args:
    weights: Weights [parts], not all 0.
    total: Sum of the sizes.

  Returns:
    Sizes, int64 [parts].
  """
  ends = (np.cumsum(weights / weights.sum()) * total).astype(np.int64)
  ends[-1] = total
  return np.diff(ends, prepend=0)


def at_least(sizes: np.ndarray, least: int) -> np.ndarray:
  """Raises sizes to a minimum, at the cost of the largest ones.

  Args:
    sizes: Sizes, int [clients], with a mean of at least `least`.
    least: Minimum size.

  Returns:
    Sizes of the same sum, int64 [clients].
  """
  raised = np.maximum(sizes, least)
  excess = raised.sum() - sizes.sum()
  # Reduces the largest first, down to the next size.
  order = np.argsort(-raised, kind='stable')
  for count in range(1, len(order) + 1):
    if not excess:
      break
    floor = raised[order[count]] if count < len(order) else least
    largest = order[:count]
    taken = min(excess, (raised[largest] - floor).sum())
    raised[largest] -= taken // count
    raised[largest[: taken % count]] -= 1
    excess -= taken
  return raised
