"""Variables whose values are tensors of the graph that is being traced.

A Keras model built inside `in_place_of_variables` has no `tf.Variable`: its
weights, its metrics and its seed are `Slot`s, which a caller fills before a
pass and reads after it. So the model becomes a function of tensors, which
`tf.vectorized_map` and XLA accept. (The variables of
`tff.learning.models.functional_model_from_keras` are tensors likewise, but
cannot be assigned, so that metrics need another way.)
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf


class Slot(tf.Variable):
  """A variable that holds a tensor of the current graph; zeros at first.

  Attributes:
    must_be_filled: Whether it raises `TypeError` if it is read as it was made.
  """

  must_be_filled = False

  def __init__(self, spec: tf.TensorSpec, trainable: bool):
    """Creates an empty slot.

    Args:
      spec: Shape, dtype and name.
      trainable: Whether Keras lists it among trainable weights.
    """
    self._spec = spec
    self._is_trainable = trainable
    self._held: tf.Tensor | None = None
    self._created_in = tf.compat.v1.get_default_graph()

  def read_value(self) -> tf.Tensor:
    if self._held is None:
      if self.must_be_filled:
        raise TypeError(
          f'it reads the variable {self.name}, which is none of its weights'
        )
      return tf.zeros(self._spec.shape, self._spec.dtype)
    return self._held

  # What Keras' variables of mixed precision, which wrap a slot, ask it for.
  value = _as_graph_element = read_value

  def assign(self, value: Any, *_: Any, **__: Any) -> tf.Tensor:
    self._held = tf.cast(tf.convert_to_tensor(value), self._spec.dtype)
    return self._held

  def assign_add(self, delta: Any, *_: Any, **__: Any) -> tf.Tensor:
    return self.assign(self.read_value() + tf.cast(delta, self._spec.dtype))

  def assign_sub(self, delta: Any, *_: Any, **__: Any) -> tf.Tensor:
    return self.assign(self.read_value() - tf.cast(delta, self._spec.dtype))

  def sparse_read(self, indices: Any, name: Any = None) -> tf.Tensor:
    return tf.gather(self.read_value(), indices, name=name)

  def gather_nd(self, indices: Any, name: Any = None) -> tf.Tensor:
    return tf.gather_nd(self.read_value(), indices, name=name)

  def __tf_tensor__(self, dtype: Any = None, name: Any = None) -> tf.Tensor:
    return tf.convert_to_tensor(self.read_value(), dtype=dtype, name=name)

  def _dense_var_to_tensor(self, dtype: Any = None, **_: Any) -> tf.Tensor:
    return tf.convert_to_tensor(self.read_value(), dtype=dtype)

  def __repr__(self) -> str:
    return f'Slot({self._spec})'

  shape = property(lambda self: self._spec.shape)
  dtype = property(lambda self: self._spec.dtype)
  name = property(lambda self: self._spec.name)
  trainable = property(lambda self: self._is_trainable)
  graph = property(lambda self: self._created_in)
  initializer = property(lambda self: tf.no_op())
  synchronization = property(lambda self: tf.VariableSynchronization.AUTO)
  aggregation = property(lambda self: tf.VariableAggregation.NONE)


@contextlib.contextmanager
def in_place_of_variables() -> Iterator[list[Slot]]:
  """Makes every `tf.Variable` created in the context a `Slot`.

  Yields:
    The slots, as they are created.
  """
  made: list[Slot] = []

  def create(next_creator: Any, **options: Any) -> Slot:
    # The initial value is not kept; its shape and dtype are.
    with tf.Graph().as_default():
      value = options['initial_value']
      value = value() if callable(value) else value
      value = tf.convert_to_tensor(value, dtype=options.get('dtype'))
    name = options.get('name') or 'variable'
    spec = tf.TensorSpec(value.shape, value.dtype, name)
    made.append(Slot(spec, options.get('trainable') is not False))
    return made[-1]

  with tf.variable_creator_scope(create):
    yield made
