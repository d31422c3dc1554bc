"""Export of a Keras model: weights, a SavedModel, and its signature."""

import contextlib
import logging
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any, Optional

import tensorflow as tf
from absl import logging as absl_logging

from tasks import encodings
from tasks import registry
from tff_adaptive import models

_SIGNATURE = 'serving_default'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
  """Suppresses warnings of TensorFlow and Keras.

  For example that a model was not compiled, which prediction does not need.
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
    task: Name of the model's task.
    logits: Whether the model outputs logits; `None` if unknown.

  Returns:
    Entries of export.json: how to `load` the files, Keras' files (`keras`), and
    the SavedModel's signature with names, shapes and dtypes of its inputs and
    outputs. A model of a table takes rows as in the data file; `columns`
    describes their order and meaning.
  """
  place = str(folder / 'saved_model')
  encoding = encodings.of(keras_model)
  write_all = _write_keras_2
  if models.kind_of(keras_model) == 'keras_3':
    write_all = _write_keras_3
  with _quiet():
    load = write_all(keras_model, folder, place, encoding)
    # Names as in the loaded model; Keras' own tensors have other names.
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
    if encoding.target is not None:
      shift, scale = encoding.target
      told['target'] = {'shift': shift, 'scale': scale}
  for output in outputs:
    count = (output['shape'] or [None])[-1]
    if names := registry.classes_of(task, count, keras_model):
      told['classes'] = list(names)
      break
  return told


def _write_keras_2(
  keras_model: Any,
  folder: pathlib.Path,
  place: str,
  encoding: Optional[encodings.Encoding],
) -> dict[str, str]:
  """Writes a Keras 2 model; returns how to load its files, by kind."""
  signatures = {}
  if encoding is not None:
    # Users of the model have rows of the table, not encoded features.
    [output] = keras_model.output_names
    signatures = {_SIGNATURE: _of_rows(keras_model, encoding, output)}
  keras_model.save_weights(str(folder / 'weights.h5'))
  if encoding is not None:  # Tracked, for its tables of words.
    keras_model.encoding_layers = encoding.layers
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
  encoding: Optional[encodings.Encoding],
) -> dict[str, str]:
  """Writes a Keras 3 model; returns how to load its files, by kind."""
  keras_model.save_weights(str(folder / 'model.weights.h5'))
  keras_model.save(str(folder / 'model.keras'))
  if encoding is None:
    keras_model.export(place, verbose=False)
  else:
    served = tf.Module()
    served.tracked = [keras_model, *encoding.layers]
    signature = _of_rows(keras_model, encoding, 'output')
    tf.saved_model.save(served, place, signatures={_SIGNATURE: signature})
  return {
    'keras': 'model.keras, for keras.models.load_model',
    'weights': "the same Keras model's load_weights('model.weights.h5')",
  }


def _of_rows(
  keras_model: Any, encoding: encodings.Encoding, output: str
) -> Any:
  """Builds a traced function from rows of a table to the model's outputs."""

  @tf.function(input_signature=[encoding.input_spec])
  def serve(rows: tf.Tensor) -> dict[str, tf.Tensor]:
    outputs = keras_model(encoding.encode_rows(rows), training=False)
    return {output: encoding.predictions(outputs)}

  return serve


def _described(specs: Any) -> list[dict[str, Any]]:
  return [
    {'name': name, 'shape': spec.shape.as_list(), 'dtype': spec.dtype.name}
    for name, spec in specs.items()
  ]
