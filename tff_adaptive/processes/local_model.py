"""One face for the two kinds of model that tff.learning knows.

A `VariableModel` keeps weights and metrics in `tf.Variable`s, a
`FunctionalModel` in tensors. The client work holds a `carry`: whatever must
travel through the loop over batches, which is nothing for the former.
"""

import abc
import collections
from typing import Any, Callable, NamedTuple, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive.processes import randomness

Model = Union[
    Callable[[], tff.learning.models.VariableModel],
    tff.learning.models.FunctionalModel,
]


class Evaluated(NamedTuple):
  """What one forward and backward pass yields.

  Attributes:
    loss: Scalar float32.
    gradients: Flat tuple of tensors.
    num_examples: Scalar int64.
  """

  loss: tf.Tensor
  gradients: tuple[tf.Tensor, ...]
  num_examples: tf.Tensor


# Maps the trainable weights (flat tuple) to a scalar added to the loss.
Term = Callable[[tuple[tf.Tensor, ...]], tf.Tensor]


class LocalModel(abc.ABC):
  """A client's copy of the model, inside one TensorFlow graph."""

  @abc.abstractmethod
  def begin(self, weights: Any) -> Any:
    """Takes the received `ModelWeights`; returns the first carry."""

  @abc.abstractmethod
  def trainable(self, carry: Any) -> tuple[tf.Tensor, ...]:
    """The trainable weights, flat."""

  @abc.abstractmethod
  def with_trainable(self, carry: Any, weights: tuple[tf.Tensor, ...]) -> Any:
    """The carry with other trainable weights."""

  @abc.abstractmethod
  def evaluate(
      self, carry: Any, batch: Any, term: Term, seed: Callable[[], tf.Tensor]
  ) -> tuple[Any, Evaluated]:
    """Loss plus term with its gradient on a batch; counts into the metrics."""

  @abc.abstractmethod
  def gradients_at(
      self, carry: Any, weights: tuple[tf.Tensor, ...], batch: Any, term: Term
  ) -> tuple[tf.Tensor, ...]:
    """The same gradient at other weights, leaving carry and metrics alone."""

  @abc.abstractmethod
  def metrics(self, carry: Any, discard: tf.Tensor) -> Any:
    """The unfinalized metrics, or those of no data at all if `discard`."""


class _VariableLocalModel(LocalModel):
  """A `VariableModel`; its variables are the state, the carry is empty."""

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]):
    self._model = model_fn()
    self._weights = tff.learning.models.ModelWeights.from_model(self._model)
    self._variables = tuple(tf.nest.flatten(self._weights.trainable))
    self._seed = randomness.seed_variable(self._model)

  def begin(self, weights):
    tf.nest.map_structure(
        lambda variable, value: variable.assign(value), self._weights, weights
    )
    return ()

  def trainable(self, carry):
    return tuple(v.read_value() for v in self._variables)

  def with_trainable(self, carry, weights):
    for variable, value in zip(self._variables, weights):
      variable.assign(value)
    return ()

  def evaluate(self, carry, batch, term, seed):
    if self._seed is not None:
      self._seed.assign(seed())
    return (), self._evaluate(batch, term)

  def _evaluate(self, batch, term):
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(self._variables)
      output = self._model.forward_pass(batch, training=True)
      loss = tf.cast(output.loss, tf.float32) + term(
          tuple(v.read_value() for v in self._variables)
      )
    gradients = tape.gradient(
        loss,
        self._variables,
        unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    if output.num_examples is None:
      count = tf.shape(tf.nest.flatten(output.predictions)[0])[0]
    else:
      count = output.num_examples
    dense = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
    return Evaluated(loss, tuple(dense), tf.cast(count, tf.int64))

  def gradients_at(self, carry, weights, batch, term):
    # The forward pass of a `VariableModel` always counts into its metrics, and
    # may change its non-trainable weights: both are put back.
    counted = tuple(self._model.local_variables) + tuple(
        tf.nest.flatten(self._weights.non_trainable)
    )
    kept = tuple(v.read_value() for v in counted)
    here = self.trainable(carry)
    self.with_trainable(carry, weights)
    gradients = self._evaluate(batch, term).gradients
    self.with_trainable(carry, here)
    for variable, value in zip(counted, kept):
      variable.assign(value)
    return gradients

  def metrics(self, carry, discard):
    if discard:
      self._model.reset_metrics()
    return self._model.report_local_unfinalized_metrics()


class _FunctionalLocalModel(LocalModel):
  """A `FunctionalModel`; the carry is (trainable, non-trainable, metrics)."""

  def __init__(self, model: tff.learning.models.FunctionalModel):
    self._model = model

  def begin(self, weights):
    return (
        tuple(weights.trainable),
        tuple(weights.non_trainable),
        self._model.initialize_metrics_state(),
    )

  def trainable(self, carry):
    return carry[0]

  def with_trainable(self, carry, weights):
    return (tuple(weights), carry[1], carry[2])

  def _evaluate(self, weights, fixed, batch, term):
    if isinstance(batch, collections.abc.Mapping):
      x, y = batch['x'], batch['y']
    else:
      x, y = batch
    with tf.GradientTape() as tape:
      tape.watch(weights)
      predictions = self._model.predict_on_batch(
          (weights, fixed), x, training=True
      )
      model_loss = self._model.loss(output=predictions, label=y)
      loss = tf.cast(model_loss, tf.float32) + term(weights)
    gradients = tape.gradient(
        loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    count = tf.shape(tf.nest.flatten(predictions)[0])[0]
    output = tff.learning.models.BatchOutput(
        loss=model_loss, predictions=predictions, num_examples=count
    )
    dense = tff.learning.optimizers.handle_indexed_slices_gradients(gradients)
    return Evaluated(loss, tuple(dense), tf.cast(count, tf.int64)), output, y

  def evaluate(self, carry, batch, term, seed):
    weights, fixed, metrics = carry
    evaluated, output, labels = self._evaluate(weights, fixed, batch, term)
    metrics = self._model.update_metrics_state(
        metrics, batch_output=output, labels=labels
    )
    return (weights, fixed, metrics), evaluated

  def gradients_at(self, carry, weights, batch, term):
    return self._evaluate(weights, carry[1], batch, term)[0].gradients

  def metrics(self, carry, discard):
    return tf.nest.map_structure(
        lambda none, counted: tf.where(discard, none, counted),
        self._model.initialize_metrics_state(),
        carry[2],
    )


def create(model: Model) -> LocalModel:
  """Builds a client's model, inside the graph that is being traced."""
  if isinstance(model, tff.learning.models.FunctionalModel):
    return _FunctionalLocalModel(model)
  return _VariableLocalModel(model)


def check(model: Model) -> None:
  """Raises `TypeError` unless `model` is one that tff.learning accepts."""
  if isinstance(model, tff.learning.models.FunctionalModel):
    return
  if isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
        '`model` must be a no-argument function that returns a '
        'tff.learning.models.VariableModel, got the model itself: a model '
        'whose variables exist already cannot be built anew for each client. '
        'Pass the function.'
    )
  if not callable(model):
    raise TypeError(
        '`model` must be a no-argument function that returns a '
        'tff.learning.models.VariableModel, or a '
        f'tff.learning.models.FunctionalModel, got {model!r}.'
    )


class ModelFacts(NamedTuple):
  """What a process must know of a model before it is traced.

  Attributes:
    initial_weights: A TFF computation without argument that makes them.
    weights_type: TFF type of `ModelWeights`.
    data_type: TFF type of a client's sequence of batches.
    metric_finalizers: As tff.learning's metric aggregators take them.
  """

  initial_weights: tff.Computation
  weights_type: tff.Type
  data_type: tff.Type
  metric_finalizers: Any


def facts(model: Model) -> ModelFacts:
  """Builds the model once, in a graph of its own, and looks at it.

  Raises:
    TypeError: If `model` is not what tff.learning accepts.
    ValueError: If the model has no trainable weights.
  """
  check(model)
  if isinstance(model, tff.learning.models.FunctionalModel):
    input_spec = model.input_spec
    finalizers = model.finalize_metrics

    @tff.tensorflow.computation
    def initial_weights():
      trainable, non_trainable = model.initial_weights
      return tff.learning.models.ModelWeights(
          tuple(tf.convert_to_tensor(np.asarray(w)) for w in trainable),
          tuple(tf.convert_to_tensor(np.asarray(w)) for w in non_trainable),
      )

  else:
    with tf.Graph().as_default():
      built = model()
      if not isinstance(built, tff.learning.models.VariableModel):
        raise TypeError(
            '`model` must return a tff.learning.models.VariableModel, got '
            f'{type(built).__name__}.'
        )
      input_spec = built.input_spec
      finalizers = built.metric_finalizers()

    @tff.tensorflow.computation
    def initial_weights():
      return tff.learning.models.ModelWeights.from_model(model())

  weights_type = initial_weights.type_signature.result
  if not tf.nest.flatten(
      tff.types.type_to_tf_tensor_specs(weights_type.trainable)
  ):
    raise ValueError('The model has no trainable weights: nothing to train.')
  return ModelFacts(
      initial_weights,
      weights_type,
      tff.SequenceType(tff.types.tensorflow_to_type(input_spec)),
      finalizers,
  )
