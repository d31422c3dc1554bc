"""Names of TFF, Keras and AutoGraph that are not in their public API.

Upgrades change this file alone. (The runtime has such files of its own, because
it does not import the rest of the package.)
"""

import collections
import contextlib
import functools
import random
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Optional

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff
from tensorflow.python.autograph.core import config as autograph_config
from tensorflow.python.eager import context as eager_context

from tff_adaptive import errors

# Modules whose functions AutoGraph would convert at every start without need.
# Not those that call an optimizer of the user's, which may need it. Keras
# passes the losses and models that they call to AutoGraph.
_PLAIN = (
  'tff_adaptive.masking',
  'tff_adaptive.models',
  'tff_adaptive.optimizers.clients',
  'tff_adaptive.optimizers.servers',
  'tensorflow_federated.python.common_libs.py_typecheck',
  'tensorflow_federated.python.learning.metrics.counters',
  'tensorflow_federated.python.learning.metrics.keras_finalizer',
  'tensorflow_federated.python.learning.models.keras_utils',
  'tensorflow_federated.python.learning.optimizers.adam',
  'tensorflow_federated.python.learning.optimizers.adagrad',
  'tensorflow_federated.python.learning.optimizers.optimizer',
  'tensorflow_federated.python.learning.optimizers.sgdm',
  'tensorflow_federated.python.learning.optimizers.yogi',
)
autograph_config.CONVERSION_RULES = (
  *map(autograph_config.DoNotConvert, _PLAIN),
  *autograph_config.CONVERSION_RULES,
)

# Models may be traced in several threads, which share a model's generators.
_drawing = threading.RLock()


class Keras3Error(errors.SettingsError, ImportError):
  """Raised if TensorFlow is configured to use Keras 3, which TFF lacks."""


class ModelError(errors.SettingsError, TypeError):
  """Raised for a model of Keras that cannot run in TFF's graphs."""


if not issubclass(tf.keras.Model, tf.Module):
  raise Keras3Error(
    'tff_adaptive needs Keras 2, as TensorFlow Federated does, but tf.keras '
    f'is Keras {tf.keras.__version__}: set TF_USE_LEGACY_KERAS=1 before '
    'TensorFlow is imported, and install tf-keras.'
  )


def is_keras_3(kind: type, name: str) -> bool:
  """Returns whether a class is or derives from a class of Keras 3.

  Args:
    kind: The class.
    name: Name of Keras' class, such as 'Model'. Keras is not imported.
  """
  return not issubclass(kind, tf.Module) and any(
    base.__name__ == name and base.__module__.split('.')[0] == 'keras'
    for base in kind.__mro__
  )


def keras_3_model_in(error: BaseException) -> Any:
  """Returns the Keras 3 model that caused an error, or `None`."""
  found = [getattr(error, 'obj', None)]
  for frame, _ in traceback.walk_tb(error.__traceback__):
    if frame.f_globals['__name__'].startswith('tensorflow_federated.'):
      found.append(frame.f_locals.get('keras_model'))
  for given in found:
    if is_keras_3(type(given), 'Model'):
      return given
  return None


def layers_of(keras_model: Any) -> list[Any]:
  """Returns all layers of a model of either Keras, including nested ones."""
  if isinstance(keras_model, tf.Module):
    return [
      part
      for part in keras_model.submodules
      if isinstance(part, tf.keras.layers.Layer)
    ]
  return list(keras_model._flatten_layers(include_self=False))


def regularize_instead(layer: Any, weight: Any, other: Any) -> None:
  """Makes a Keras 2 layer's regularizer of a weight look at another value."""
  for place, loss in enumerate(layer._callable_losses):
    of_weight = loss.args[0]
    if any(part is weight for part in getattr(of_weight, 'args', ())):
      replaced = of_weight.func is _of_tensor
      function = of_weight.args[0] if replaced else of_weight.func
      of_other = functools.partial(_of_tensor, function, other)
      layer._callable_losses[place] = functools.partial(loss.func, of_other)


def _of_tensor(function: Callable[[tf.Tensor], Any], value: Any) -> Any:
  return function(tf.convert_to_tensor(value))


def tables_of(keras_model: Any) -> dict[int, tf.lookup.StaticHashTable]:
  """Copies the lookup tables of a Keras 3 model's layers into this graph.

  Returns:
    Tables by the id of the layer's own, such as that of a `StringLookup`; none
    in eager mode, where these can be used.
  """
  if tf.executing_eagerly():
    return {}
  copies = {}
  for layer in layers_of(keras_model):
    for table in vars(layer).values():
      if isinstance(table, tf.lookup.StaticHashTable):
        with (
          tf.Graph().as_default(),
          tf.__internal__.eager_context.eager_mode(),
        ):
          keys, values = (tensor.numpy() for tensor in table.export())
          default = table._default_value.numpy()
        content = tf.lookup.KeyValueTensorInitializer(
          keys, values, table.key_dtype, table.value_dtype
        )
        copies[id(table)] = tf.lookup.StaticHashTable(content, default)
  return copies


@contextlib.contextmanager
def drawing(
  keras_model: Any,
  draw: Callable[[int], tf.Tensor],
  tables: Mapping[int, tf.lookup.StaticHashTable],
) -> Iterator[None]:
  """Prepares a Keras 3 model for calls in a graph.

  In the context its generators return other seeds. Eager tensors and lookup
  tables in attributes of its layers, unusable in graphs, are replaced by arrays
  and by tables of the graph.

  Args:
    keras_model: The model.
    draw: Maps the index of a generator in the model to a seed, int32 [2]; index
      -1 is that of layers without a generator of their own.
    tables: Tables of the graph, as returned by `tables_of`.
  """
  from keras.src.random import seed_generator  # pylint: disable=g-import-not-at-top

  places = dict(enumerate(seed_generators(keras_model)))
  with tf.Graph().as_default(), tf.__internal__.eager_context.eager_mode():
    places[-1] = seed_generator.global_seed_generator()
    replaced = [
      (layer, name, value, tables.get(id(value)) or value.numpy())
      for layer in layers_of(keras_model)
      for name, value in vars(layer).items()
      if id(value) in tables or isinstance(value, tf.__internal__.EagerTensor)
    ]
  with _drawing:
    for place, generator in places.items():
      generator.next = lambda ordered=True, place=place: draw(place)
    for layer, name, _, usable in replaced:
      object.__setattr__(layer, name, usable)
    try:
      yield
    finally:
      for generator in places.values():
        del generator.next
      for layer, name, value, _ in replaced:
        object.__setattr__(layer, name, value)


def seed_generators(keras_model: Any) -> list[Any]:
  """Returns the random seed generators of a Keras 3 model."""
  found = {
    id(generator): generator
    for layer in (keras_model, *layers_of(keras_model))
    for generator in layer._seed_generators
  }
  return list(found.values())


def compiled_metrics(keras_model: Any) -> list[Any]:
  """Returns the metrics or names that a Keras 3 model was compiled with."""
  compiled = keras_model._compile_metrics
  found = () if compiled is None else compiled._user_metrics or ()
  return list(found or []) if isinstance(found, (list, tuple)) else [found]


def reset_names() -> None:
  """Resets Keras' numbering of layer names; that of Keras 3 if imported."""
  tf.keras.backend.reset_uids()
  naming = sys.modules.get('keras.src.utils.naming')
  if naming is not None:
    naming.reset_uids()


def unwrapped(model: Any) -> Any:
  """Returns the model inside of a frozen or adapted one."""
  while hasattr(model, 'unfrozen'):
    model = model.unfrozen
  return model


def metric_objects(model: Any) -> list[Any]:
  """Returns a model's metrics of Keras; none if it does not tell them."""
  model = unwrapped(model)
  of_keras_3 = getattr(model, 'metric_objects', None)
  return list(of_keras_3 or getattr(model, 'get_metrics', list)())


def eager_metrics(
  model: tff.learning.models.VariableModel,
) -> Callable[[], collections.OrderedDict[str, Any]]:
  """Returns a function that computes a model's metrics from its variables.

  Metrics of a Keras 2 model are those that it updates, in one call. TFF's
  finalizers create a metric at every call, which takes milliseconds, and which
  `tf.function` forbids outside of TFF's own graphs.

  Returns:
    A function that returns arrays by name, in the model's order.
  """
  own = {
    m.name: m.result for m in getattr(unwrapped(model), 'get_metrics', list)()
  }
  finalizers = {
    name: getattr(finalizer, 'python_function', finalizer)
    for name, finalizer in model.metric_finalizers().items()
  }
  kept = {name: own[name] for name in finalizers if name in own}

  @tf.function(autograph=False)
  def results() -> dict[str, Any]:
    return {name: result() for name, result in kept.items()}

  def compute() -> collections.OrderedDict[str, Any]:
    found = results() if kept else {}
    if len(kept) < len(finalizers):
      sums = model.report_local_unfinalized_metrics()
      found |= {
        name: finalizer(sums[name])
        for name, finalizer in finalizers.items()
        if name not in kept
      }
    return collections.OrderedDict(
      (name, found[name].numpy()) for name in finalizers
    )

  return compute


def keras_model_of(
  model: tff.learning.models.VariableModel,
) -> Optional[tf.keras.Model]:
  """Returns the Keras model inside a `tff.learning` model, or `None`."""
  model = unwrapped(model)
  return getattr(model, '_keras_model', None)


def is_plain_mean(aggregator: tff.aggregators.AggregationFactory) -> bool:
  """Returns whether an aggregator is TFF's mean of updates in full.

  Secure and compressed means are of the same class, but of other sums.
  """
  sums = getattr(aggregator, '_value_sum_factory', None)
  return isinstance(aggregator, tff.aggregators.MeanFactory) and isinstance(
    sums, tff.aggregators.SumFactory
  )


def is_in_graph_mode(model: tff.learning.models.VariableModel) -> bool:
  """Returns whether Keras treats a model that was built eagerly as of a graph.

  Keras 2 changes the bases of its classes, for all models, whenever one is
  built in a graph, and back when one is built eagerly.
  """
  keras_model = keras_model_of(model)
  parts = {type(part) for part in getattr(keras_model, 'submodules', ())}
  return any(
    base.__module__.endswith('_v1')
    for part in {type(keras_model), *parts}
    for base in part.__mro__
  )


def compute_dtypes(model: tff.learning.models.VariableModel) -> set[str]:
  """Returns the dtypes in which the layers of a Keras model compute."""
  keras_model = keras_model_of(model)
  layers = [] if keras_model is None else layers_of(keras_model)
  return {layer.compute_dtype for layer in layers}


def ends_in_logits(model: tff.learning.models.VariableModel) -> Optional[bool]:
  """Returns whether a model's loss takes logits.

  Returns:
    `None` if the loss does not declare it, or there are several.
  """
  model = unwrapped(model)
  losses = getattr(model, '_loss_fns', None) or [None]
  if len(losses) > 1:
    return None
  if hasattr(losses[0], 'from_logits'):
    return bool(losses[0].from_logits)
  try:
    told = losses[0].get_config().get('from_logits')
  except (AttributeError, NotImplementedError):
    return None
  return None if told is None else bool(told)


# Seeds that this process has set.
_seeds: set[int] = set()


def set_random_seed(seed: int, *, drawn: bool = True) -> None:
  """Does what `tf.keras.utils.set_random_seed` does, and forgets less.

  TensorFlow clears all compiled functions when a seed is set, and the next
  round takes some tenths of a second to compile them again: an operation that
  was compiled with a seed would continue its random numbers rather than begin
  anew. That cannot happen to a seed that this process has not set before.

  Args:
    seed: The seed of Python, NumPy, TensorFlow and Keras.
    drawn: Whether random numbers are drawn by TensorFlow's operations
      afterwards. If not, nothing is cleared.
  """
  if drawn and seed in _seeds:
    tf.keras.utils.set_random_seed(seed)
    return
  if drawn:
    _seeds.add(seed)
  # Not earlier, so that where it is not installed `Keras3Error` says so.
  from tf_keras.src import backend as keras_backend  # pylint: disable=g-import-not-at-top

  random.seed(seed)
  np.random.seed(seed)
  keras_backend._SEED_GENERATOR.generator = random.Random(seed)
  context = eager_context.context()
  context._seed, context._rng = seed, random.Random(seed)


def clear_keras_session(*, compiled: bool) -> None:
  """Frees what Keras holds for models.

  Args:
    compiled: Whether TensorFlow also forgets the functions that it has
      compiled, as `tf.keras.backend.clear_session` has it do.
  """
  context = eager_context.context()
  if not compiled:
    context.clear_kernel_cache = lambda: None
  try:
    tf.keras.backend.clear_session()
  finally:
    if not compiled:
      del context.clear_kernel_cache


def skip_initial_values(variables: Iterable[tf.Variable]) -> None:
  """Leaves variables of the current graph without values until assigned.

  Their initial values are then not computed when the graph runs.
  """
  for variable in variables:
    variable._initializer_op = tf.no_op()


def replace_random_generators(
  keras_model: tf.keras.Model, make_generator: Any
) -> int:
  """Replaces the random generators of all layers of a Keras 2 model.

  Args:
    keras_model: The model, changed in place.
    make_generator: Maps an index from 0 to an object with the methods
      `dropout`, `random_normal`, `random_uniform` and `truncated_normal` of
      Keras' own generator.

  Returns:
    Number of replaced generators.
  """
  count = 0
  for layer in layers_of(keras_model):
    if hasattr(layer, '_random_generator'):
      # A layer without randomness (rate 0) still owns a generator.
      object.__setattr__(layer, '_random_generator', make_generator(count))
      count += 1
  return count
