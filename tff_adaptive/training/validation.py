"""What a model is evaluated on while it trains."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive.flags import settings as settings_lib
from tff_adaptive.training import data
from tff_adaptive.training import seeds

Batches = Union[tf.data.Dataset, Sequence[Any]]

_CHUNK = 1024


def build(
  settings: settings_lib.Settings,
  datasets: tff.simulation.baselines.BaselineTaskDatasets,
) -> Callable[[int], Batches]:
  """Builds the function from a round's number to what follows it.

  Args:
    settings: The run.
    datasets: The task's.

  Raises:
    RunError: If the test split has no example, or cannot be read.
    SettingsError: If it does not fit into memory where it has to.
  """
  cache_bytes = settings.cache_mib * 2**20
  if settings.validation_sample == 'fixed':
    split = data.test_split(
      datasets,
      num_examples=settings.num_validation_examples,
      cache_bytes=cache_bytes,
    )
    return lambda round_number: split
  assert settings.num_validation_examples is not None  # As `resolving` checks.
  return Drawn(
    datasets,
    num_examples=settings.num_validation_examples,
    seed=settings.seed,
    cache_bytes=cache_bytes,
  )


class Drawn:
  """Random examples of the test split, drawn anew for every evaluation.

  As Reddi et al. (arXiv 2003.00295, Appendix E.2) evaluate on Stack Overflow.
  The draw is a function of (seed, round), so that a resumed run repeats it.
  """

  def __init__(
    self,
    datasets: tff.simulation.baselines.BaselineTaskDatasets,
    *,
    num_examples: int,
    seed: int,
    cache_bytes: int,
  ):
    """Reads the whole test split.

    Args:
      datasets: The task's.
      num_examples: How many to draw; all, if there are fewer.
      seed: The run's seed.
      cache_bytes: Memory for the test split's raw examples.

    Raises:
      RunError: If the test split has no example, or cannot be read.
      SettingsError: If it does not fit.
    """
    self._preprocess = datasets.eval_preprocess_fn or (lambda raw: raw)
    self._seed = seed
    self._rows = _read(data.raw_test_split(datasets), cache_bytes)
    self._count = len(tf.nest.flatten(self._rows)[0])
    self._num_examples = min(num_examples, self._count)

  def __call__(self, round_number: int) -> Batches:
    """Draws what the model after a round is evaluated on."""
    generator = np.random.default_rng(
      seeds.seed_pair(self._seed, 'validation', round_number)
    )
    places = generator.choice(self._count, self._num_examples, replace=False)
    rows = tf.nest.map_structure(lambda leaf: leaf[places], self._rows)
    return self._preprocess(tf.data.Dataset.from_tensor_slices(rows))


def _read(raw: tf.data.Dataset, cache_bytes: int) -> Any:
  """Reads all examples of a split, stacked, as NumPy arrays."""
  chunks: list[Any] = []
  size = 0
  try:
    for chunk in raw.batch(_CHUNK):
      size += data.nbytes(chunk)
      if size > cache_bytes:
        raise errors.SettingsError(
          '--validation_sample=drawn keeps the whole test split in memory, '
          f'which takes more than --cache_mib={cache_bytes // 2**20}; give '
          'more of it, or --validation_sample=fixed.'
        )
      chunks.append(tf.nest.map_structure(lambda leaf: leaf.numpy(), chunk))
  except tf.errors.OpError as e:
    raise errors.RunError(
      f'The test split cannot be read: {errors.reason(e)}.'
    ) from e
  if not chunks:
    raise errors.RunError('The test split has no examples.')
  return tf.nest.map_structure(lambda *leaves: np.concatenate(leaves), *chunks)
