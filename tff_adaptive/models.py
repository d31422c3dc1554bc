"""Keras 2 and Keras 3 models for learning processes.

  models.model_fn(build, loss=..., metrics=..., input_spec=...)

returns the `model_fn` of `algorithms.build` and of tasks, where `build` is a
function that returns a model of either Keras, or a Keras 3 model itself.
`from_keras_model` wraps a single model, as
`tff.learning.models.from_keras_model` does for Keras 2.

A Keras 3 model is built once, outside of TFF's graphs; in a graph, a
`keras.StatelessScope` replaces its variables by variables of that graph.
"""

import collections
import contextlib
import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import masking
from tff_adaptive import structures
from tff_adaptive import tff_internals

ModelFn = Callable[[], tff.learning.models.VariableModel]
# Computes the replacement of a weight in a pass, in the graph of the pass.
Substitute = Callable[[], tf.Tensor]


def kind_of(model: Any) -> Optional[Literal['keras_2', 'keras_3']]:
  """Returns the Keras version of a model; `None` for anything else.

  Raises:
    TypeError: If it is a Keras 3 model with a backend other than TensorFlow, or
      a PyTorch module.
  """
  if isinstance(model, tf.keras.Model):
    return 'keras_2'
  kind = type(model)
  if tff_internals.is_keras_3(kind, 'Model'):
    import keras  # pylint: disable=g-import-not-at-top

    backend = keras.config.backend()
    if backend != 'tensorflow':
      raise TypeError(
        f'{_name(kind)} is a Keras 3 model with the backend {backend!r}; '
        'learning processes are TensorFlow graphs: start Python with '
        'KERAS_BACKEND=tensorflow, or without KERAS_BACKEND.'
      )
    return 'keras_3'
  if any(
    base.__name__ == 'Module' and base.__module__.startswith('torch.nn.')
    for base in kind.__mro__
  ):
    raise TypeError(
      f'{_name(kind)} is a PyTorch module (torch.nn.Module); give a Keras '
      'model, of tf.keras or of Keras 3 with the TensorFlow backend.'
    )
  return None


def _name(kind: type) -> str:
  return f'{kind.__module__}.{kind.__qualname__}'


def from_keras_model(
  keras_model: Any,
  loss: Any = None,
  input_spec: Any = None,
  metrics: Optional[Sequence[Any]] = None,
) -> tff.learning.models.VariableModel:
  """Wraps a Keras model as a `tff.learning.models.VariableModel`.

  Args:
    keras_model: A `tf.keras.Model`, or a built `keras.Model` of Keras 3,
      created by the function that calls this one.
    loss: For Keras 2 as in `tff.learning.models.from_keras_model`. For Keras 3
      a loss, its name, or a function of labels and predictions; by default the
      loss that the model was compiled with.
    input_spec: Spec of a batch: `tf.TensorSpec`s by name `x`, `y`, or a pair;
      with weights of the examples also `sample_weight`, or a third part.
    metrics: For Keras 2 as in TFF's function. For Keras 3 metrics of either
      Keras, functions that create one, or names; by default those that the
      model was compiled with. `loss`, `num_examples` and `num_batches` are
      added.

  Raises:
    TypeError: If an argument is not of these kinds, or the model is not built.
  """
  _check_spec(input_spec)
  if _checked_kind(keras_model) == 'keras_3':
    return _weighted(
      Keras3Model(keras_model, loss, input_spec, metrics), input_spec
    )
  keras_model = _with_float32_outputs(keras_model)
  x, y, weights = masking.parts_of(input_spec)
  given = input_spec if weights is None else collections.OrderedDict(x=x, y=y)
  model = tff.learning.models.from_keras_model(
    keras_model,
    loss=loss,
    input_spec=given,
    metrics=_keras_2_metrics(metrics, keras_model, input_spec),
  )
  return _weighted(model, input_spec)


def _with_float32_outputs(keras_model: tf.keras.Model) -> tf.keras.Model:
  """Returns the model, or one that casts its output to float32 at the end.

  Losses and metrics of Keras 2 compute in the output's precision, and labels
  such as 257 are no bfloat16.
  """
  outputs = getattr(keras_model, 'outputs', None) or []
  if len(outputs) != 1 or outputs[0].dtype not in (tf.bfloat16, tf.float16):
    return keras_model
  last = tf.keras.layers.Activation('linear', dtype=tf.float32, name='float32')
  made = tf.keras.Model(keras_model.inputs, last(outputs[0]))
  return _noted(made, keras_model)


def model_fn(
  model: Any,
  *,
  input_spec: Any,
  loss: Any = None,
  metrics: Optional[Sequence[Any]] = None,
) -> ModelFn:
  """Builds the `model_fn` of learning processes and tasks.

  Args:
    model: A no-argument function that returns a newly initialized Keras model,
      or a Keras 3 model, whose weights are the initial ones.
    input_spec: As in `from_keras_model`.
    loss: As in `from_keras_model`.
    metrics: As in `from_keras_model`.

  Returns:
    A no-argument function that builds a `tff.learning.models.VariableModel`.

  Raises:
    TypeError: As in `from_keras_model`.
  """
  _check_spec(input_spec)
  if isinstance(model, tf.keras.Model):
    raise TypeError(
      '`model` is a Keras 2 (tf.keras) model, which cannot be rebuilt for '
      'each client; give a function that returns a new one.'
    )
  # Keras models are callable too.
  if kind_of(model) is None and not callable(model):
    _checked_kind(model)
  return _ModelFn(model, loss, metrics, input_spec)


class _ModelFn:
  """A no-argument function that wraps a Keras model or a builder's results."""

  def __init__(
    self,
    model: Any,
    loss: Any,
    metrics: Optional[Sequence[Any]],
    input_spec: Any,
  ):
    """See `model_fn`."""
    given = kind_of(model) is not None
    self._build: Optional[Callable[[], Any]] = None if given else model
    # Shared by all graphs; its weights must not change.
    self._skeleton: Any = model if given else None
    self._is_keras_2 = False
    self._rest = (loss, input_spec, metrics)
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    # Other processes build a skeleton of their own.
    loss, input_spec, metrics = self._rest
    model = self._build or self._skeleton
    return _ModelFn, (model, loss, metrics, input_spec)

  def __call__(self) -> tff.learning.models.VariableModel:
    # Keras numbers default names of metrics and layers over all models.
    tff_internals.reset_names()
    if tf.executing_eagerly():
      built = self._built() if self._build else _copied(self._skeleton)
      if built is not None:
        return from_keras_model(built, *self._rest)
    with self._lock:
      if self._skeleton is None and not self._is_keras_2:
        # Eagerly, so that weights have values and can be loaded from files.
        with _eagerly():
          built = self._built()
        self._is_keras_2 = _checked_kind(built) == 'keras_2'
        self._skeleton = None if self._is_keras_2 else built
    if self._is_keras_2:
      return from_keras_model(self._built(), *self._rest)
    model = Keras3Model(self._skeleton, *self._rest, shared=True)
    return _weighted(model, self._rest[1])

  def _built(self) -> Any:
    assert self._build is not None
    return self._build()


def _copied(keras_model: Any) -> Any:
  """Returns a copy of a Keras 3 model, or `None` if Keras cannot make one."""
  import keras  # pylint: disable=g-import-not-at-top

  try:
    copied = keras.models.clone_model(keras_model)
    copied.set_weights(keras_model.get_weights())
    layers = map(tff_internals.layers_of, (copied, keras_model))
    for layer, of in zip(*layers, strict=True):
      if isinstance(layer, keras.layers.Normalization):
        layer.finalize_state()  # Of the adapted moments.
      elif hasattr(of, 'get_vocabulary'):
        if layer.get_vocabulary() != of.get_vocabulary():
          return None  # An adapted one is none of the configuration.
  except Exception:  # pylint: disable=broad-exception-caught
    # Of a user's class: its `get_config` may be missing or raise anything.
    return None
  return _noted(copied, keras_model)


def _noted(made: Any, of: Any) -> Any:
  """Gives a model what `tasks` notes on another one."""
  for name in ('table_encoding', 'class_names'):
    if hasattr(of, name):
      setattr(made, name, getattr(of, name))
  return made


def keras_3_of(
  model: tff.learning.models.VariableModel,
) -> Optional['Keras3Model']:
  """Returns the innermost wrapped model if it is a `Keras3Model`, or `None`."""
  model = tff_internals.unwrapped(model)
  return model if isinstance(model, Keras3Model) else None


def numbered_anew(model_fn: ModelFn) -> ModelFn:
  """Returns a function whose models have the same names at every call.

  Keras numbers default names, of metrics such as 'precision', over all models
  of a graph or of a process.
  """
  return functools.partial(_call_numbered_anew, model_fn)


def _call_numbered_anew(
  model_fn: ModelFn,
) -> tff.learning.models.VariableModel:
  tff_internals.reset_names()
  return model_fn()


# Keras' policy is global, and models are traced in several threads.
_policy_lock = threading.RLock()


def in_mixed_precision(model_fn: ModelFn, dtype: str) -> ModelFn:
  """Returns a function whose Keras models compute in 16 bits.

  Weights, and with them gradients, optimizers and sums, stay float32
  (`tf.keras.mixed_precision`), as do output, loss and metrics of a functional
  model with one output that `from_keras_model` of this module wraps.

  Args:
    model_fn: Builds a model of Keras 2, layers included.
    dtype: 'bfloat16' or 'float16'.

  Returns:
    The function; it raises `ModelError` if no layer follows the policy.
  """
  return functools.partial(_call_in_mixed_precision, model_fn, dtype)


def _call_in_mixed_precision(
  model_fn: ModelFn, dtype: str
) -> tff.learning.models.VariableModel:
  keras = tf.keras.mixed_precision
  with _policy_lock:
    before = keras.global_policy()
    keras.set_global_policy(f'mixed_{dtype}')
    try:
      model = model_fn()
    finally:
      keras.set_global_policy(before)
  if dtype not in tff_internals.compute_dtypes(model):
    raise tff_internals.ModelError(
      f'mixed_precision={dtype}: no layer of the model follows the policy of '
      'tf.keras, as it is not of Keras 2 or was built before. Give its layers '
      f"dtype='mixed_{dtype}' yourself, and leave the option out."
    )
  return model


class CheckedTask(tff.simulation.baselines.BaselineTask):
  """A task without TFF's check that the model accepts its datasets' batches.

  For this check `tff.simulation.baselines.BaselineTask` builds the model once
  more, which takes as long as any other construction.
  """

  def __attrs_post_init__(self) -> None:
    pass


def variable_names(model: ModelFn) -> list[str]:
  """Returns names of the trainable variables, like 'dense/kernel', in order."""
  with tf.Graph().as_default():
    # Keras numbers layers consecutively over all models.
    tff_internals.reset_names()
    return names_in(model())


def names_in(model: tff.learning.models.VariableModel) -> list[str]:
  """Returns the names of a model's trainable variables, in order."""
  return weight_names(model)[: len(model.trainable_variables)]


def weight_names(model: tff.learning.models.VariableModel) -> list[str]:
  """Returns the names of a model's weights in order, trainable ones first."""
  return [
    name_of(model, variable)
    for variable in (*model.trainable_variables, *model.non_trainable_variables)
  ]


def name_of(
  model: tff.learning.models.VariableModel, variable: tf.Variable
) -> str:
  """Returns the name of a model's variable, such as 'dense/kernel'."""
  if hasattr(model, 'variable_name'):
    return model.variable_name(variable)
  return variable.name.partition(':')[0]


def _checked_kind(model: Any) -> Literal['keras_2', 'keras_3']:
  kind = kind_of(model)
  if kind is None:
    raise TypeError(
      'A Keras model was expected, a tf.keras.Model or a keras.Model of Keras '
      f'3, or a function that returns one, got {_name(type(model))}.'
    )
  return kind


def _check_spec(input_spec: Any) -> None:
  words = (
    '`input_spec` must hold the tf.TensorSpecs of `x` and `y`, and of '
    '`sample_weight` if examples have weights, with None as the batch dimension'
  )
  if isinstance(input_spec, Mapping):
    if not {'x', 'y'} <= {*input_spec}:
      raise TypeError(f'{words}; got the names {", ".join(input_spec)}.')
  elif not isinstance(input_spec, Sequence) or len(input_spec) not in (2, 3):
    raise TypeError(f'{words}; got {input_spec!r}.')


_context = threading.local()


@contextlib.contextmanager
def without_values() -> Iterator[None]:
  """Builds models in this context with zeros as weights.

  For clients, which assign the weights that they receive: a graph would hold
  the values of a Keras 3 model as unused constants.
  """
  before = getattr(_context, 'without_values', False)
  _context.without_values = True
  try:
    yield
  finally:
    _context.without_values = before


@contextlib.contextmanager
def _eagerly() -> Iterator[None]:
  """Runs code eagerly, outside of the traced graph and TFF's variable scope."""
  with tf.Graph().as_default(), tf.__internal__.eager_context.eager_mode():
    yield


def _is_here(variable: tf.Variable) -> bool:
  """Returns whether a variable can be read in the current graph."""
  eager = isinstance(variable.handle, tf.__internal__.EagerTensor)
  if tf.executing_eagerly() or eager:
    return eager and tf.executing_eagerly()
  return variable.handle.graph is tf.compat.v1.get_default_graph()


class _Keras2Metric:
  """A new metric of `tf.keras`, with variables in the current graph.

  Attributes:
    computed: The metric of Keras.
    name: Name of the metric.
    variables: Accumulated sums.
    finalizer: Maps the variables' values to the metric's value.
  """

  def __init__(self, made: Any):
    """Creates the metric.

    Args:
      made: A metric, to be copied, or a function that creates one.
    """
    again = _maker(made)
    self.computed = again()
    self.name = self.computed.name
    self.variables = self.computed.variables
    self.finalizer = tff.learning.metrics.create_keras_metric_finalizer(again)

  def update(
    self, labels: Any, predictions: Any, weights: Optional[tf.Tensor] = None
  ) -> None:
    """Adds a batch, whose examples have weights [batch], or else are equal."""
    more = {} if weights is None else {'sample_weight': weights}
    self.computed.update_state(y_true=labels, y_pred=predictions, **more)

  def reset(self) -> None:
    self.computed.reset_state()


class _Keras3Metric:
  """A metric of Keras 3, like `_Keras2Metric`."""

  def __init__(self, metric: Any):
    """Creates variables like the metric's.

    Args:
      metric: The metric; its own variables are not changed.
    """
    self.computed = metric
    self.name = metric.name
    self.variables = [
      tf.Variable(value, trainable=False, name=f'{metric.name}/{v.name}')
      for v, value in zip(metric.variables, self._first(), strict=True)
    ]
    self.finalizer = tf.function(
      lambda values: metric.stateless_result(list(values)), autograph=False
    )

  def _first(self) -> list[tf.Tensor]:
    return [
      tf.convert_to_tensor(value) if tf.is_tensor(value) else tf.zeros(v.shape)
      for v, value in zip(
        self.computed.variables, self.computed.stateless_reset_state()
      )
    ]

  def update(
    self, labels: Any, predictions: Any, weights: Optional[tf.Tensor] = None
  ) -> None:
    values = self.computed.stateless_update_state(
      [v.read_value() for v in self.variables],
      labels,
      predictions,
      **({} if weights is None else {'sample_weight': weights}),
    )
    for variable, value in zip(self.variables, values, strict=True):
      variable.assign(value)

  def reset(self) -> None:
    for variable, value in zip(self.variables, self._first(), strict=True):
      variable.assign(value)


_Metric = Union[_Keras2Metric, _Keras3Metric]


class Keras3Model(tff.learning.models.VariableModel):
  """A Keras 3 model as a model of tff.learning.

  Attributes:
    is_shared: Whether the Keras model has other weights than this one.
    step_seed: Seed of a pass' random layers, int32 [2], to be assigned before
      the pass; `None` without random layers. A generator's n-th draw is a
      function of the seed, of the generator's index in the model and of n.
    draws: Number of draws so far, by generator; counted during tracing.
  """

  def __init__(
    self,
    keras_model: Any,
    loss: Any,
    input_spec: Any,
    metrics: Optional[Sequence[Any]],
    shared: bool = False,
  ):
    """Wraps a built model; see `from_keras_model`.

    Args:
      keras_model, loss, input_spec, metrics: As in `from_keras_model`.
      shared: Whether the model is shared and must not be changed.
    """
    if not (keras_model.built and keras_model.weights):
      raise TypeError(
        f'{_name(type(keras_model))} has not been built and has no weights: '
        'call it on a batch, or call build(input_shape), first.'
      )
    if any(
      'BatchNormalization' in type(layer).__name__
      for layer in tff_internals.layers_of(keras_model)
    ):
      warnings.warn(
        'The moving averages of batch normalization are neither sent by '
        'clients nor trained by the server and keep their initial values. Use '
        'GroupNormalization, which has none.',
        UserWarning,
        stacklevel=2,
      )
    self._keras_model = keras_model
    self._input_spec = input_spec
    self._loss = _loss_of(keras_model, loss)
    # Read by `tff_internals.ends_in_logits`.
    self._loss_fns = [self._loss]
    weights = keras_model.weights
    prefix = f'{keras_model.name}/'
    own = not shared and all(_is_here(w.value) for w in weights)
    self.is_shared = not own
    self._variables = {
      id(w): w.value if own else _like(w, prefix) for w in weights
    }
    self._trainable = keras_model.trainable_weights
    self._fixed = keras_model.non_trainable_weights
    self._names = {
      id(self._variables[id(w)]): w.path.removeprefix(prefix) for w in weights
    }
    self.step_seed: Optional[tf.Variable] = None
    if tff_internals.seed_generators(keras_model):
      self.step_seed = tf.Variable(
        [0, 0], trainable=False, dtype=tf.int32, name='step_seed'
      )
    # Whether `step_seed` is assigned; TFF's own processes do not.
    self.is_seeded = False
    # As for Keras 2, draws are counted during tracing.
    self.draws: collections.Counter[int] = collections.Counter()
    self._substitutes: dict[int, Substitute] = {}
    self._tables = tff_internals.tables_of(keras_model)
    self._metrics = [
      _metric_of(m, keras_model, input_spec)
      for m in _metrics_of(keras_model, metrics)
    ]
    self._mean_loss = _Keras2Metric(
      functools.partial(tf.keras.metrics.Mean, 'loss')
    )
    self._metrics.append(self._mean_loss)
    named = {m.name for m in self._metrics}
    for name, make in (
      ('num_examples', tff.learning.metrics.NumExamplesCounter),
      ('num_batches', tff.learning.metrics.NumBatchesCounter),
    ):
      if name not in named:
        self._metrics.append(_Keras2Metric(make))

  @property
  def metric_objects(self) -> list[Any]:
    """The metrics of Keras 2 or 3 that it computes."""
    return [metric.computed for metric in self._metrics]

  @property
  def metric_states(self) -> Sequence[_Metric]:
    """The same metrics, with their variables in this graph."""
    return self._metrics

  def variable_name(self, variable: tf.Variable) -> str:
    """Returns the name of a weight's variable, such as 'dense/kernel'."""
    return self._names[id(variable)]

  def substitute(self, variable: tf.Variable, make: Substitute) -> None:
    """Replaces a weight by a computed tensor in all passes."""
    self._substitutes[id(variable)] = make

  def layers_with(self, *kinds: str) -> list[tuple[Any, tf.Variable]]:
    """Returns layers of some classes with their trainable kernels.

    Args:
      *kinds: Names of Keras' layer classes.
    """
    found = []
    for layer in tff_internals.layers_of(self._keras_model):
      if any(tff_internals.is_keras_3(type(layer), kind) for kind in kinds):
        for weight in self._trainable:
          if weight is layer.kernel:
            found.append((layer, self._variables[id(weight)]))
    return found

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    return [self._variables[id(w)] for w in self._trainable]

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return [self._variables[id(w)] for w in self._fixed]

  @property
  def local_variables(self) -> Sequence[tf.Variable]:
    return [v for metric in self._metrics for v in metric.variables]

  @property
  def input_spec(self) -> Any:
    return self._input_spec

  def call(
    self, part: Any, inputs: structures.Structure, training: bool
  ) -> tuple[Any, list[tf.Tensor]]:
    """Applies the model or a part of it, with this graph's variables.

    Args:
      part: The Keras model, or a submodel of its layers.
      inputs: Inputs of `part`.
      training: Whether to apply dropout and update moving averages.

    Returns:
      Outputs, and a list of the layers' losses.
    """

    import keras  # pylint: disable=g-import-not-at-top

    def value(weight: Any) -> tf.Tensor:
      variable = self._variables[id(weight)]
      return self._substitutes.get(id(variable), variable.read_value)()

    def draw(place: int) -> tf.Tensor:
      self.draws[place] += 1
      if self.step_seed is None or place < 0:
        return tf.constant([0, 0], tf.int32)
      if training and not self.is_seeded:
        return tf.random.uniform([2], maxval=2**31 - 1, dtype=tf.int32)
      return self.step_seed.read_value() + tf.constant(
        [place, self.draws[place]], tf.int32
      )

    weights = part.weights
    scope = keras.StatelessScope(
      [(w, value(w)) for w in weights], collect_losses=True
    )
    before = [(w, scope.get_current_value(w)) for w in weights]
    with tff_internals.drawing(self._keras_model, draw, self._tables), scope:
      # Not `stateless_call`, which passes `training` to inner layers only if
      # each layer forwards it.
      outputs = part(inputs, training=training)
      losses = part.losses
    if self.draws[-1]:  # Raised in `draw`, Keras would garble it.
      raise tff_internals.ModelError(
        f'A layer of {_name(type(self._keras_model))} draws random numbers '
        'without a seed generator, so they are not reproducible: give the '
        'layer a keras.random.SeedGenerator as an attribute, and draw with '
        'seed=self.NAME.'
      )
    if training:
      for weight, old in before:
        new = scope.get_current_value(weight)
        if not weight.trainable and new is not old:
          self._variables[id(weight)].assign(new)
    return outputs, losses

  @functools.cached_property
  def _predict(self) -> Callable[..., Any]:
    return tf.function(
      lambda x, training: self.call(self._keras_model, x, training)[0],
      autograph=False,
    )

  @tf.autograph.experimental.do_not_convert
  def predict_on_batch(self, batch_input: Any, training: bool = True) -> Any:
    return self._predict(batch_input, training)

  @functools.cached_property
  def _forward(self) -> Callable[..., Any]:
    # Traced once, so that all passes of a step draw the same numbers.
    return tf.function(self._forward_pass, autograph=False)

  @tf.autograph.experimental.do_not_convert
  def forward_pass(
    self, batch_input: Any, training: bool = True
  ) -> tff.learning.models.BatchOutput:
    return self._forward(batch_input, training)

  def _forward_pass(
    self, batch: structures.Examples, training: bool
  ) -> tff.learning.models.BatchOutput:
    x, y, _ = masking.parts_of(batch)
    predictions, losses = self.call(self._keras_model, x, training)
    loss = tf.cast(tf.reduce_mean(self._loss(y, predictions)), tf.float32)
    count = tf.shape(tf.nest.flatten(x)[0])[0]
    for metric in self._metrics:
      if metric is not self._mean_loss:
        metric.update(y, predictions)
    self._mean_loss.computed.update_state(loss, count)
    return tff.learning.models.BatchOutput(
      loss=tf.add_n([loss, *(tf.cast(added, tf.float32) for added in losses)]),
      predictions=predictions,
      num_examples=count,
    )

  @tf.autograph.experimental.do_not_convert
  def report_local_unfinalized_metrics(
    self,
  ) -> collections.OrderedDict[str, list[tf.Tensor]]:
    return collections.OrderedDict(
      (m.name, [v.read_value() for v in m.variables]) for m in self._metrics
    )

  def metric_finalizers(
    self,
  ) -> collections.OrderedDict[str, Callable[[list[tf.Tensor]], Any]]:
    return collections.OrderedDict((m.name, m.finalizer) for m in self._metrics)

  @tf.autograph.experimental.do_not_convert
  def reset_metrics(self) -> None:
    for metric in self._metrics:
      metric.reset()

  def up_to(self, layer: Any) -> Callable[[structures.Structure], tf.Tensor]:
    """Returns a function from inputs to a layer's input, in training mode.

    Raises:
      AttributeError, ValueError: If the model is not a graph of layers.
    """
    import keras  # pylint: disable=g-import-not-at-top

    with _eagerly():
      part = keras.Model(self._keras_model.inputs, layer.input)
    return lambda inputs: self.call(part, inputs, True)[0]


class Wrapped(tff.learning.models.VariableModel):
  """A model that wraps another but trains other variables.

  Attributes:
    unfrozen: The wrapped model.
  """

  def __init__(self, unfrozen: tff.learning.models.VariableModel):
    self.unfrozen = unfrozen

  def variable_name(self, variable: tf.Variable) -> str:
    """Returns the name of a variable, such as 'dense/kernel'."""
    return name_of(self.unfrozen, variable)

  @property
  def local_variables(self) -> Sequence[tf.Variable]:
    return self.unfrozen.local_variables

  @property
  def input_spec(self) -> Any:
    return self.unfrozen.input_spec

  def forward_pass(self, batch_input: Any, training: bool = True) -> Any:
    return self.unfrozen.forward_pass(batch_input, training)

  def predict_on_batch(self, batch_input: Any, training: bool = True) -> Any:
    return self.unfrozen.predict_on_batch(batch_input, training)

  def report_local_unfinalized_metrics(self) -> Any:
    return self.unfrozen.report_local_unfinalized_metrics()

  def metric_finalizers(self) -> Any:
    return self.unfrozen.metric_finalizers()

  def reset_metrics(self) -> None:
    self.unfrozen.reset_metrics()


class WeightedModel(Wrapped):
  """A Keras model whose examples have weights."""

  def __init__(
    self, unfrozen: tff.learning.models.VariableModel, input_spec: Any
  ):
    """Wraps a model.

    Args:
      unfrozen: A model of either Keras.
      input_spec: Spec of a batch, with weights.

    Raises:
      TypeError: If its loss or its metrics take no weights.
    """
    super().__init__(unfrozen)
    self._input_spec = input_spec
    try:
      masking.check(unfrozen)
    except masking.MaskError as e:
      raise TypeError(f'Sample weights cannot be used: {e}.') from e

  @property
  def input_spec(self) -> Any:
    return self._input_spec

  @property
  def trainable_variables(self) -> Sequence[tf.Variable]:
    return self.unfrozen.trainable_variables

  @property
  def non_trainable_variables(self) -> Sequence[tf.Variable]:
    return self.unfrozen.non_trainable_variables

  @functools.cached_property
  def _forward(self) -> Callable[..., Any]:
    # Traced once, so that all passes of a step draw the same numbers.
    return tf.function(
      lambda batch, training: masking.forward(self, batch, None, training)
    )

  @tf.autograph.experimental.do_not_convert
  def forward_pass(
    self, batch_input: Any, training: bool = True
  ) -> tff.learning.models.BatchOutput:
    loss, predictions = self._forward(batch_input, training)
    x, _, _ = masking.parts_of(batch_input)
    count = tf.shape(tf.nest.flatten(x)[0])[0]
    return tff.learning.models.BatchOutput(loss, predictions, count)


def _weighted(
  model: tff.learning.models.VariableModel, input_spec: Any
) -> tff.learning.models.VariableModel:
  """Wraps a model if its examples have weights."""
  if masking.parts_of(input_spec)[2] is None:
    return model
  return WeightedModel(model, input_spec)


def _like(weight: Any, prefix: str) -> tf.Variable:
  """Creates a variable of the current graph for a Keras 3 weight."""
  if getattr(_context, 'without_values', False):
    first = tf.zeros(weight.shape, weight.dtype)
  else:
    with _eagerly():
      first = weight.value.numpy()
  return tf.Variable(
    first,
    trainable=weight.trainable,
    dtype=weight.dtype,
    name=weight.path.removeprefix(prefix),
  )


def _loss_of(keras_model: Any, loss: Any) -> Callable[[Any, Any], tf.Tensor]:
  """Returns the loss as a function of labels and predictions."""
  import keras  # pylint: disable=g-import-not-at-top

  if loss is None:
    loss = getattr(keras_model, 'loss', None)
  if isinstance(loss, str):
    try:
      loss = keras.losses.get(loss)
    except ValueError as e:
      raise TypeError(f'`loss` must be a Keras 3 loss, got {loss!r}.') from e
  if not callable(loss):
    raise TypeError(
      '`loss` must be a loss of Keras, its name or a function of labels and '
      'predictions, or the model must be compiled with one; got '
      f'{type(loss).__name__}.'
    )
  return loss


def _metrics_of(
  keras_model: Any, metrics: Optional[Sequence[Any]]
) -> Sequence[Any]:
  """Returns the given metrics, or else those the model was compiled with."""
  if metrics is None:
    metrics = tff_internals.compiled_metrics(keras_model)
  elif isinstance(metrics, str) or not isinstance(metrics, Sequence):
    raise TypeError(
      f'`metrics` must be a list of metrics, got {type(metrics).__name__}.'
    )
  return metrics


def _metric_of(given: Any, keras_model: Any, input_spec: Any) -> _Metric:
  """Creates a metric, given one, a function that creates one, or a name.

  Raises:
    TypeError: If it is anything else.
  """
  if isinstance(given, tf.keras.metrics.Metric):
    return _Keras2Metric(given)
  if isinstance(given, str):
    given = _named_metric(given, keras_model, input_spec)
  elif not _is_keras_3_metric(given) and callable(given):
    with _eagerly():
      made = given()
    if isinstance(made, tf.keras.metrics.Metric):
      return _Keras2Metric(given)
    given = made
  if not _is_keras_3_metric(given):
    raise TypeError(
      '`metrics` must have metrics of Keras, functions that make one or '
      f'names of metrics, got {_name(type(given))}.'
    )
  if not _is_built(given):
    with _eagerly():
      _build_metric(given, keras_model, input_spec)
  return _Keras3Metric(given)


def _is_keras_3_metric(given: Any) -> bool:
  return tff_internals.is_keras_3(type(given), 'Metric')


def _named_metric(name: str, keras_model: Any, input_spec: Any) -> Any:
  """Returns a metric of Keras 3 by its name.

  The kind of 'accuracy' follows from the labels' spec in `input_spec`: binary,
  one number per class, or class indices.
  """
  import keras  # pylint: disable=g-import-not-at-top

  wanted = name
  if name in ('accuracy', 'acc'):
    x, y, _ = masking.parts_of(input_spec)
    try:
      shape = getattr(keras_model, 'output_shape', None)
      if shape is None:  # Of a subclass.
        given = keras.KerasTensor(tuple(x.shape), x.dtype.name)
        shape = keras_model.compute_output_spec(given).shape
      rank, labels = y.shape.rank, y.shape[-1] if y.shape.rank else None
    except (AttributeError, TypeError, ValueError) as e:
      raise TypeError(
        f'`metrics` names {name!r}, whose kind follows from one output and its '
        'labels; give a metric of Keras in its place.'
      ) from e
    outputs = shape[-1]
    if outputs == 1:
      wanted = 'binary_accuracy'
    elif labels == outputs and rank == len(shape):
      wanted = 'categorical_accuracy'
    else:
      wanted = 'sparse_categorical_accuracy'
  try:
    with _eagerly():
      found = keras.metrics.get(wanted)
      if not _is_keras_3_metric(found):
        found = keras.metrics.MeanMetricWrapper(found)
      found.name = name
  except ValueError as e:
    raise TypeError(
      f'`metrics` must name Keras 3 metrics, got {name!r}.'
    ) from e
  return found


def _zeros(spec: tf.TensorSpec) -> tf.Tensor:
  return tf.zeros([1 if d is None else d for d in spec.shape], spec.dtype)


def _build_metric(metric: Any, keras_model: Any, input_spec: Any) -> None:
  """Builds the variables of a metric that is built on its first batch."""
  inputs, labels = tf.nest.map_structure(
    _zeros, masking.parts_of(input_spec)[:2]
  )
  metric.update_state(labels, keras_model(inputs, training=False))
  metric.reset_state()


def _keras_2_metrics(
  metrics: Optional[Sequence[Any]], keras_model: Any, input_spec: Any
) -> Optional[list[Any]]:
  """Returns metrics that have their variables before the first batch.

  TFF's finalizers create each metric anew, and expect the variables of the one
  that was updated.
  """
  if metrics is None:
    return None
  if all(map(_has_all_variables, metrics)):
    # A metric that was made outside cannot be used in graphs.
    return list(map(_maker, metrics))
  x, y, _ = masking.parts_of(input_spec)
  outputs = keras_model(tf.nest.map_structure(_zeros, x), training=False)
  specs = y, tf.nest.map_structure(tf.TensorSpec.from_tensor, outputs)

  def build(given: Any) -> Any:
    metric = _maker(given)()
    if not _is_built(metric):
      metric.update_state(*tf.nest.map_structure(_zeros, specs))
      metric.reset_state()
    return metric

  return [functools.partial(build, metric) for metric in metrics]


def _maker(given: Any) -> Callable[[], Any]:
  """Returns a function that creates a metric of Keras 2.

  Args:
    given: A metric, to be copied, or a function that creates one.
  """
  if isinstance(given, tf.keras.metrics.Metric):
    # Anew each time: Keras takes parts out of some configurations.
    made_of = type(given).from_config
    return lambda: made_of(given.get_config())
  made: Callable[[], Any] = given
  return made


def _has_all_variables(given: Any) -> bool:
  """Returns whether a metric of Keras 2, or a function's, is built."""
  if not isinstance(given, tf.keras.metrics.Metric):
    with tf.Graph().as_default():
      given = given() if callable(given) else given
  return _is_built(given)


def _is_built(metric: Any) -> bool:
  """Returns whether a metric has all variables before its first batch."""
  if not getattr(metric, 'variables', True):
    return False
  return all(getattr(metric, name, True) for name in ('built', '_built'))


# Words of errors, and what they are due to.
_EXPLANATIONS = {
  '`adapt` is only supported': (
    'A function that builds a model of Keras 2 is called in graphs, where '
    '`adapt` cannot run: adapt a layer outside of it, and give what it learned '
    'to those of the model, as in Normalization('
    'mean=layer.mean.numpy().ravel(), '
    'variance=layer.variance.numpy().ravel()) or '
    'StringLookup(vocabulary=layer.get_vocabulary()).'
  ),
  'Dimension value must be integer': (
    'In a graph, a layer of Keras 2 that looks up words does not know how many '
    'it has, and so of how many numbers its output is: give it max_tokens=N '
    'and pad_to_max_tokens=True.'
  ),
  'The input to the finalizer should be': (
    'A metric creates variables on its first batch, of which '
    'tff.learning.models.from_keras_model knows nothing: use '
    'tff_adaptive.models.from_keras_model in its place, which takes the same '
    'arguments.'
  ),
  'exactly two top-level elements': (
    'tff.learning.models.from_keras_model takes inputs and labels, and no '
    'weights of examples: use tff_adaptive.models.from_keras_model in its '
    'place, which takes the same arguments.'
  ),
  'y_true[i]': (
    'The model has several losses, which TFF pairs with labels by their order, '
    'and batches have labels by name: give them as a tuple, in the order of '
    "the model's outputs."
  ),
  'capture an EagerTensor': (
    'A layer of the model uses a tensor or a lookup table of TensorFlow that '
    "was made outside of the graphs of TFF. Keep numbers as NumPy's, and a "
    'table as an attribute of a layer, a tf.lookup.StaticHashTable; with Keras '
    '2, make both in the function that builds the model.'
  ),
}


def explain(error: BaseException) -> None:
  """Raises `ModelError` if an error is due to what graphs ask of a model.

  Args:
    error: An exception of a function that builds a model of tff.learning, or of
      the tracing of such a model.
  """
  for words, told in _EXPLANATIONS.items():
    if words in str(error):
      raise tff_internals.ModelError(told) from error
  given = tff_internals.keras_3_model_in(error)
  if given is not None:
    raise tff_internals.ModelError(
      f'`model` makes a {_name(type(given))}, a model of Keras 3, of which '
      'tff.learning.models.from_keras_model knows nothing: use '
      'tff_adaptive.models.from_keras_model in its place, which takes the same '
      'arguments, or hand the model, with loss, metrics and input_spec, to '
      'algorithms.build.'
    ) from error
