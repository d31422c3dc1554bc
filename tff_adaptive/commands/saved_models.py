"""A Keras model on disk: weights, a SavedModel, and what it takes and gives."""

import contextlib
import logging
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any
from typing import Optional

import tensorflow as tf
from absl import logging as absl_logging

from tasks import class_names

_SIGNATURE = 'serving_default'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Keeps back what TensorFlow and Keras warn of.

  That a model was not compiled, say, which one that is only to predict need
  not be. Errors are raised as ever.
  """
  logger, verbosity = tf.get_logger(), absl_logging.get_verbosity()
  level = logger.level
  logger.setLevel(logging.ERROR)
  absl_logging.set_verbosity(absl_logging.ERROR)
  try:
    with warnings.catch_warnings():
      warnings.simplefilter('ignore')
      yield
  finally:
    logger.setLevel(level)
    absl_logging.set_verbosity(verbosity)


def write(
  keras_model: Any, folder: pathlib.Path, *, task: str, logits: Optional[bool]
) -> dict[str, Any]:
  """Writes `weights.h5` and `saved_model/` into a folder.

  Args:
    keras_model: The model.
    folder: The folder.
    task: The name of its task.
    logits: Whether it ends in logits; `None` if that is not known.

  Returns:
    What export.json says of the SavedModel: its signature, and the names, the
    shapes and dtypes of what goes in and what comes out.
  """
  place = str(folder / 'saved_model')
  with _quiet():
    keras_model.save_weights(str(folder / 'weights.h5'))
    keras_model.save(place, save_format='tf', include_optimizer=False)
    # As whoever loads it finds it; Keras' own tensors are called otherwise.
    signature = tf.saved_model.load(place).signatures[_SIGNATURE]
  _, inputs = signature.structured_input_signature
  outputs = _described(signature.structured_outputs)
  if logits is not None:
    outputs = [{**output, 'logits': logits} for output in outputs]
  told: dict[str, Any] = {
    'signature': _SIGNATURE,
    'inputs': _described(inputs),
    'outputs': outputs,
  }
  shape = outputs[0]['shape']
  names = class_names.of(task, shape[-1], keras_model) if shape else ()
  if names:
    told['classes'] = list(names)
  return told


def _described(specs: Any) -> list[dict[str, Any]]:
  return [
    {'name': name, 'shape': spec.shape.as_list(), 'dtype': spec.dtype.name}
    for name, spec in specs.items()
  ]
