"""Every name of TFF and Keras that this package uses beyond their public API.

An upgrade of either is a change of this file. (The runtime has such files of
its own, because it does not import the rest of the package.)
"""

from typing import Any
from typing import Optional

import tensorflow as tf
import tensorflow_federated as tff


def keras_model_of(
  model: tff.learning.models.VariableModel,
) -> Optional[tf.keras.Model]:
  """The Keras model inside a `tff.learning.models.from_keras_model`, if any."""
  return getattr(model, '_keras_model', None)


def replace_random_generators(
  keras_model: tf.keras.Model, make_generator: Any
) -> int:
  """Gives every layer that draws random numbers another generator.

  Args:
    keras_model: The model, changed in place.
    make_generator: Maps a running index to an object with the methods
      `dropout`, `random_normal`, `random_uniform` and `truncated_normal` of
      Keras' own generator.

  Returns:
    How many layers draw random numbers.
  """
  count = 0
  for layer in keras_model.submodules:
    if hasattr(layer, '_random_generator') and isinstance(
      layer, tf.keras.layers.Layer
    ):
      # A layer that turns randomness off (rate 0) still owns a generator.
      object.__setattr__(layer, '_random_generator', make_generator(count))
      count += 1
  return count
