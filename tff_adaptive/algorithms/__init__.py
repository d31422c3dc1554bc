"""The published methods, by name, as tff.learning processes.

  process = algorithms.build('fedadam', model_fn, client_learning_rate=0.03,
                             server_learning_rate=0.003)
  state = process.initialize()
  output = process.next(state, client_datasets)

`names`, `parameters_of` and `check` import no TensorFlow.
"""

from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.algorithms import registry


def names() -> list[str]:
  """The names that `build` accepts."""
  return list(registry.METHODS)


def summary(name: str) -> str:
  """One line that says what a method is."""
  return plan_lib.method_of(name).summary


def parameters_of(
  name: str,
  client_optimizer: Optional[str] = None,
  server_optimizer: Optional[str] = None,
) -> Mapping[str, parameters.Parameter]:
  """The hyperparameters that a method accepts, by name.

  Args:
    name: A method.
    client_optimizer, server_optimizer: Names of the optimizers to build it
      with; the method's own unless given.

  Raises:
    ParameterError: If there is no such method or optimizer, or the method does
      not let that optimizer be replaced.
  """
  return plan_lib.parameters_of(name, client_optimizer, server_optimizer)


def check(name: str, **hyperparameters: Any) -> None:
  """Raises `ParameterError` unless `build` would accept the hyperparameters."""
  plan_lib.resolve(name, hyperparameters)


def build(name: str, model: Any, **hyperparameters: Any) -> Any:
  """Builds a method as a learning process.

  Args:
    name: One of `names()`.
    model: A no-argument function returning a
      `tff.learning.models.VariableModel`, or a
      `tff.learning.models.FunctionalModel`.
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
    TypeError: If `model` is not of the kinds above.
  """
  plan = plan_lib.resolve(name, hyperparameters)
  # Only here does TensorFlow come in.
  from tff_adaptive.algorithms import assembly  # pylint: disable=g-import-not-at-top

  return assembly.assemble(plan, model)


def describe(name: str, **hyperparameters: Any) -> str:
  """The rule that `build` would follow, resolved, one assignment a line."""
  plan = plan_lib.resolve(name, hyperparameters)
  from tff_adaptive.algorithms import assembly  # pylint: disable=g-import-not-at-top

  return assembly.describe(plan)


def is_stateful(process: Any) -> bool:
  """Whether a process keeps state for each client between rounds."""
  return hasattr(process, 'initialize_client_state')
