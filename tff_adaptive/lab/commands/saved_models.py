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
from tasks import table_encoding

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
    shapes and dtypes of what goes in and what comes out. A model of a table
    takes rows as they are in its file; `columns` has their order and meaning.
  """
  place = str(folder / 'saved_model')
  encoding = table_encoding.of(keras_model)
  signatures = {}
  if encoding is not None:
    # Whoever uses the model has rows, not what it was trained on.
    signatures = {_SIGNATURE: _of_rows(keras_model, encoding)}
  with _quiet():
    keras_model.save_weights(str(folder / 'weights.h5'))
    keras_model.save(
      place,
      save_format='tf',
      include_optimizer=False,
      signatures=signatures or None,
    )
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
  if encoding is not None:
    told['columns'] = encoding.describe()
  shape = outputs[0]['shape']
  names = class_names.of(task, shape[-1], keras_model) if shape else ()
  if names:
    told['classes'] = list(names)
  return told


def _of_rows(keras_model: Any, encoding: table_encoding.Encoding) -> Any:
  """Returns a traced function from rows of a table to the model's outputs."""
  [output] = keras_model.output_names

  @tf.function(input_signature=[encoding.input_spec])
  def serve(rows: tf.Tensor) -> dict[str, tf.Tensor]:
    return {output: keras_model(encoding.encode_rows(rows), training=False)}

  return serve


def _described(specs: Any) -> list[dict[str, Any]]:
  return [
    {'name': name, 'shape': spec.shape.as_list(), 'dtype': spec.dtype.name}
    for name, spec in specs.items()
  ]
