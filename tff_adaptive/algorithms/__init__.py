"""The published methods, by name, as tff.learning processes.

  process = algorithms.build('fedadam', model_fn, client_learning_rate=0.03,
                             server_learning_rate=0.003)
  state = process.initialize()
  output = process.next(state, client_datasets)

Behind it: `resolve` makes a checked `plan.Plan` of a name and hyperparameters,
`building` makes its pieces and the process of these. Only `build` and
`describe` import TensorFlow.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional
from typing import TYPE_CHECKING
from typing import Union

from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.algorithms.methods import Costs
from tff_adaptive.algorithms.methods import Method
from tff_adaptive.algorithms.methods import method
from tff_adaptive.algorithms.methods import Options
from tff_adaptive.algorithms.plan import resolve

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
  """Lists the names that `build` accepts."""
  return [name for name, m in methods.table().items() if m.has_clients]


def summary(name: str) -> str:
  """Returns one line that says what a method is."""
  return methods.find(name).summary


def parameters_of(
  name: str,
  client_optimizer: Optional[str] = None,
  server_optimizer: Optional[str] = None,
) -> Mapping[str, parameters.Parameter]:
  """Returns the hyperparameters that a method accepts, by name.

  Args:
    name: A method.
    client_optimizer, server_optimizer: Names of the optimizers to build it
      with; the method's own unless given.

  Raises:
    ParameterError: If there is no such method or optimizer, or the method does
      not let that optimizer be replaced.
  """
  row = methods.find(name)
  chosen = plan_lib.optimizers_of(row, client_optimizer, server_optimizer)
  slots = plan_lib.slots_of(row, chosen)
  return {public: slot.parameter for public, slot in slots.items()}


def check(name: str, **hyperparameters: Any) -> None:
  """Raises `ParameterError` unless `build` would accept the hyperparameters."""
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

  Args:
    name: One of `names()`.
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a
      `tff.learning.models.FunctionalModel`; with `input_spec`, a model of Keras
      3, or a no-argument function that returns a model of either Keras.
    input_spec: Of a batch for a Keras model: `tf.TensorSpec`s of `x` and `y`,
      or of the pair.
    loss, metrics: For a Keras model as `models.from_keras_model` takes them.
    **hyperparameters: As `parameters_of(name)` lists them; their defaults are
      the papers'. `client_optimizer` and `server_optimizer` may be names (see
      `optimizers.client_names`, `optimizers.server_names`) or
      `tff.learning.optimizers.Optimizer` objects. `model_aggregator` may be a
      `tff.aggregators.WeightedAggregationFactory`.

  Returns:
    A `tff.learning.templates.LearningProcess`.

  Raises:
    ParameterError: If the name is unknown, or a hyperparameter has a value out
      of range or is one that the method has no use for.
    TypeError: If `model` is not of the kinds above, is not built, or is of
      Keras 3 under another backend than TensorFlow's.
  """
  plan = resolve(name, **hyperparameters)
  if not plan.method.has_clients:
    raise parameters.ParameterError(
      'algorithm',
      'The algorithm {name} is no federated process; training.run trains it.',
      name=name,
    )
  # Only here does TensorFlow come in.
  # pylint: disable=g-import-not-at-top
  from tff_adaptive import models
  from tff_adaptive.algorithms import building

  if input_spec is not None:
    model = models.model_fn(
      model, input_spec=input_spec, loss=loss, metrics=metrics
    )
  elif loss is not None or metrics is not None:
    raise TypeError(
      '`loss` and `metrics` go with a Keras model, which also needs '
      '`input_spec`, the tf.TensorSpecs of a batch.'
    )
  return building.make_pieces(plan).compose(model)


def describe(name: str, **hyperparameters: Any) -> str:
  """Renders the rule that `build` would follow, one assignment a line."""
  plan = resolve(name, **hyperparameters)
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.algorithms import building
  from tff_adaptive.algorithms import description

  return description.describe(building.make_pieces(plan))


def is_stateful(process: 'processes.Process') -> bool:
  """Tells whether a process keeps state for each client between rounds."""
  return hasattr(process, 'initialize_client_state')
