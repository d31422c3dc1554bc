"""Types and metadata of a model, needed before a process is traced."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import models
from tff_adaptive import structures
from tff_adaptive.processes import exchange
from tff_adaptive.processes.local import local_model

# By metric, functions from unfinalized values to the metric's value; or one
# function of all of them, as in a `FunctionalModel`.
Finalizers = Union[
  Mapping[str, Callable[..., structures.Structure]],
  Callable[[structures.Metrics], structures.Metrics],
]


class ModelFacts(NamedTuple):
  """The result of `look_at`.

  Attributes:
    initial_weights: A no-argument TFF computation that builds them.
    weights_type: TFF type of `ModelWeights`.
    data_type: TFF type of a client's sequence of batches.
    metric_finalizers: As tff.learning's metric aggregators take them.
    metric_names: Names of the model's metrics; `None` for a `FunctionalModel`.
    variable_names: Names of its trainable variables, such as 'dense/kernel';
      `None` for a `FunctionalModel` without an attribute of this name.
    residuals: Residuals of adapters whose averaging the server corrects.
  """

  initial_weights: tff.Computation
  weights_type: tff.Type
  data_type: tff.Type
  metric_finalizers: Finalizers
  metric_names: Optional[tuple[str, ...]]
  variable_names: Optional[tuple[str, ...]]
  residuals: Sequence[adapters.Residual] = ()


def look_at(model: local_model.Model) -> ModelFacts:
  """Builds the model once, in a graph of its own, to inspect it.

  Raises:
    TypeError: If `model` is not what tff.learning accepts.
    UnsuitableModelError: If its trainable weights have 16 bits.
    ValueError: If the model has no trainable weights.
  """
  _check(model)
  if isinstance(model, tff.learning.models.FunctionalModel):
    input_spec = model.input_spec
    finalizers = model.finalize_metrics
    names = None
    # `FunctionalModel` has no names; callers may set this attribute.
    variable_names = getattr(model, 'variable_names', None)
    residuals: Sequence[adapters.Residual] = ()

    @tff.tensorflow.computation
    def initial_weights() -> structures.ModelWeights:
      trainable, non_trainable = model.initial_weights
      return tff.learning.models.ModelWeights(
        tuple(tf.convert_to_tensor(np.asarray(w)) for w in trainable),
        tuple(tf.convert_to_tensor(np.asarray(w)) for w in non_trainable),
      )

  else:
    with tf.Graph().as_default(), models.without_values():
      built = _built(model)
      if not isinstance(built, tff.learning.models.VariableModel):
        raise TypeError(
          '`model` must return a tff.learning.models.VariableModel, got '
          f'{type(built).__name__}{_hint(built)}.'
        )
      input_spec = built.input_spec
      finalizers = built.metric_finalizers()
      names = tuple(finalizers)
      variable_names = tuple(models.names_in(built))
      residuals = getattr(built, 'residuals', ())

    @tff.tensorflow.computation
    def initial_weights() -> structures.ModelWeights:
      return tff.learning.models.ModelWeights.from_model(model())

  weights_type = initial_weights.type_signature.result
  if not tf.nest.flatten(
    tff.types.type_to_tf_tensor_specs(weights_type.trainable)
  ):
    raise ValueError('The model has no trainable weights: nothing to train.')
  facts = ModelFacts(
    initial_weights,
    weights_type,
    tff.SequenceType(tff.types.tensorflow_to_type(input_spec)),
    finalizers,
    names,
    variable_names,
    residuals,
  )
  for spec in trainable_specs(facts):
    if spec.dtype.size < 4:
      raise exchange.UnsuitableModelError(
        f'The weights {spec.name or "of a layer"} are {spec.dtype.name}: '
        'moments of optimizers and sums over clients would be rounded away. '
        'Keep weights in float32 and compute in 16 bits (--mixed_precision, '
        'models.in_mixed_precision).'
      )
  return facts


def trainable_specs(facts: ModelFacts) -> structures.FlatSpecs:
  """Returns the specs of the trainable weights, flat, with their names."""
  specs = tf.nest.flatten(
    tff.types.type_to_tf_tensor_specs(facts.weights_type.trainable)
  )
  names = facts.variable_names or [None] * len(specs)
  return tuple(
    tf.TensorSpec(spec.shape, spec.dtype, name)
    for spec, name in zip(specs, names, strict=True)
  )


def _built(
  model: Callable[[], tff.learning.models.VariableModel],
) -> tff.learning.models.VariableModel:
  try:
    return model()
  except (AttributeError, TypeError) as e:
    models.explain(e)
    raise


def _hint(given: object) -> str:
  """Returns advice for a Keras model that was passed without wrapping."""
  if models.kind_of(given) is None:
    return ''
  return ': for a Keras model, give loss=, metrics= and input_spec= too'


def _check(model: local_model.Model) -> None:
  """Raises `TypeError` unless `model` is one that tff.learning accepts."""
  if isinstance(model, tff.learning.models.FunctionalModel):
    return
  if isinstance(model, tff.learning.models.VariableModel):
    raise TypeError(
      '`model` must be a no-argument function that returns a '
      'tff.learning.models.VariableModel, got the model itself. Its variables '
      'already exist and cannot be created again for each client; pass the '
      'function.'
    )
  if models.kind_of(model) is not None or not callable(model):
    raise TypeError(
      '`model` must be a no-argument function that returns a '
      'tff.learning.models.VariableModel, or a '
      'tff.learning.models.FunctionalModel, got '
      f'{model!r:.200}{_hint(model)}.'
    )
