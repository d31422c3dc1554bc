"""Partitions by name, with the options that tasks share."""

from collections.abc import Mapping
from typing import Any, Optional

import numpy as np

from tasks import partition
from tasks.formats import data_files
from tasks.partitioners import label_skew

_STAND_IN_CLIENTS = 20
_BY_LABEL = ('dirichlet', 'pathological', 'shards', 'lognormal')


def build(
  labels: np.ndarray,
  options: Mapping[str, Any],
  *,
  values: Optional[np.ndarray] = None,
) -> partition.Partition:
  """Partitions labelled examples over clients.

  Args:
    labels: The label of each example, int [examples], from 0. Rules without
      label skew accept any array of this length.
    options: A task's options, of which those of `shared.Divided`, `seed` and
      `data` are used: synthetic data are so few that numbers of clients and
      examples are upper bounds.
    values: Numbers [examples] by which 'continuous' sorts examples; by default
      the labels.

  Raises:
    PartitionError: If the examples cannot satisfy the options.
  """
  kind, seed = options['partition'], options['seed']
  if kind in _BY_LABEL:
    return _by_label(labels, options)
  sizes = _sizes(labels, options)
  if kind == 'iid':
    return partition.iid(len(labels), sizes=sizes, seed=seed)
  if kind == 'classes':
    return label_skew.k_classes(
      labels,
      classes_per_client=options['classes_per_client'],
      sizes=sizes,
      seed=seed,
    )
  if kind == 'continuous':
    return partition.continuous(
      labels if values is None else values,
      strictness=_given(options, 'strictness', 1.0),
      sizes=sizes,
      seed=seed,
    )
  draw = partition.lda if kind == 'lda' else label_skew.inner_dirichlet
  return draw(labels, alpha=options['alpha'], sizes=sizes, seed=seed)


def _given(options: Mapping[str, Any], name: str, default: Any) -> Any:
  """Returns an option, or a default if it is not given."""
  value = options.get(name)
  return default if value is None else value


def _by_label(
  labels: np.ndarray, options: Mapping[str, Any]
) -> partition.Partition:
  """Partitions by a rule that determines sizes itself."""
  kind, seed = options['partition'], options['seed']
  num_clients, least = options['num_clients'], options['smallest_client'] or 1
  mean = int(partition.equal_sizes(len(labels), _bounded(options))[0])
  size = options['examples_per_client']
  if options['data'] == 'synthetic':
    num_clients = _bounded(options)
    least, size = min(least, mean), size and min(size, mean)
  pool = np.arange(len(labels))
  if size is not None:
    partition.check_sizes([size] * num_clients, len(labels))
    rng = np.random.default_rng([seed, 0x9001])
    pool = rng.permutation(pool)[: size * num_clients]
  common: dict[str, Any] = dict(num_clients=num_clients, seed=seed)
  if kind == 'dirichlet':
    common |= dict(
      alpha=options['alpha'],
      least=least,
      balanced=_given(options, 'self_balancing', True),
    )
  elif kind == 'shards':
    common |= dict(shards_per_client=_given(options, 'shards_per_client', 2))
  else:
    k = options['classes_per_client']
    common |= dict(classes_per_client=k)
    if kind == 'lognormal':
      deviation = _given(options, 'size_skew', 2.0)
      common |= dict(deviation=deviation, least=-(-least // k))
  split: partition.Partition = getattr(label_skew, kind)(labels[pool], **common)
  if split.sizes.min() < least:
    raise data_files.PartitionError(
      f'The smallest client has {split.sizes.min()} examples, fewer than '
      f'`smallest_client`, {least}: ask for fewer clients.'
    )
  return partition.Partition(
    split.client_ids, tuple(pool[rows] for rows in split.indices)
  )


def _bounded(options: Mapping[str, Any]) -> int:
  """Returns the number of clients, bounded for synthetic data."""
  num_clients: int = options['num_clients']
  if options['data'] == 'synthetic':
    return min(num_clients, _STAND_IN_CLIENTS)
  return num_clients


def _sizes(labels: np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
  """Returns the number of examples of each client."""
  num_clients = _bounded(options)
  smallest = options['smallest_client']
  if options['partition'] == 'classes':
    largest = label_skew.largest_equal_size(
      labels,
      classes_per_client=options['classes_per_client'],
      num_clients=num_clients,
    )
  else:
    largest = int(partition.equal_sizes(len(labels), num_clients)[0])
  size = options['examples_per_client'] or largest
  if options['data'] == 'synthetic':
    size = min(size, largest)
    smallest = smallest and min(smallest, size)
  rule = _given(options, 'sizes', 'equal')
  if rule != 'equal':
    everything = options['examples_per_client'] is None
    return partition.draw_sizes(
      rule,
      len(labels)
      if everything and options['partition'] != 'classes'
      else size * num_clients,
      num_clients,
      skew=options['size_skew'],
      least=smallest or 1,
      seed=options['seed'],
    )
  if smallest is None:
    return np.full(num_clients, size)
  if smallest > size:
    raise data_files.PartitionError(
      f'`smallest_client` must be at most {size}, the examples of the '
      f'largest client, got {smallest}.'
    )
  return partition.sizes_in_range(
    num_clients, smallest, size, seed=options['seed']
  )
