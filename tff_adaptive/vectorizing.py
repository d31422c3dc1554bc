"""`tf.vectorized_map` over clients, with converters that TensorFlow lacks.

The only file with names of TensorFlow's vectorizer beyond its public API.
"""

import contextlib
import contextvars
import functools
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.ops.parallel_for import pfor

_FOR_XLA = contextvars.ContextVar('for_xla', default=False)


@contextlib.contextmanager
def for_xla(chosen: bool = True) -> Iterator[None]:
  """Lets `over_clients` choose operations that XLA compiles well, or others."""
  token = _FOR_XLA.set(chosen)
  try:
    yield
  finally:
    _FOR_XLA.reset(token)


def is_for_xla() -> bool:
  """Returns whether `for_xla` is in effect."""
  return _FOR_XLA.get()


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


@contextlib.contextmanager
def quietly() -> Iterator[None]:
  """Silences what TensorFlow logs of operations that it cannot vectorize."""
  logger = tf.get_logger()

  def is_other(record: logging.LogRecord) -> bool:
    return record.filename != 'pfor.py'

  logger.addFilter(is_other)
  try:
    yield
  finally:
    logger.removeFilter(is_other)


def reason(error: Exception) -> str:
  """Returns the sentence of an error, without what Keras puts around it."""
  text = re.sub(r'\x1b\[\d*m', '', getattr(error, 'message', str(error)))
  text = re.split('(?:Call a|A)rguments received by', text)[0]
  lines = [line.strip() for line in text.splitlines() if line.strip()]
  if not lines:
    return type(error).__name__
  wrapped = ('in user code', 'Exception encountered', 'Graph execution error')
  found = lines[-1] if lines[0].startswith(wrapped) else lines[0]
  if "<dtype: 'variant'>" in found:
    return 'a layer loops over its inputs, as recurrent ones do'
  return re.sub(r'^\w+Error: ', '', found).rstrip('.')


def _bitcast(pfor_input: Any) -> Any:
  given = pfor_input.stacked_input(0)
  return pfor.wrap(tf.bitcast(given, pfor_input.op.outputs[0].dtype), True)


_HALF = 32
_LOW = (1 << _HALF) - 1


def _halves(words: tf.Tensor) -> list[tf.Tensor]:
  """Splits uint64 words into their lower and upper halves."""
  upper = tf.bitwise.right_shift(words, tf.constant(_HALF, tf.uint64))
  return [words & _LOW, upper]


def _philox(key: tf.Tensor, counter: tf.Tensor, count: int) -> tf.Tensor:
  """Draws the bits of `tf.random.Algorithm.PHILOX` for all clients.

  In arithmetic, which XLA fuses for all of them (Salmon et al., SC 2011).

  Args:
    key: Keys, uint64 [clients, 1].
    counter: Counters, uint64 [clients, 2], of which the first do not overflow.
    count: How many numbers to draw.

  Returns:
    Numbers below 2^32, uint64 [clients, count].
  """
  blocks = tf.cast(tf.range(-(-count // 4), dtype=tf.int64), tf.uint64)
  low = counter[:, :1] + blocks
  lanes = [*_halves(low), *_halves(counter[:, 1:] + tf.zeros_like(low))]
  keys = _halves(key)
  for _ in range(10):
    (low_0, high_0), (low_1, high_1) = (
      _halves(lanes[0] * 0xD2511F53),
      _halves(lanes[2] * 0xCD9E8D57),
    )
    lanes = [
      high_1 ^ lanes[1] ^ keys[0],
      low_1,
      high_0 ^ lanes[3] ^ keys[1],
      low_0,
    ]
    keys = [(keys[0] + 0x9E3779B9) & _LOW, (keys[1] + 0xBB67AE85) & _LOW]
  drawn = tf.reshape(tf.stack(lanes, axis=-1), [counter.shape[0], -1])
  return drawn[:, :count]


def _key_and_counter(seeds: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
  """Scrambles seeds as TensorFlow's `GenerateKey` does; XLA drops their sign.

  Args:
    seeds: Integers [clients, 2].
  """
  words = tf.bitcast(tf.cast(seeds, tf.int64), tf.uint64)
  mixed = _philox(tf.constant([[0x02461E293EC8F720]], tf.uint64), words, 4)
  shift = tf.constant(_HALF, tf.uint64)
  key = mixed[:, :1] | tf.bitwise.left_shift(mixed[:, 1:2], shift)
  counter = mixed[:, 2:3] | tf.bitwise.left_shift(mixed[:, 3:], shift)
  return key, tf.concat([tf.zeros_like(counter), counter], axis=1)


def _drawn_by_xla(op: Any, inputs: Sequence[Any]) -> list[tf.Tensor] | None:
  """Draws what TensorFlow does, where XLA would draw other numbers."""
  if op.type == 'StatelessRandomGetKeyCounter':
    return [*_key_and_counter(inputs[0].t)]
  shape = tf.get_static_value(op.inputs[0])
  if (
    op.type != 'StatelessRandomUniformV2'
    or op.outputs[0].dtype != tf.float32
    or shape is None
    or not (inputs[1].is_stacked and inputs[2].is_stacked)
  ):
    return None
  bits = _philox(inputs[1].t, inputs[2].t, int(np.prod(shape)))
  # TensorFlow makes a mantissa of the lower bits, XLA of the upper ones.
  ones = tf.cast(bits & 0x7FFFFF, tf.uint32) | (127 << 23)
  uniform = tf.bitcast(ones, tf.float32) - 1.0
  return [tf.reshape(uniform, [-1, *shape])]


def _each_draws(pfor_input: Any) -> Any:
  """Draws client by client, for which TensorFlow would add a loop."""
  op = pfor_input.op
  inputs = [pfor_input.input(i) for i in range(len(op.inputs))]
  made = _drawn_by_xla(op, inputs) if _FOR_XLA.get() else None
  if made is None:
    clients = next(x.t.shape[0] for x in inputs if x.is_stacked)
    each = [
      pfor._create_op(
        op.type,
        [x.t[client] if x.is_stacked else x.t for x in inputs],
        [x.dtype for x in op.outputs],
        op.node_def.attr,
      ).outputs
      for client in range(clients)
    ]
    made = [tf.stack(parts) for parts in zip(*each)]
  return [pfor.wrap(tensor, True) for tensor in made]


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

  Several times as fast on a CPU as `tf.image.extract_patches`. XLA fuses
  slices, but not gathers.

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
  if _FOR_XLA.get():
    down, right = rows - height + 1, columns - width + 1
    parts = [
      images[:, :, i : i + down, j : j + right]
      for i in range(height)
      for j in range(width)
    ]
    size = height * width * channels
    return tf.reshape(tf.concat(parts, axis=-1), [clients, -1, size])
  places = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
  windows = np.lib.stride_tricks.sliding_window_view(places, (height, width))
  flat = tf.reshape(images, [clients * examples, rows * columns, channels])
  gathered = tf.gather(flat, windows.reshape(-1), axis=1)
  return tf.reshape(gathered, [clients, -1, height * width * channels])


def _is_plain(pfor_input: Any) -> bool:
  """Returns whether a convolution has stride 1, channels last, no groups."""
  op = pfor_input.op
  images, filters = op.inputs[:2]
  # Gradients have the shapes of what they are of.
  if op.type == 'Conv2DBackpropFilter':
    filters = op.outputs[0]
  if op.type == 'Conv2DBackpropInput':
    images = op.outputs[0]
  channels = {images.shape[3], filters.shape[2]} - {None}
  return (
    len(channels) < 2
    and list(pfor_input.get_attr('strides')) == [1, 1, 1, 1]
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


def _differs(position: int) -> Callable[[Any], bool]:
  """Returns whether a convolution's input at `position` differs by client."""
  return lambda pfor_input: (
    pfor_input.input(position).is_stacked and _is_plain(pfor_input)
  )


def _is_tiled(pfor_input: Any) -> bool:
  """Returns whether pooling windows tile images with channels last."""
  images = pfor_input.op.inputs[0].shape
  _, height, width, _ = size = list(pfor_input.get_attr('ksize'))
  return (
    images.is_fully_defined()
    and size == list(pfor_input.get_attr('strides'))
    and pfor_input.get_attr('data_format') == b'NHWC'
    and pfor_input.get_attr('padding') in (b'SAME', b'VALID')
    and not (images[1] % height or images[2] % width)
  )


def _places(pfor_input: Any) -> tuple[list[tf.Tensor], int, int]:
  """Returns the first, second, ... place of all windows, and their size.

  Each is [clients * examples * windows down, windows across, channels].
  """
  images = pfor_input.stacked_input(0)
  clients, examples, rows, columns, channels = images.shape
  _, height, width, _ = pfor_input.get_attr('ksize')
  tiles = tf.reshape(
    images,
    [
      clients * examples * (rows // height),
      height,
      columns // width,
      width,
      channels,
    ],
  )
  found = [tiles[:, i, :, j] for i in range(height) for j in range(width)]
  return found, height, width


def _pool(pfor_input: Any) -> Any:
  """Takes maxima of slices, whose gradients XLA does not scatter."""
  places, height, width = _places(pfor_input)
  largest = functools.reduce(tf.maximum, places)
  clients, examples, rows, columns, channels = pfor_input.stacked_input(0).shape
  shape = [clients, examples, rows // height, columns // width, channels]
  return pfor.wrap(tf.reshape(largest, shape), True)


def _pool_gradient(pfor_input: Any) -> Any:
  """Sends the gradient to the first largest place, as TensorFlow does.

  In a third of the time of its operation on a CPU, and without scattering under
  XLA.
  """
  pfor_input.stack_inputs()
  places, height, width = _places(pfor_input)
  largest, remaining = (
    tf.reshape(pfor_input.stacked_input(i), places[0].shape) for i in (1, 2)
  )
  found = []
  for place in places:
    found.append(remaining * tf.cast(tf.equal(place, largest), remaining.dtype))
    remaining -= found[-1]
  rows = [
    tf.stack(found[i : i + width], axis=2)
    for i in range(0, height * width, width)
  ]
  images = tf.reshape(tf.stack(rows, axis=1), pfor_input.stacked_input(0).shape)
  return pfor.wrap(images, True)


def _register(
  name: str,
  own: Callable[[Any], Any],
  applies: Callable[[Any], bool] = lambda _: True,
) -> None:
  """Registers a converter; where it does not apply, TensorFlow's is used."""
  given = pfor._pfor_converter_registry.get(name)

  def convert(pfor_input: Any, *more: Any, **named: Any) -> Any:
    if applies(pfor_input):
      return own(pfor_input)
    return given(pfor_input, *more, **named)

  pfor._pfor_converter_registry[name] = convert


_register('MaxPool', _pool, lambda given: _FOR_XLA.get() and _is_tiled(given))
_register('MaxPoolGrad', _pool_gradient, _is_tiled)
_register('Conv2D', _convolve, _differs(1))
_register('Conv2DBackpropFilter', _filter_gradient, _differs(2))
_register('Conv2DBackpropInput', _input_gradient, _differs(1))
_register('Bitcast', _bitcast)
_register('StatelessRandomGetKeyCounter', _each_draws)
_register('StatelessRandomNormalV2', _each_draws)
_register('StatelessRandomUniformV2', _each_draws)
_register('StatelessTruncatedNormalV2', _each_draws)
