"""One interface to tff.learning's two kinds of model.

A `VariableModel` keeps weights and metrics in `tf.Variable`s, a
`FunctionalModel` in tensors. The client work carries the latter through its
loop over batches as `carry`, which is empty for the former.
"""

import abc
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Optional, TypeVar, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import masking
from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive import tff_internals
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import autograph

Model = Union[
  Callable[[], tff.learning.models.VariableModel],
  tff.learning.models.FunctionalModel,
]


class Evaluated(NamedTuple):
  """The result of a forward and backward pass.

  Attributes:
    loss: Scalar float32.
    gradients: Flat tuple of tensors.
    num_examples: Scalar int64.
  """

  loss: tf.Tensor
  gradients: structures.FlatWeights
  num_examples: tf.Tensor


# Computes the representation of a batch under the current weights.
Represent = Callable[[], tf.Tensor]

# Maps the trainable weights, and a function that computes the batch's
# representation under them, to a scalar added to the loss.
Term = Callable[[structures.FlatWeights, Represent], tf.Tensor]

Carry = TypeVar('Carry')
_Result = TypeVar('_Result')


class LocalModel(abc.ABC, Generic[Carry]):
  """A client's copy of the model, inside one TensorFlow graph.

  Attributes:
    residuals: As in `adapters.AdaptedModel`.
  """

  residuals: Sequence[adapters.Residual] = ()

  # Seeds random layers; `None` without any.
  _seed: Optional[tf.Variable] = None

  def prepare_representation(self) -> None:
    """Makes `represent_at` usable, and that of terms.

    Raises:
      UnsuitableModelError: If the model has no representation.
    """
    raise exchange_lib.UnsuitableModelError(
      'A contrastive loss (MOON) needs a Keras model with a layer before its '
      'last one, whose output is the representation; a '
      'tff.learning.models.FunctionalModel has no layers.'
    )

  # Which examples of the batches count, bool [batch]; all if `None`.
  mask: Optional[tf.Tensor] = None

  def set_seed(self, seed: Callable[[], tf.Tensor]) -> None:
    """Sets the seed of random layers, for passes up to the next call."""
    if self._seed is not None:
      self._seed.assign(seed())

  def batch_size(self, batch: structures.Examples) -> tf.Tensor:
    """Counts the examples in a batch, int64 scalar."""
    if self.mask is not None:
      return tf.reduce_sum(tf.cast(self.mask, tf.int64))
    return batch_size(batch)

  def fingerprint(self, batch: structures.Examples) -> tf.Tensor:
    """Computes a fingerprint of a batch, int32 scalar."""
    return randomness.fingerprint(batch, self.mask)

  @abc.abstractmethod
  def begin(self, weights: structures.ModelWeights) -> Carry:
    """Loads the received weights and returns the initial carry."""

  def begun(self, weights: structures.ModelWeights) -> Carry:
    """Returns the initial carry for weights that are loaded already.

    A step calls it where the carry as a constant would hold each client's own
    copy of common weights, and where a GPU would leave variables that a loop
    assigns to the host.
    """
    return self.begin(weights)

  @abc.abstractmethod
  def trainable(self, carry: Carry) -> structures.FlatWeights:
    """Returns the trainable weights, flat."""

  @abc.abstractmethod
  def with_trainable(
    self, carry: Carry, weights: structures.FlatWeights
  ) -> Carry:
    """Returns the carry with the given trainable weights."""

  @abc.abstractmethod
  def evaluate(
    self, carry: Carry, batch: structures.Examples, term: Term
  ) -> tuple[Carry, Evaluated]:
    """Differentiates loss plus term on a batch, and updates the metrics."""

  @abc.abstractmethod
  def gradients_at(
    self,
    carry: Carry,
    weights: structures.FlatWeights,
    batch: structures.Examples,
    term: Term,
  ) -> structures.FlatWeights:
    """Computes the gradient at other weights; carry and metrics stay."""

  def represent_at(
    self,
    carry: Carry,
    weights: structures.FlatWeights,
    batch: structures.Examples,
  ) -> tf.Tensor:
    """Computes the last layer's input at other weights, [batch, features]."""
    # `prepare_representation` has refused objectives that would ask.
    raise NotImplementedError('A FunctionalModel has no representation.')

  @abc.abstractmethod
  def metrics(
    self, carry: Carry, discard: Union[bool, tf.Tensor]
  ) -> structures.Metrics:
    """Returns the unfinalized metrics, those of no data if `discard`."""


class _VariableLocalModel(LocalModel[tuple[()]]):
  """A `VariableModel`; its variables are the state, the carry is empty."""

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]):
    self._model = model_fn()
    self._scale = loss_scale(self._model)
    self._weights = tff.learning.models.ModelWeights.from_model(self._model)
    # `begin` assigns them.
    tff_internals.skip_initial_values(tf.nest.flatten(self._weights))
    self._variables = tuple(tf.nest.flatten(self._weights.trainable))
    self._seed, self._draws = randomness.seeded(self._model)
    self.residuals = getattr(self._model, 'residuals', ())
    self._represent: Optional[Callable[[structures.Examples], tf.Tensor]] = None

  def prepare_representation(self) -> None:
    # Traced once, as models trace their forward pass: every pass of a step
    # then has the same dropout mask.
    represent = representation_of(self._model)
    self._represent = tf.function(represent, autograph=False)

  def begin(self, weights: structures.ModelWeights) -> tuple[()]:
    tf.nest.map_structure(
      lambda variable, value: variable.assign(value), self._weights, weights
    )
    return ()

  def begun(self, weights: structures.ModelWeights) -> tuple[()]:
    return ()

  def trainable(self, carry: tuple[()]) -> structures.FlatWeights:
    return tuple(v.read_value() for v in self._variables)

  def with_trainable(
    self, carry: tuple[()], weights: structures.FlatWeights
  ) -> tuple[()]:
    if len(weights) != len(self._variables):
      raise ValueError(
        f'The model has {len(self._variables)} trainable weights, and a rule '
        f'or a hook of the exchange gave {len(weights)}.'
      )
    for variable, value in zip(self._variables, weights):
      variable.assign(value)
    return ()

  def evaluate(
    self, carry: tuple[()], batch: structures.Examples, term: Term
  ) -> tuple[tuple[()], Evaluated]:
    return (), self._evaluate(batch, term)

  def _evaluate(self, batch: structures.Examples, term: Term) -> Evaluated:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(self._variables)
      output = autograph.call(self._model.forward_pass, batch, training=True)
      added = term(self.trainable(()), lambda: self._representation(batch))
      loss = tf.cast(output.loss, tf.float32) + added
      scaled = loss * self._scale
    gradients = tape.gradient(
      scaled,
      self._variables,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    if output.num_examples is None:
      count = tf.shape(tf.nest.flatten(output.predictions)[0])[0]
    else:
      count = output.num_examples
    flat = dense(gradients, self._variables, self._scale)
    return Evaluated(loss, flat, tf.cast(count, tf.int64))

  def gradients_at(
    self,
    carry: tuple[()],
    weights: structures.FlatWeights,
    batch: structures.Examples,
    term: Term,
  ) -> structures.FlatWeights:
    return self._elsewhere(
      weights, lambda: self._evaluate(batch, term).gradients
    )

  def represent_at(
    self,
    carry: tuple[()],
    weights: structures.FlatWeights,
    batch: structures.Examples,
  ) -> tf.Tensor:
    return self._elsewhere(weights, lambda: self._representation(batch))

  def _representation(self, batch: structures.Examples) -> tf.Tensor:
    assert self._represent is not None, 'prepare_representation comes first.'
    return self._represent(batch)

  def _elsewhere(
    self, weights: structures.FlatWeights, compute: Callable[[], _Result]
  ) -> _Result:
    """Calls `compute` under other weights, then restores the model's variables.

    The forward pass of a `VariableModel` always counts into its metrics, and
    may change its non-trainable weights.
    """
    counted = tuple(self._model.local_variables) + tuple(
      tf.nest.flatten(self._weights.non_trainable)
    )
    kept = tuple(v.read_value() for v in counted)
    here = self.trainable(())
    self.with_trainable((), weights)
    result = compute()
    self.with_trainable((), here)
    for variable, value in zip(counted, kept):
      variable.assign(value)
    return result

  def metrics(
    self, carry: tuple[()], discard: Union[bool, tf.Tensor]
  ) -> structures.Metrics:
    def reset() -> None:
      autograph.call(self._model.reset_metrics)

    tf.cond(tf.convert_to_tensor(discard), reset, lambda: None)
    return autograph.call(self._model.report_local_unfinalized_metrics)


def representation_of(
  model: tff.learning.models.VariableModel,
) -> Callable[[structures.Examples], tf.Tensor]:
  """Returns a function from batches to what `before_last_layer` makes of them.

  Its results are flattened, [batch, features].
  """
  part = before_last_layer(model)

  def represent(batch: structures.Examples) -> tf.Tensor:
    features = part(inputs_of(batch))
    return tf.reshape(features, [tf.shape(features)[0], -1])

  return represent


def before_last_layer(
  model: tff.learning.models.VariableModel,
) -> Callable[[structures.Structure], tf.Tensor]:
  """Returns the part of a Keras model before its last layer with weights."""
  keras_model: Any = tff_internals.keras_model_of(model)
  layers = getattr(keras_model, 'layers', [])
  with_weights = [layer for layer in layers if layer.trainable_weights]
  try:
    if len(with_weights) < 2:
      raise AttributeError('no layer before the last one')
    of_keras_3 = models.keras_3_of(model)
    if of_keras_3 is not None:
      part = of_keras_3.up_to(with_weights[-1])
    else:
      inner = tf.keras.Model(keras_model.inputs, with_weights[-1].input)
      part = functools.partial(autograph.call, inner, training=True)
    return lambda inputs: tf.cast(part(inputs), tf.float32)
  # Keras raises either for layers that are not part of a graph of layers.
  except (AttributeError, ValueError, TypeError) as e:
    raise exchange_lib.UnsuitableModelError(
      'A contrastive loss (MOON) needs a Keras model, built of layers in a '
      'tf.keras.Sequential or functional model, with a layer with weights '
      'before its last one; the output of that part is the representation. '
      f'Got {type(keras_model or model).__name__} with {len(with_weights)} '
      'layers with weights.'
    ) from e


class _FunctionalCarry(NamedTuple):
  """The state of a `FunctionalModel` from one batch to the next.

  Attributes:
    trainable: The trainable weights.
    non_trainable: The others.
    metrics: The metrics' state.
  """

  trainable: structures.FlatWeights
  non_trainable: structures.FlatWeights
  metrics: structures.Structure


class CarriedModel(LocalModel[Any]):
  """A model whose trainable weights are a field of the carry, `trainable`."""

  def trainable(self, carry: Any) -> structures.FlatWeights:
    return carry.trainable

  def with_trainable(self, carry: Any, weights: structures.FlatWeights) -> Any:
    return carry._replace(trainable=tuple(weights))


class _FunctionalLocalModel(CarriedModel):
  """A `FunctionalModel`; its weights and metrics are the carry."""

  def __init__(self, model: tff.learning.models.FunctionalModel):
    self._model = model

  def begin(self, weights: structures.ModelWeights) -> _FunctionalCarry:
    return _FunctionalCarry(
      tuple(weights.trainable),
      tuple(weights.non_trainable),
      self._model.initialize_metrics_state(),
    )

  def _evaluate(
    self,
    weights: structures.FlatWeights,
    fixed: structures.FlatWeights,
    batch: structures.Examples,
    term: Term,
  ) -> tuple[Evaluated, tff.learning.models.BatchOutput]:
    with tf.GradientTape() as tape:
      tape.watch(weights)
      predictions = self._model.predict_on_batch(
        (weights, fixed), inputs_of(batch), training=True
      )
      model_loss = autograph.call(
        self._model.loss, output=predictions, label=masking.parts_of(batch)[1]
      )
      added = term(weights, lambda: self.represent_at(None, weights, batch))
      loss = tf.cast(model_loss, tf.float32) + added
    gradients = tape.gradient(
      loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    count = tf.shape(tf.nest.flatten(predictions)[0])[0]
    output = tff.learning.models.BatchOutput(
      loss=model_loss, predictions=predictions, num_examples=count
    )
    flat = dense(gradients, weights)
    return Evaluated(loss, flat, tf.cast(count, tf.int64)), output

  def evaluate(
    self, carry: _FunctionalCarry, batch: structures.Examples, term: Term
  ) -> tuple[_FunctionalCarry, Evaluated]:
    evaluated, output = self._evaluate(
      carry.trainable, carry.non_trainable, batch, term
    )
    metrics = autograph.call(
      self._model.update_metrics_state,
      carry.metrics,
      batch_output=output,
      labels=masking.parts_of(batch)[1],
    )
    return carry._replace(metrics=metrics), evaluated

  def gradients_at(
    self,
    carry: _FunctionalCarry,
    weights: structures.FlatWeights,
    batch: structures.Examples,
    term: Term,
  ) -> structures.FlatWeights:
    evaluated, _ = self._evaluate(weights, carry.non_trainable, batch, term)
    return evaluated.gradients

  def metrics(
    self, carry: _FunctionalCarry, discard: Union[bool, tf.Tensor]
  ) -> structures.Metrics:
    return tf.nest.map_structure(
      lambda none, counted: tf.where(discard, none, counted),
      self._model.initialize_metrics_state(),
      carry.metrics,
    )


def inputs_of(batch: structures.Examples) -> structures.Structure:
  """Returns the model's inputs in a batch: its `x`, or its first part."""
  return batch['x'] if isinstance(batch, Mapping) else batch[0]


def batch_size(batch: structures.Examples) -> tf.Tensor:
  """Counts the examples in a batch, int64 scalar."""
  first = tf.nest.flatten(inputs_of(batch))[0]
  return tf.shape(first, out_type=tf.int64)[0]


def create(model: Model) -> LocalModel[Any]:
  """Builds a client's model, inside the graph that is being traced."""
  if isinstance(model, tff.learning.models.FunctionalModel):
    return _FunctionalLocalModel(model)
  with models.without_values():
    return _VariableLocalModel(model)


def loss_scale(model: tff.learning.models.VariableModel) -> float:
  """Returns the factor of the loss whose gradient is computed.

  Small gradients are zero in float16; as with Keras' `LossScaleOptimizer`, the
  loss is scaled and the gradient divided. The scale is fixed: a client's next
  step must not depend on whether this one overflows, and a client whose update
  is not finite is left out of the round.
  """
  return 1024.0 if 'float16' in tff_internals.compute_dtypes(model) else 1.0


def dense(
  gradients: structures.Structure,
  weights: structures.FlatWeights,
  scale: float = 1.0,
) -> structures.FlatWeights:
  """Converts gradients to dense tensors with their weights' static shapes.

  An embedding's gradient has no static number of rows, and the shape of an
  optimizer state derived from it would change from one local step to the next.

  Args:
    gradients: Gradients of the loss times `scale`, by which they are divided.
    weights: The weights.
    scale: A `loss_scale`.
  """
  dense = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
  return tuple(
    tf.ensure_shape(g if scale == 1 else g / scale, w.shape)
    for g, w in zip(tf.nest.flatten(dense), tf.nest.flatten(weights))
  )
