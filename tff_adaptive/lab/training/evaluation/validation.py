"""Validation and test splits of a run.

Rounds and configurations are selected by their metrics on the validation split.
It is disjoint from the test split, unless a run follows the papers' protocol,
which validates on test data.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import client_data
from tff_adaptive import errors
from tff_adaptive import structures
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training import seeds
from tff_adaptive.lab.training.data import datasets as data

_CHUNK = 1024
# Larger than rounding errors, smaller than differences between positions.
_ROUNDING = 1e-7


@dataclasses.dataclass(frozen=True)
class Splits:
  """The splits that a run's model is evaluated on.

  Attributes:
    validation: Maps a round's number, 0 for the untrained model, to the batches
      that the model is evaluated on after it.
    test: Returns the batches that the trained model is tested on.
  """

  validation: Callable[[int], data.Batches]
  test: Callable[[], data.Batches]


def _is_given(datasets: tff.simulation.baselines.BaselineTaskDatasets) -> bool:
  """Returns whether the user's data have a validation split.

  Others, such as that of Stack Overflow, are not used by default.
  """
  return getattr(datasets.validation_data, 'is_given', False)


def describe(
  settings: settings_lib.Settings,
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> str:
  """Describes a run's validation and test splits in one line."""
  share = settings.validation_share
  if settings.validation_split == 'examples' and _is_given(datasets):
    return "validation on the data's own split; test on the test examples"
  if settings.validation_split == 'examples':
    return f'validation on {share:.3g} of the test examples; test on the others'
  if settings.validation_split == 'clients':
    return (
      f'validation on {share:.3g} of the clients, held out from training; test '
      'on the test examples'
    )
  return 'validation on test examples, as in the papers; test on all of them'


def hold_out_clients(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
  settings: settings_lib.Settings,
) -> tuple[tff.simulation.datasets.ClientData, Any]:
  """Holds clients out of training, with --validation_split=clients.

  Args:
    datasets: A task's datasets.
    settings: The run's settings.

  Returns:
    The training clients, and validation data: those of the clients held out,
    or else the task's.

  Raises:
    SettingsError: If no client is left to train on.
  """
  clients = datasets.train_data
  if settings.validation_split != 'clients':
    return clients, datasets.validation_data
  assert settings.validation_share is not None
  ids = list(clients.client_ids)
  count = max(round(settings.validation_share * len(ids)), 1)
  if count >= len(ids):
    raise errors.SettingsError(
      f'--validation_share={settings.validation_share:g} of {len(ids)} clients '
      'leaves none for training; give a smaller share, or '
      '--validation_split=examples.'
    )
  seed = seeds.seed_pair(settings.seed, 'validation clients')
  order = np.random.default_rng(seed).permutation(len(ids))
  held_out, left = order[:count], sorted(order[count:])
  return (
    client_data.subset(clients, [ids[i] for i in left]),
    client_data.subset(clients, [ids[i] for i in held_out]),
  )


def build(
  settings: settings_lib.Settings,
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> Splits:
  """Builds a run's validation and test splits.

  Args:
    settings: The run's settings.
    datasets: The task's datasets, after `hold_out_clients`.

  Raises:
    RunError: If the validation split is empty or cannot be read.
    SettingsError: If --validation_sample=resampled does not fit into memory.
  """
  cache_bytes = settings.cache_mib * 2**20
  raw = whole = data.raw_test_split(datasets)
  share = None
  name = 'test split'
  if settings.validation_split == 'clients':
    raw = client_data.interleaved(datasets.validation_data)
    name = 'validation split'
  elif settings.validation_split == 'examples' and _is_given(datasets):
    raw, name = datasets.validation_data, 'validation split'
  elif settings.validation_split == 'examples':
    share = settings.validation_share
    assert share is not None
    raw = chosen(whole, share, settings.seed, True)
    name = 'validation split'

  def test() -> data.Batches:
    tested = whole
    if share is not None:
      tested = chosen(whole, share, settings.seed, False)
    return data.test_split(datasets, raw=tested, cache_bytes=0)

  if settings.validation_sample == 'fixed':
    count = settings.num_validation_examples
    split = reuse.beside(
      datasets,
      (settings.validation_split, share, settings.seed, count, cache_bytes),
      lambda: data.test_split(
        datasets,
        num_examples=count,
        cache_bytes=cache_bytes,
        raw=raw,
        name=name,
      ),
    )
    return Splits(lambda round_number: split, test)
  assert settings.num_validation_examples is not None  # As `resolving` checks.
  drawn = resampled(
    datasets,
    num_examples=settings.num_validation_examples,
    seed=settings.seed,
    cache_bytes=cache_bytes,
    raw=raw,
  )
  return Splits(drawn, test)


@tf.autograph.experimental.do_not_convert
def chosen(
  raw: tf.data.Dataset, share: float, seed: int, inside: bool
) -> tf.data.Dataset:
  """Returns a random share of a dataset's examples, or all others.

  They are chosen by position: one example is drawn from every stretch of
  1 / share consecutive examples, so that the share is accurate in small
  datasets, and stratified in sorted ones. A draw is a function of (seed,
  stretch), without any state.

  Args:
    raw: The examples.
    share: Share of the chosen ones.
    seed: The run's seed.
    inside: Whether to return the chosen examples.
  """
  own = int(seeds.seed_pair(seed, 'validation examples')[0])

  def is_kept(place: tf.Tensor, _: structures.Structure) -> tf.Tensor:
    stretch = tf.floor(tf.cast(place, tf.float64) * share + _ROUNDING)
    pair = tf.stack([tf.constant(own), tf.cast(stretch, tf.int64)])
    within = tf.random.stateless_uniform([], pair, dtype=tf.float64)
    begin, end = (
      tf.math.ceil(s / share - _ROUNDING) for s in (stretch, stretch + 1)
    )
    drawn = begin + tf.floor(within * (end - begin))
    return tf.equal(tf.equal(tf.cast(drawn, tf.int64), place), inside)

  return raw.enumerate().filter(is_kept).map(lambda _, example: example)


def resampled(
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
  *,
  num_examples: int,
  seed: int,
  cache_bytes: int,
  raw: Optional[tf.data.Dataset] = None,
) -> Callable[[int], data.Batches]:
  """Reads a split, of which every evaluation draws a random sample.

  As in Reddi et al. (arXiv 2003.00295, Appendix E.2) on Stack Overflow. A
  sample is a function of (seed, round), so that a resumed run repeats it.

  Args:
    datasets: The task's datasets.
    num_examples: Number of examples to draw; all, if there are fewer.
    seed: The run's seed.
    cache_bytes: Memory for the split's raw examples, in bytes.
    raw: The split before preprocessing; the test split by default.

  Returns:
    A function from a round's number to the batches of its sample.

  Raises:
    RunError: If the split is empty or cannot be read.
    SettingsError: If it exceeds `cache_bytes`.
  """
  preprocess = datasets.eval_preprocess_fn or (lambda raw: raw)
  rows = _read(
    data.raw_test_split(datasets) if raw is None else raw, cache_bytes
  )
  count = len(tf.nest.flatten(rows)[0])

  def draw(round_number: int) -> data.Batches:
    generator = np.random.default_rng(
      seeds.seed_pair(seed, 'validation', round_number)
    )
    places = generator.choice(count, min(num_examples, count), replace=False)
    drawn = tf.nest.map_structure(lambda leaf: leaf[places], rows)
    return preprocess(tf.data.Dataset.from_tensor_slices(drawn))

  return draw


def _read(raw: tf.data.Dataset, cache_bytes: int) -> structures.Structure:
  """Reads all examples of a split as stacked NumPy arrays."""
  chunks: list[structures.Structure] = []
  size = 0
  try:
    for chunk in raw.batch(_CHUNK):
      size += data.nbytes(chunk)
      if size > cache_bytes:
        raise errors.SettingsError(
          '--validation_sample=resampled keeps the split in memory, which '
          f'takes more than --cache_mib={cache_bytes // 2**20}; raise it, or '
          'give --validation_sample=fixed.'
        )
      chunks.append(tf.nest.map_structure(lambda leaf: leaf.numpy(), chunk))
  except tf.errors.OpError as e:
    raise errors.RunError(
      f'The validation split cannot be read: {errors.reason(e)}.'
    ) from e
  if not chunks:
    raise errors.RunError('The validation split has no examples.')
  return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *chunks)
