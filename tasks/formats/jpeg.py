"""Decoding of JPEG files in TensorFlow graphs."""

from typing import Any

import tensorflow as tf

# The largest landmark has 2 million; decoding takes up to 12 bytes per pixel.
MAX_PIXELS = 100_000_000


def decode(file: Any, max_pixels: int = MAX_PIXELS) -> tf.Tensor:
  """Decodes a JPEG file to RGB; raises an error on more than `max_pixels`."""
  shape = tf.io.extract_jpeg_shape(file, tf.int64)
  small = tf.debugging.assert_less_equal(
    shape[0] * shape[1],
    tf.constant(max_pixels, tf.int64),
    message='An image has more pixels than any real one.',
  )
  with tf.control_dependencies([] if small is None else [small]):
    return tf.io.decode_jpeg(tf.identity(file), channels=3)
