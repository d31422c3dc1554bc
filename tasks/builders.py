"""Assembly of tasks from data, preprocessing and models, frozen or not."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import client_data
from tasks import partition
from tasks import preprocessing
from tasks.partitioners import feature_skew
from tff_adaptive import models
from tff_adaptive import parameters


def cross_entropy() -> tf.keras.losses.Loss:
  """Builds the classification loss for models that end in logits.

  TFF calls model and loss separately, so Keras cannot combine the loss with a
  softmax, and a model that is certain of a wrong class would have a zero
  gradient.
  """
  return tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def build_cnn(num_classes: int, shape: tuple[int, int, int]) -> tf.keras.Model:
  """Builds the CNN with dropout of Reddi et al., arXiv 2003.00295, Table 4.

  Args:
    num_classes: Number of classes; with 62 it has 1,206,590 weights.
    shape: Rows, columns and channels of the images, (28, 28, 1) in the paper.
  """
  layers = tf.keras.layers
  return tf.keras.Sequential(
    [
      layers.InputLayer(shape),
      layers.Conv2D(32, 3, activation='relu'),
      layers.Conv2D(64, 3, activation='relu'),
      layers.MaxPool2D(),
      layers.Dropout(0.25),
      layers.Flatten(),
      layers.Dense(128, activation='relu'),
      layers.Dropout(0.5),
      layers.Dense(num_classes),
    ]
  )


class ScaledAbsoluteError(tf.keras.metrics.MeanAbsoluteError):
  """Mean absolute error in the unit of a target that was scaled."""

  def __init__(self, scale: float):
    super().__init__(name='mean_absolute_error')
    self._scale = scale

  def update_state(
    self, y_true: Any, y_pred: Any, sample_weight: Any = None
  ) -> Any:
    """Adds a batch of scaled targets and predictions."""
    return super().update_state(
      y_true * self._scale, y_pred * self._scale, sample_weight
    )


def task(
  *,
  train_data: tff.simulation.datasets.ClientData,
  test_data: Union[tff.simulation.datasets.ClientData, tf.data.Dataset],
  train_preprocess_fn: Callable[..., tf.data.Dataset],
  eval_preprocess_fn: Callable[[tf.data.Dataset], tf.data.Dataset],
  build_model: Callable[[], Any],
  loss: Callable[[], tf.keras.losses.Loss],
  metrics: Sequence[Callable[[], tf.keras.metrics.Metric]],
  validation_data: Optional[tf.data.Dataset] = None,
  head_only: bool = False,
  may_fail: bool = False,
) -> tff.simulation.baselines.BaselineTask:
  """Builds a task around a Keras model.

  Args:
    train_data: Training clients.
    test_data: The test split, before preprocessing.
    train_preprocess_fn: Called as `(dataset, seed=None)`, see `preprocessing`.
    eval_preprocess_fn: Preprocesses test and validation data.
    build_model: Returns a newly initialized model of Keras 2 or 3.
    loss: Builds the loss.
    metrics: Build the metrics. TFF adds `loss`, `num_examples` and
      `num_batches`.
    validation_data: Validation examples before preprocessing, if the data set
      has a separate split.
    head_only: Whether to train the layer `head` only and freeze all others.
    may_fail: Whether `build_model` may fail, because it reads files or calls a
      user's function. The model is then built once here, to fail early.
  """
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train_data=train_data,
    test_data=test_data,
    validation_data=validation_data,
    train_preprocess_fn=train_preprocess_fn,
    eval_preprocess_fn=eval_preprocess_fn,
  )
  input_spec: Any = datasets.element_type_structure
  model_fn = models.model_fn(
    build_model, input_spec=input_spec, loss=loss(), metrics=metrics
  )

  if head_only:
    model_fn = freeze(model_fn, lambda name: not name.startswith('head/'))
  if may_fail:
    return tff.simulation.baselines.BaselineTask(datasets, model_fn)
  return models.CheckedTask(datasets, model_fn)


def partitioned_task(
  *,
  train: Mapping[str, np.ndarray],
  test: Mapping[str, np.ndarray],
  split: partition.Partition,
  options: Mapping[str, Any],
  batch_size: int,
  eval_batch_size: int,
  to_model: preprocessing.MapFn,
  augment: Optional[preprocessing.MapFn] = None,
  notes: Sequence[str] = (),
  classes: Sequence[str] = (),
  label_unit: tuple[float, float] = (0.0, 1.0),
  fitted: Sequence[str] = (),
  **model: Any,
) -> tff.simulation.baselines.BaselineTask:
  """Builds a task on examples in memory that are partitioned over clients.

  Args:
    train: Training examples, arrays by name.
    test: Test examples, likewise, in random order.
    split: Partition of the training examples.
    options: The task's options, of which `epochs`, `batch_size`,
      `max_elements`, and those of `divided` are used.
    batch_size: Default number of examples in a training batch.
    eval_batch_size: Number of examples in a test batch.
    to_model: Maps a batch of examples to the model's input.
    augment: Used instead for training; maps a batch and a seed.
    notes: Sentences about the data that a run logs when it begins.
    classes: Names of classes by label, if known.
    label_unit: Shift and scale from numeric labels to the user's own unit.
    fitted: What was computed from training examples without noise.
    **model: `build_model`, `loss` and `metrics` of `task`.
  """
  return task(
    train_data=divided(
      train,
      split,
      options,
      notes=notes,
      classes=classes,
      label_unit=label_unit,
      fitted=fitted,
    ),
    test_data=tf.data.Dataset.from_tensor_slices(dict(test)),
    train_preprocess_fn=preprocessing.build_train(
      batch_size=options['batch_size'] or batch_size,
      shuffle_buffer=int(split.sizes.max()),
      epochs=options['epochs'],
      max_elements=options['max_elements'],
      map_fn=to_model,
      augment_fn=augment,
    ),
    eval_preprocess_fn=preprocessing.build_eval(
      batch_size=eval_batch_size, map_fn=to_model
    ),
    **model,
  )


def divided(
  examples: Mapping[str, np.ndarray],
  split: partition.Partition,
  options: Mapping[str, Any],
  *,
  notes: Sequence[str] = (),
  classes: Sequence[str] = (),
  label_unit: tuple[float, float] = (0.0, 1.0),
  fitted: Sequence[str] = (),
) -> client_data.ArrayClientData:
  """Builds client data from a partition, with feature skew if requested.

  Args:
    examples: Arrays by name.
    split: Partition of the examples.
    options: The task's options, of which `feature_skew`,
      `feature_skew_strength` and `seed` are used if present.
    notes: Sentences about the data that a run logs when it begins.
    classes: Names of classes by label, if known.
    label_unit: Shift and scale from numeric labels to the user's own unit.
    fitted: What was computed from training examples without noise.

  Raises:
    PartitionError: If this skew does not apply to the features.
  """
  skew = options.get('feature_skew')
  arrays = feature_skew.apply(
    examples,
    split,
    skew,
    options.get('feature_skew_strength'),
    seed=options['seed'],
  )
  return client_data.ArrayClientData(
    arrays,
    split,
    notes=notes,
    classes=classes,
    label_unit=label_unit,
    fitted=fitted,
    skewed=feature_skew.features_of(arrays) or '' if skew else '',
  )


def centralized(
  data: tff.simulation.datasets.ClientData, seed: int
) -> tf.data.Dataset:
  """Concatenates all clients' examples, clients in an order seeded by `seed`.

  Without a seed TFF reshuffles the clients at every call, and the first 10,000
  examples would differ between calls.
  """
  pooled = data.create_tf_dataset_from_all_clients(seed=seed)
  pooled.by_client = data  # For evaluation on single clients.
  return pooled


ModelFn = Callable[[], tff.learning.models.VariableModel]


def check_fine_tuning(
  fine_tune: str, weights_dir: Optional[str], data: str
) -> None:
  """Raises `ParameterError` if a head would be trained on random features.

  This is allowed with synthetic data, which are for smoke tests.
  """
  if fine_tune == 'head' and weights_dir is None and data != 'synthetic':
    raise parameters.ParameterError(
      'fine_tune',
      '{}=head trains only a classifier, on the pretrained features in '
      '{weights_dir}; without it they are random. Give it, or {fine_tune}=all.',
    )


def freeze(model_fn: ModelFn, is_frozen: Callable[[str], bool]) -> ModelFn:
  """Freezes variables, so that they are neither trained nor sent in updates.

  Args:
    model_fn: Builds the model.
    is_frozen: Whether to freeze a variable, by its `models.variable_names`.

  Returns:
    A function that builds the model with these variables appended to its
    non-trainable ones.
  """
  names = models.variable_names(model_fn)
  frozen = frozenset(i for i, name in enumerate(names) if is_frozen(name))
  if not frozen:
    return model_fn
  return lambda: FrozenModel(model_fn(), frozen)


class FrozenModel(models.Wrapped):
  """A model with some trainable variables made non-trainable."""

  def __init__(
    self, unfrozen: tff.learning.models.VariableModel, frozen: frozenset[int]
  ):
    """Wraps a model.

    Args:
      unfrozen: The model to wrap.
      frozen: Indices of the trainable variables to freeze.
    """
    super().__init__(unfrozen)
    self._frozen = frozen

  def _variables(self, frozen: bool) -> list[tf.Variable]:
    return [
      variable
      for place, variable in enumerate(self.unfrozen.trainable_variables)
      if (place in self._frozen) == frozen
    ]

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    return self._variables(frozen=False)

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return [
      *self.unfrozen.non_trainable_variables,
      *self._variables(frozen=True),
    ]
