"""Published federated optimization methods as tff.learning processes.

  process = algorithms.build('fedadam', model_fn, client_learning_rate=0.03,
                             server_learning_rate=0.003)
  state = process.initialize()
  output = process.next(state, client_datasets)

`resolve` checks a name and hyperparameters and returns a `MethodConfiguration`;
`building` builds the components of a configuration and composes the process.
Only `build` and `describe` import TensorFlow.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Optional, TYPE_CHECKING, Union

from tff_adaptive import parameters
from tff_adaptive.algorithms import configuration as configuration_lib
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms.configuration import resolve
from tff_adaptive.algorithms.methods import Costs
from tff_adaptive.algorithms.methods import Method
from tff_adaptive.algorithms.methods import method
from tff_adaptive.algorithms.methods import Options

if TYPE_CHECKING:
  from tff_adaptive import processes
  from tff_adaptive.processes.local import local_model

__all__ = [
  'Costs',
  'Method',
  'Options',
  'build',
  'check',
  'describe',
  'is_stateful',
  'method',
  'names',
  'parameters_of',
  'resolve',
  'summary',
]


def names() -> list[str]:
  """Lists the method names that `build` accepts."""
  return [name for name, m in methods.table().items() if m.has_clients]


def summary(name: str) -> str:
  """Returns a one-line summary of a method."""
  return methods.find(name).summary


def parameters_of(
  name: str,
  client_optimizer: Optional[str] = None,
  server_optimizer: Optional[str] = None,
) -> Mapping[str, parameters.Parameter]:
  """Returns the hyperparameters that a method accepts, by name.

  Args:
    name: A method.
    client_optimizer: Name of a client optimizer to build it with; by default
      the method's own.
    server_optimizer: The same of a server optimizer.

  Raises:
    ParameterError: If the method or an optimizer is unknown, or the method does
      not allow that optimizer.
  """
  row = methods.find(name)
  chosen = configuration_lib.optimizers_of(
    row, client_optimizer, server_optimizer
  )
  slots = configuration_lib.slots_of(row, chosen)
  return {public: slot.parameter for public, slot in slots.items()}


def check(name: str, **hyperparameters: Any) -> None:
  """Raises `ParameterError` if `build` would reject the hyperparameters."""
  resolve(name, **hyperparameters)


def build(
  name: str,
  model: Union['local_model.Model', Any],
  *,
  input_spec: Any = None,
  loss: Any = None,
  metrics: Optional[Sequence[Any]] = None,
  **hyperparameters: Any,
) -> 'processes.Process':
  """Builds a method as a learning process.

  Example:

    >>> import tensorflow as tf
    >>> from tff_adaptive import algorithms, runtime
    >>> def model_fn():
    ...   layer = tf.keras.layers.Dense(1, input_shape=[2])
    ...   return tf.keras.Sequential([layer])
    >>> process = algorithms.build(
    ...   'fedadam',
    ...   model_fn,
    ...   input_spec=(tf.TensorSpec([None, 2]), tf.TensorSpec([None, 1])),
    ...   loss=tf.keras.losses.MeanSquaredError(),
    ...   client_learning_rate=0.1,
    ... )
    >>> _ = runtime.set_in_process_context()
    >>> state = process.initialize()
    >>> client_data = tf.data.Dataset.from_tensors(([[1.0, 2.0]], [[3.0]]))
    >>> output = process.next(state, [client_data, client_data])
    >>> client_work = output.metrics['client_work']
    >>> train = client_work['train']
    >>> int(train['num_examples'])
    2

  Args:
    name: One of `names()`.
    model: A no-argument function that returns a
      `tff.learning.models.VariableModel`, or a
      `tff.learning.models.FunctionalModel`. With `input_spec`, a Keras 3 model,
      or a no-argument function that returns a model of either Keras.
    input_spec: The batches of a Keras model: `tf.TensorSpec`s of `x` and `y`,
      or of the pair.
    loss, metrics: The loss and metrics of a Keras model, as for
      `models.from_keras_model`.
    **hyperparameters: Hyperparameters listed by `parameters_of(name)`; their
      defaults are those of the papers, where these have any.
      `client_optimizer` and `server_optimizer` may be names (see
      `optimizers.client_names`, `optimizers.server_names`) or
      `tff.learning.optimizers.Optimizer` objects.
      `model_aggregator` may be a `tff.aggregators.WeightedAggregationFactory`.

  Returns:
    A `tff.learning.templates.LearningProcess`, or a
    `processes.StatefulLearningProcess` if clients keep something.

  Raises:
    ParameterError: If the name is unknown, or if a hyperparameter is out of
      range or not used by the method.
    TypeError: If `model` is not of the kinds above, is not built, or is a Keras
      3 model of a backend other than TensorFlow, or if `loss` or `metrics` is
      given without `input_spec`.
  """
  configuration = resolve(name, **hyperparameters)
  if not configuration.method.has_clients:
    raise parameters.ParameterError(
      'algorithm',
      'The algorithm {name} is not a federated process; train it with '
      'training.run.',
      name=name,
    )
  # These import TensorFlow.
  # pylint: disable=g-import-not-at-top
  from tff_adaptive import models
  from tff_adaptive.algorithms import building

  if input_spec is not None:
    model = models.model_fn(
      model, input_spec=input_spec, loss=loss, metrics=metrics
    )
  elif loss is not None or metrics is not None:
    raise TypeError(
      '`loss` and `metrics` require a Keras model and `input_spec`, the '
      'tf.TensorSpecs of a batch.'
    )
  return building.build_components(configuration).compose(model)


def describe(name: str, **hyperparameters: Any) -> str:
  """Renders the update rule of a method as text, one assignment per line.

  Example:

    >>> from tff_adaptive import algorithms
    >>> print(algorithms.describe('fedavg', client_learning_rate=0.1))
    algorithm fedavg: Federated averaging: SGD clients, their mean applied.
    client minimises F
    client optimizer sgd:
      x = x - learning_rate g
      with learning_rate = 0.1
    server optimizer sgd:
      x = x + learning_rate Delta
      with learning_rate = 1
    a client counts with weight the examples it iterated

  Args:
    name: One of `names()`.
    **hyperparameters: As for `build`.

  Raises:
    ParameterError: If `build` would raise it.
  """
  configuration = resolve(name, **hyperparameters)
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.algorithms import building
  from tff_adaptive.algorithms import description

  return description.describe(building.build_components(configuration))


def is_stateful(process: 'processes.Process') -> bool:
  """Returns whether a process keeps state for each client between rounds."""
  return getattr(process, 'initialize_client_state', None) is not None
