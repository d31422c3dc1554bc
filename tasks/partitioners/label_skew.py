"""Label skew partitions of other papers and libraries.

  dirichlet         each label's examples over clients: 'noniid-labeldir' of
                    NIID-Bench, DirichletPartitioner of flwr-datasets
  inner_dirichlet   each client's labels, clients in turns: Acar et al., arXiv
                    2111.04263; InnerDirichletPartitioner
  pathological      some labels a client, each label in equal parts: '#C=k' of
                    NIID-Bench; PathologicalPartitioner
  shards            sorted by label and dealt out in pieces: McMahan et al.,
                    arXiv 1602.05629; ShardPartitioner
  lognormal         neighbouring labels in lognormal numbers: Li et al., arXiv
                    1812.06127; DistributionPartitioner

  k_classes         exactly k labels a client in equal shares

`partition.lda` also draws each client's labels, but client by client.
"""

from typing import Optional

import numpy as np

from tasks import partition
from tasks.formats import data_files

# Maximum number of draws until the smallest client is large enough.
_ATTEMPTS = 1000


def dirichlet(
  labels: np.ndarray,
  *,
  alpha: float,
  num_clients: int,
  least: int = 1,
  balanced: bool = True,
  seed: int = 0,
) -> partition.Partition:
  """Divides each label's examples by a Dirichlet distribution over clients.

  The clients' shares are drawn for each label; if `balanced`, clients that have
  at least the mean number of examples get none of the label's. All examples are
  assigned. As in `partition_data` of NIID-Bench (Li et al., arXiv 2102.02079).

  Args:
    labels: The label of each example, int [examples], from 0.
    alpha: Concentration, positive; small values give few clients per label.
    num_clients: Number of clients.
    least: Minimum size; shares are redrawn until no client is smaller.
    balanced: Whether clients of at least the mean size get no more examples.
    seed: Seed of all draws.

  Raises:
    PartitionError: If alpha is not positive, or clients are too small in all
      draws.
  """
  partition.check_positive('alpha', alpha)
  labels = partition.check_labels(labels)
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  mean = len(labels) / num_clients
  for _ in range(_ATTEMPTS):
    had = np.zeros(num_clients, np.int64)
    counts = np.zeros([num_clients, len(pools)], np.int64)
    for label, pool in enumerate(pools):
      log_p = partition.log_dirichlet(alpha, num_clients, rng)
      if balanced:
        log_p = np.where(had < mean, log_p, -np.inf)
      if len(pool):
        shares = np.exp(log_p - log_p.max())
        counts[:, label] = partition.cut(shares, len(pool))
        had += counts[:, label]
    if had.min() >= least:
      return _deal(pools, counts, rng)
  raise data_files.PartitionError(
    f'In {_ATTEMPTS} draws with `alpha` {alpha:g}, one of {num_clients} '
    f'clients always had fewer than {least} of {len(labels)} examples: raise '
    '`alpha`, or ask for fewer clients or a smaller `smallest_client`.'
  )


def inner_dirichlet(
  labels: np.ndarray,
  *,
  alpha: float,
  sizes: partition.Sizes,
  seed: int = 0,
) -> partition.Partition:
  """Draws Dirichlet label skew for all clients in turns, with exact sizes.

  Each client draws its own distribution over labels from the symmetric
  Dirichlet distribution. Repeatedly, a random client that lacks examples takes
  one, of a label drawn by its distribution among labels that are left. So no
  client suffers from labels exhausted by earlier clients, as with
  `partition.lda`.

  Args:
    labels: The label of each example, int [examples], from 0.
    alpha: Concentration, positive; small values give few labels per client.
    sizes: Number of examples of each client.
    seed: Seed of all draws.

  Raises:
    PartitionError: If alpha is not positive or the sizes exceed the number of
      examples.
  """
  partition.check_positive('alpha', alpha)
  labels = partition.check_labels(labels)
  left = partition.check_sizes(sizes, len(labels)).copy()
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  available = np.array([len(pool) for pool in pools])
  log_p = np.stack(
    [partition.log_dirichlet(alpha, len(pools), rng) for _ in left]
  )
  cumulative = _cumulative(log_p, available)
  counts = np.zeros_like(log_p, np.int64)
  unfinished = list(range(len(left)))
  while unfinished:
    turn = int(rng.random() * len(unfinished))
    client = unfinished[turn]
    label = np.searchsorted(cumulative[client], rng.random(), side='right')
    counts[client, label] += 1
    available[label] -= 1
    left[client] -= 1
    if not available[label] and available.any():
      cumulative = _cumulative(log_p, available)
    if not left[client]:
      unfinished.pop(turn)
  return _deal(pools, counts, rng)


def _cumulative(log_p: np.ndarray, available: np.ndarray) -> np.ndarray:
  """Returns clients' cumulative probabilities of labels that are left."""
  live = np.where(available > 0, log_p, -np.inf)
  p = np.exp(live - live.max(axis=1, keepdims=True))
  sums = np.cumsum(p, axis=1)
  return sums / sums[:, -1:]


def pathological(
  labels: np.ndarray,
  *,
  classes_per_client: int,
  num_clients: int,
  seed: int = 0,
) -> partition.Partition:
  """Assigns k labels to each client, and equal parts of a label to its clients.

  Client i has label i modulo the number of labels, so that each label is used,
  and k - 1 others at random. All examples are assigned; a client's size depends
  on how many clients share its labels. `k_classes` has exact sizes
  instead and leaves examples unused.

  Args:
    labels: The label of each example, int [examples], from 0.
    classes_per_client: Number k of labels per client.
    num_clients: Number of clients.
    seed: Seed of all draws.

  Raises:
    PartitionError: If k exceeds the number of labels, or a label has fewer
      examples than clients.
  """
  labels = partition.check_labels(labels)
  there = np.unique(labels)
  k = classes_per_client
  partition.check_classes(k, len(there))
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  takes = np.zeros([num_clients, len(there)], bool)
  for client in range(num_clients):
    first = client % len(there)
    others = np.delete(np.arange(len(there)), first)
    takes[client, [first, *rng.choice(others, k - 1, replace=False)]] = True
  counts = np.zeros([num_clients, len(pools)], np.int64)
  for column, label in enumerate(there):
    takers = np.flatnonzero(takes[:, column])
    if len(takers) > len(pools[label]):
      raise data_files.PartitionError(
        f'Label {label} has {len(pools[label])} examples, but {len(takers)} of '
        f'{num_clients} clients with {k} labels each would share them: ask for '
        'fewer clients or fewer labels a client.'
      )
    if len(takers):
      parts = np.array_split(pools[label], len(takers))
      counts[takers, label] = [len(part) for part in parts]
  return _deal(pools, counts, rng)


def shards(
  labels: np.ndarray,
  *,
  shards_per_client: int,
  num_clients: int,
  seed: int = 0,
) -> partition.Partition:
  """Sorts examples by label and assigns contiguous shards to clients at random.

  McMahan et al., arXiv 1602.05629, Section 3: 60,000 digits in 200 shards of
  300, two for each of 100 clients, so that most have two digits.

  Args:
    labels: The label of each example, int [examples], from 0.
    shards_per_client: Number of shards of each client.
    num_clients: Number of clients. Some shards have one more example if the
      number of examples is not divisible.
    seed: Seed of the order within labels and of the assignment.

  Raises:
    PartitionError: If there are more shards than examples.
  """
  labels = partition.check_labels(labels)
  count = num_clients * shards_per_client
  if count > len(labels):
    raise data_files.PartitionError(
      f'{num_clients} clients with {shards_per_client} shards each need '
      f'{count} examples or more, but there are {len(labels)}.'
    )
  rng = np.random.default_rng(seed)
  pieces = np.array_split(
    np.concatenate(partition.build_pools(labels, rng)), count
  )
  dealt = rng.permutation(count).reshape(num_clients, shards_per_client)
  return partition.name_clients(
    [
      rng.permutation(np.concatenate([pieces[i] for i in shard]))
      for shard in dealt
    ]
  )


def lognormal(
  labels: np.ndarray,
  *,
  classes_per_client: int,
  num_clients: int,
  deviation: float = 2.0,
  least: int = 1,
  seed: int = 0,
) -> partition.Partition:
  """Assigns k consecutive labels to each client, in lognormal numbers.

  Client i has the labels i to i + k - 1, modulo the number of labels. Each
  client gets `least` examples of each of its labels; a label's others are
  divided among its clients in proportion to lognormal numbers. As in the MNIST
  of Li et al. (arXiv 1812.06127: 1,000 clients of two digits, at least five of
  each, deviation 2).

  Args:
    labels: The label of each example, int [examples], from 0.
    classes_per_client: Number k of labels per client.
    num_clients: Number of clients.
    deviation: Standard deviation of the numbers' logarithm.
    least: Minimum number of examples of each of a client's labels.
    seed: Seed of all draws.

  Raises:
    PartitionError: If k exceeds the number of labels, or a label has too few
      examples.
  """
  labels = partition.check_labels(labels)
  there = np.unique(labels)
  k = classes_per_client
  partition.check_classes(k, len(there))
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  first = np.arange(num_clients)[:, np.newaxis] % len(there)
  has = (np.arange(len(there)) - first) % len(there) < k
  counts = np.zeros([num_clients, len(pools)], np.int64)
  for column, label in enumerate(there):
    takers = np.flatnonzero(has[:, column])
    spare = len(pools[label]) - least * len(takers)
    weights = rng.lognormal(0, deviation, len(takers))
    if spare < 0:
      raise data_files.PartitionError(
        f'Label {label} has {len(pools[label])} examples, and {len(takers)} '
        f'clients want at least {least} of them: ask for fewer clients or a '
        'smaller `smallest_client`.'
      )
    if len(takers):
      counts[takers, label] = least + partition.cut(weights, spare)
  return _deal(pools, counts, rng)


def _deal(
  pools: list[np.ndarray], counts: np.ndarray, rng: np.random.Generator
) -> partition.Partition:
  """Takes `counts` [clients, labels] examples from the pools of labels."""
  return partition.name_clients(
    [partition.take(pools, row, rng) for row in counts]
  )


def k_classes(
  labels: np.ndarray,
  *,
  classes_per_client: int,
  sizes: partition.Sizes,
  seed: int = 0,
) -> partition.Partition:
  """Assigns exactly k labels to each client, in shares as equal as possible.

  Args:
    labels: The label of each example, int [examples], from 0.
    classes_per_client: Number k of labels per client.
    sizes: Number of examples of each client, at least k.
    seed: Seed of all draws.

  Raises:
    PartitionError: If k exceeds the number of labels or a client's size, or no
      assignment of labels to clients with enough examples is found.
  """
  labels = partition.check_labels(labels)
  exact = partition.check_sizes(sizes, len(labels))
  k = classes_per_client
  partition.check_classes(k, len(np.unique(labels)))
  if exact.min(initial=k) < k:
    raise data_files.PartitionError(
      f'A client with {k} labels needs at least {k} examples, got '
      f'{exact.min()}.'
    )
  rng = np.random.default_rng(seed)
  pools = partition.build_pools(labels, rng)
  capacity = np.array([len(pool) for pool in pools])
  shares = [np.full(k, n // k) + (np.arange(k) < n % k) for n in exact]
  for attempt in range(20):
    # The last attempt is greedy: it takes the labels with the most examples,
    # which succeeds where random attempts reach a dead end.
    counts = _assign_classes(shares, capacity, rng, greedy=attempt == 19)
    if counts is not None:
      return partition.name_clients(
        [partition.take(pools, c, rng) for c in counts]
      )
  raise data_files.PartitionError(
    f'No assignment was found that gives {len(exact)} clients {k} labels and '
    f'{exact.min()} to {exact.max()} examples each: the labels have '
    f'{capacity.min()} to {capacity.max()} examples. Ask for fewer clients, '
    'smaller clients or more labels a client.'
  )


def largest_equal_size(
  labels: np.ndarray, *, classes_per_client: int, num_clients: int
) -> int:
  """Returns the largest equal size of clients that `k_classes` can satisfy.

  It is a multiple of k, so that a client has equally many examples of each of
  its labels, and is limited by the number of such shares in all labels.

  Raises:
    PartitionError: If even a size of k cannot be satisfied.
  """
  labels = partition.check_labels(labels)
  k = classes_per_client
  counts = np.bincount(labels)
  for share in range(len(labels) // max(k * num_clients, 1), 0, -1):
    # A client takes a label at most once.
    if np.minimum(counts // share, num_clients).sum() >= k * num_clients:
      return k * share
  raise data_files.PartitionError(
    f'{num_clients} clients with {k} labels each need at least '
    f'{k * num_clients} examples of enough labels; there are {len(labels)} '
    f'examples of {np.count_nonzero(counts)} labels.'
  )


def _assign_classes(
  shares: list[np.ndarray],
  capacity: np.ndarray,
  rng: np.random.Generator,
  greedy: bool,
) -> Optional[list[np.ndarray]]:
  """Assigns labels to clients, as counts; returns None at a dead end."""
  capacity = capacity.copy()
  result: list[np.ndarray] = [np.zeros(0, np.int64)] * len(shares)
  order = rng.permutation(len(shares)).tolist()
  if greedy:
    order.sort(key=lambda i: -shares[i][0])
  for i in order:
    share = shares[i]
    weight = np.where(capacity >= share[0], capacity, 0).astype(float)
    if np.count_nonzero(weight) < len(share):
      return None
    if greedy:
      classes = np.argsort(-(weight + rng.random(len(weight))))[: len(share)]
    else:
      classes = rng.choice(
        len(weight), len(share), replace=False, p=weight / weight.sum()
      )
    counts = np.zeros(len(capacity), np.int64)
    counts[classes] = share
    capacity = capacity - counts
    result[i] = counts
  return result
