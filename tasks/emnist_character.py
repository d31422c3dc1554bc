"""Character recognition on EMNIST: Reddi et al., arXiv 2003.00295, Table 4."""

from typing import Any
from typing import Literal
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff

from tasks import assembly
from tasks import emnist
from tff_adaptive import parameters


@parameters.checked
def create(
  *,
  only_digits: bool = False,
  cache_dir: Optional[str] = None,
  data: Literal['native', 'synthetic'] = 'native',
  epochs: parameters.Count = 1,
  batch_size: Optional[parameters.Count] = None,
  max_elements: Optional[parameters.Count] = None,
  seed: parameters.NonNegativeInt = 0,
) -> tff.simulation.baselines.BaselineTask:
  """Creates the task: images [batch, 28, 28, 1] in [0, 1], labels 0 to 61.

  Args:
    only_digits: Whether only the ten digits are used.
    cache_dir: Folder with emnist_all.sqlite; ~/.tff unless given.
    data: 'native', or 'synthetic' for small made-up data of the same shapes.
    epochs: Passes of a client over its examples in a round.
    batch_size: Examples in a batch; the paper's 20 unless given.
    max_elements: Most examples of a client in a round.
    seed: Of the order of test examples, and of synthetic data.

  Raises:
    DataError: If emnist_all.sqlite is missing or not what it should be.
  """
  return emnist.create(
    locals(),
    to_model=_to_model,
    build_model=lambda: build_model(emnist.num_classes(only_digits)),
    loss=assembly.cross_entropy,
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )


def build_model(num_classes: int) -> tf.keras.Model:
  """Builds the paper's CNN with dropout; 1,206,590 weights for 62 classes."""
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer((28, 28, 1)),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPool2D(),
      layers.Dropout(0.25),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(num_classes),
    ]
  )


def _to_model(batch: Any) -> Any:
  return tf.expand_dims(batch['pixels'], -1), batch['label']
