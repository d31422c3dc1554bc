"""`tf.vectorized_map` over clients, with converters that TensorFlow lacks.

The only file with names of TensorFlow's vectorizer beyond its public API.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor


def over_clients(
  count: int, function: Callable[..., Any], *arguments: Any
) -> Any:
  """Calls a function once for several clients.

  Args:
    count: Number of clients.
    function: Maps structures of tensors of one client to another structure.
      What it captures is the same for all clients.
    *arguments: Structures whose tensors are stacked, [clients, ...]. Leaves of
      both structures may be `None`.

  Returns:
    The function's result, stacked. Operations that TensorFlow cannot vectorize
    run client by client.
  """
  flat = tf.nest.flatten(arguments)
  given = [leaf for leaf in flat if leaf is not None]
  results: list[Any] = []

  def on_one(tensors: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    _, *others = tensors
    remaining = iter(others)
    own = [None if leaf is None else next(remaining) for leaf in flat]
    result = function(*tf.nest.pack_sequence_as(arguments, own))
    results[:] = [result]
    return [
      tf.convert_to_tensor(leaf)
      for leaf in tf.nest.flatten(result)
      if leaf is not None
    ]

  # The numbers of the clients, because there may be no arguments.
  numbered = [tf.range(count), *given]
  stacked = iter(
    tf.vectorized_map(on_one, numbered, fallback_to_while_loop=True, warn=False)
  )
  return tf.nest.map_structure(
    lambda leaf: None if leaf is None else next(stacked), results[0]
  )


def _bitcast(pfor_input: Any, *_: Any, **__: Any) -> Any:
  given = pfor_input.stacked_input(0)
  return pfor.wrap(tf.bitcast(given, pfor_input.op.outputs[0].dtype), True)


# Rows and columns of zeros around images: above, below, left and right.
_Margins = tuple[int, int, int, int]


def _margins(height: int, width: int, padding: bytes) -> _Margins:
  if padding == b'VALID':
    return 0, 0, 0, 0
  above, left = (height - 1) // 2, (width - 1) // 2
  return above, height - 1 - above, left, width - 1 - left


def _windows(
  images: tf.Tensor, height: int, width: int, margins: _Margins
) -> tf.Tensor:
  """Gathers the windows of images of several clients.

  Several times as fast on a CPU as `tf.image.extract_patches`.

  Args:
    images: Images [clients, examples, rows, columns, channels].
    height, width: Size of a window.
    margins: Zeros to add around the images.

  Returns:
    The windows, [clients, examples * windows, height * width * channels].
  """
  clients, examples, rows, columns, channels = images.shape
  above, below, left, right = margins
  if any(margins):
    around = [[0, 0], [0, 0], [above, below], [left, right], [0, 0]]
    images = tf.pad(images, around)
  rows, columns = rows + above + below, columns + left + right
  places = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
  windows = np.lib.stride_tricks.sliding_window_view(places, (height, width))
  flat = tf.reshape(images, [clients * examples, rows * columns, channels])
  gathered = tf.gather(flat, windows.reshape(-1), axis=1)
  return tf.reshape(gathered, [clients, -1, height * width * channels])


def _is_plain(pfor_input: Any) -> bool:
  """Returns whether a convolution has stride 1 and channels last."""
  return (
    list(pfor_input.get_attr('strides')) == [1, 1, 1, 1]
    and list(pfor_input.get_attr('dilations')) == [1, 1, 1, 1]
    and pfor_input.get_attr('data_format') == b'NHWC'
    and pfor_input.get_attr('padding') in (b'SAME', b'VALID')
  )


def _convolved(images: tf.Tensor, filters: tf.Tensor, margins: _Margins) -> Any:
  """Multiplies the windows of images by each client's own filters."""
  clients, height, width, channels, outputs = filters.shape
  product = tf.matmul(
    _windows(images, height, width, margins),
    tf.reshape(filters, [clients, height * width * channels, outputs]),
  )
  rows = images.shape[2] + sum(margins[:2]) - height + 1
  columns = images.shape[3] + sum(margins[2:]) - width + 1
  shape = [clients, images.shape[1], rows, columns, outputs]
  return pfor.wrap(tf.reshape(product, shape), True)


def _convolve(pfor_input: Any) -> Any:
  pfor_input.stack_inputs()
  images, filters = pfor_input.stacked_input(0), pfor_input.stacked_input(1)
  height, width = filters.shape[1:3]
  margins = _margins(height, width, pfor_input.get_attr('padding'))
  return _convolved(images, filters, margins)


def _filter_gradient(pfor_input: Any) -> Any:
  pfor_input.stack_inputs(stack_indices=[0, 2])
  images, gradient = pfor_input.stacked_input(0), pfor_input.stacked_input(2)
  height, width, channels, outputs = _static(pfor_input.op.inputs[1])
  clients = images.shape[0]
  margins = _margins(height, width, pfor_input.get_attr('padding'))
  product = tf.matmul(
    _windows(images, height, width, margins),
    tf.reshape(gradient, [clients, -1, outputs]),
    transpose_a=True,
  )
  shape = [clients, height, width, channels, outputs]
  return pfor.wrap(tf.reshape(product, shape), True)


def _input_gradient(pfor_input: Any) -> Any:
  """Convolves the gradient with the filters turned by 180 degrees."""
  pfor_input.stack_inputs(stack_indices=[1, 2])
  filters, gradient = pfor_input.stacked_input(1), pfor_input.stacked_input(2)
  height, width = filters.shape[1:3]
  above, below, left, right = _margins(
    height, width, pfor_input.get_attr('padding')
  )
  margins = (
    height - 1 - above,
    height - 1 - below,
    width - 1 - left,
    width - 1 - right,
  )
  turned = tf.transpose(tf.reverse(filters, [1, 2]), [0, 1, 2, 4, 3])
  return _convolved(gradient, turned, margins)


def _static(sizes: tf.Tensor) -> Sequence[int]:
  """Returns the shape that an operation computes of a tensor."""
  if sizes.op.type == 'ShapeN':
    return sizes.op.inputs[sizes.value_index].shape
  return [int(size) for size in tf.get_static_value(sizes)]


def _register(name: str, own: Callable[[Any], Any], position: int) -> None:
  """Replaces a converter for inputs at `position` that differ by client."""
  given = pfor._pfor_converter_registry[name]

  def convert(pfor_input: Any, *more: Any, **named: Any) -> Any:
    differs = pfor_input.input(position).is_stacked
    if differs and _is_plain(pfor_input):
      return own(pfor_input)
    return given(pfor_input, *more, **named)

  pfor._pfor_converter_registry[name] = convert


_register('Conv2D', _convolve, 1)
_register('Conv2DBackpropFilter', _filter_gradient, 2)
_register('Conv2DBackpropInput', _input_gradient, 1)
pfor._pfor_converter_registry['Bitcast'] = _bitcast
