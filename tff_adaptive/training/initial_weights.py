"""The initial weights of a run's model."""

from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.training import seeds


def draw(
  model_fn: Callable[[], Any], seed: int
) -> tff.learning.models.ModelWeights:
  """Draws the weights that a model starts training with.

  Whatever the method: all runs of a task with the same seed start alike.

  Args:
    model_fn: Returns a `tff.learning.models.VariableModel`.
    seed: The run's seed.

  Returns:
    The weights, as arrays.
  """
  tf.keras.utils.set_random_seed(seeds.seed_32(seed, 'initial weights'))
  weights = tff.learning.models.ModelWeights.from_model(model_fn())
  return tf.nest.map_structure(lambda v: v.numpy(), weights)
