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
from tff_adaptive import models

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
  """Writes Keras' files and `saved_model/` into a folder.

  Args:
    keras_model: The model.
    folder: The folder.
    task: The name of its task.
    logits: Whether it ends in logits; `None` if that is not known.

  Returns:
    What export.json says: how to `load` what was written, Keras' files
    (`keras`), and of the SavedModel its signature, and the names, the shapes
    and dtypes of what goes in and what comes out. A model of a table takes rows
    as they are in its file; `columns` has their order and meaning.
  """
  place = str(folder / 'saved_model')
  encoding = table_encoding.of(keras_model)
  write_all = _write_keras_2
  if models.kind_of(keras_model) == 'keras_3':
    write_all = _write_keras_3
  with _quiet():
    load = write_all(keras_model, folder, place, encoding)
    # As whoever loads it finds it; Keras' own tensors are called otherwise.
    signature = tf.saved_model.load(place).signatures[_SIGNATURE]
  _, inputs = signature.structured_input_signature
  outputs = _described(signature.structured_outputs)
  if logits is not None:
    outputs = [{**output, 'logits': logits} for output in outputs]
  told: dict[str, Any] = {
    'load': {
      'saved_model': (
        f"tf.saved_model.load('saved_model').signatures['{_SIGNATURE}']"
      ),
      **load,
    },
    'keras': sorted(f.name for f in folder.iterdir() if f.is_file()),
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


def _write_keras_2(
  keras_model: Any,
  folder: pathlib.Path,
  place: str,
  encoding: Optional[table_encoding.Encoding],
) -> dict[str, str]:
  """Writes a model of Keras 2; returns how its files are loaded."""
  signatures = {}
  if encoding is not None:
    # Whoever uses the model has rows, not what it was trained on.
    [output] = keras_model.output_names
    signatures = {_SIGNATURE: _of_rows(keras_model, encoding, output)}
  keras_model.save_weights(str(folder / 'weights.h5'))
  keras_model.save(
    place,
    save_format='tf',
    include_optimizer=False,
    signatures=signatures or None,
  )
  return {'weights': "the same Keras model's load_weights('weights.h5')"}


def _write_keras_3(
  keras_model: Any,
  folder: pathlib.Path,
  place: str,
  encoding: Optional[table_encoding.Encoding],
) -> dict[str, str]:
  """Writes a model of Keras 3; returns how its files are loaded."""
  import keras  # pylint: disable=g-import-not-at-top

  keras_model.save_weights(str(folder / 'model.weights.h5'))
  keras_model.save(str(folder / 'model.keras'))
  if encoding is None:
    keras_model.export(place, verbose=False)
  else:
    archive = keras.export.ExportArchive()
    archive.track(keras_model)
    archive.add_endpoint(_SIGNATURE, _of_rows(keras_model, encoding, 'output'))
    archive.write_out(place, verbose=False)
  return {
    'keras': 'model.keras, for keras.models.load_model',
    'weights': "the same Keras model's load_weights('model.weights.h5')",
  }


def _of_rows(
  keras_model: Any, encoding: table_encoding.Encoding, output: str
) -> Any:
  """Returns a traced function from rows of a table to the model's outputs."""

  @tf.function(input_signature=[encoding.input_spec])
  def serve(rows: tf.Tensor) -> dict[str, tf.Tensor]:
    return {output: keras_model(encoding.encode_rows(rows), training=False)}

  return serve


def _described(specs: Any) -> list[dict[str, Any]]:
  return [
    {'name': name, 'shape': spec.shape.as_list(), 'dtype': spec.dtype.name}
    for name, spec in specs.items()
  ]
