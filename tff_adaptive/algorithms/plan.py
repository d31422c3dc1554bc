"""Checked plans, made of a name and hyperparameters without TensorFlow."""

import dataclasses
import inspect
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Set
from typing import Any
from typing import Optional
from typing import TYPE_CHECKING
from typing import TypeAlias
from typing import Union

from tff_adaptive import builders
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism
from tff_adaptive.privacy import requirements

if TYPE_CHECKING:
  import tensorflow_federated as tff

Optimizer: TypeAlias = Union[str, 'tff.learning.optimizers.Optimizer']

# The signatures of what every method is built with.
COMMON = 'tff_adaptive.algorithms.common:common'
SCHEDULE = 'tff_adaptive.optimizers.schedules:build_schedule'
AGGREGATION = mechanism.SIGNATURE


@dataclasses.dataclass(frozen=True)
class Slot:
  """The place of a hyperparameter.

  Attributes:
    piece: What it is an argument of: 'client', 'server' (the optimizers),
      'client_schedule', 'server_schedule', 'aggregation', 'common' or 'own'
      (the method's function).
    argument: Its name there.
    parameter: By its public name, with the method's default.
  """

  piece: str
  argument: str
  parameter: parameters.Parameter


@dataclasses.dataclass(frozen=True)
class Plan:
  """A method with everything chosen and checked.

  Attributes:
    method: The method's row.
    optimizer: Per side, an optimizer's name or the object that was given.
    slots: Where hyperparameters go, by their public names.
    values: Their values, likewise.
    model_aggregator: As given to `algorithms.build`.
  """

  method: methods.Method
  optimizer: Mapping[str, Optimizer]
  slots: Mapping[str, Slot]
  values: Mapping[str, Any]
  model_aggregator: Any = None

  def public(self, piece: str) -> dict[str, str]:
    """Returns the public names of a piece's arguments; see `Slot`."""
    return {s.argument: n for n, s in self.slots.items() if s.piece == piece}

  def arguments(self, piece: str) -> dict[str, Any]:
    """Returns the arguments to build a piece with."""
    return {a: self.values[n] for a, n in self.public(piece).items()}

  def schedule(self, side: str) -> dict[str, Any]:
    """Returns a learning-rate schedule's arguments; none for a constant."""
    arguments = self.arguments(f'{side}_schedule')
    constant = not arguments or schedules.is_constant(**arguments)
    return {} if constant else arguments

  @property
  def aggregation(self) -> mechanism.AggregationOptions:
    """The options of aggregation, unless `model_aggregator` is given."""
    return mechanism.check(self.arguments('aggregation'))

  @property
  def private(self) -> bool:
    """Whether updates are clipped and noised for differential privacy."""
    return mechanism.is_asked(self.arguments('aggregation'))

  def with_values(self, **values: Any) -> 'Plan':
    """Returns the plan with other values, which are not checked again."""
    return dataclasses.replace(self, values={**self.values, **values})


def optimizers_of(
  method: methods.Method,
  client: Optional[Optimizer] = None,
  server: Optional[Optimizer] = None,
) -> dict[str, Optimizer]:
  """Chooses the optimizer of each side.

  Args:
    method: A method.
    client, server: Names or objects; the method's own unless given.

  Raises:
    ParameterError: If there is no such optimizer, or the method does not let
      its own be replaced by it.
  """
  return {
    'client': _choose(method, 'client', client),
    'server': _choose(method, 'server', server),
  }


def _choose(method: methods.Method, side: str, asked: Any) -> Any:
  """Chooses the optimizer of a side."""
  own = getattr(method, side)
  if asked is None or asked == own:
    return own
  known = optimizers.names(side)
  if side == 'client' and not method.has_clients:
    problem = (
      'The algorithm {method} has no clients: {} cannot be {asked!r}; '
      '{server_optimizer} is what trains.'
    )
  elif side in method.fixes:
    problem = (
      'The algorithm {method} has its own {side} optimizer, {own}: {} cannot '
      'be {asked!r}.'
    )
  elif isinstance(asked, str) and asked not in known:
    problem = '{} must be one of {known}, got {asked!r}{hint}.'
  elif isinstance(asked, str) and asked not in (known := method.accepted(side)):
    problem = (
      'The algorithm {method} accepts the {side} optimizers {known}, got '
      '{asked!r}.'
    )
  else:
    return asked
  raise parameters.ParameterError(
    f'{side}_optimizer',
    problem,
    method=method.name,
    side=side,
    own=own,
    known=', '.join(known),
    asked=asked,
    hint=parameters.suggestion(asked, known),
  )


def slots_of(
  method: methods.Method, optimizer: Mapping[str, Optimizer]
) -> dict[str, Slot]:
  """Lists where a method's hyperparameters go, by their public names.

  Args:
    method: A method.
    optimizer: By side, as `optimizers_of` chose it.
  """
  slots: dict[str, Slot] = {}
  for piece, public, parameter in _offered(method, optimizer):
    if public in method.hides:
      continue
    if public in slots:
      raise LookupError(
        f'{method.name} with {optimizer} has two hyperparameters {public!r}; '
        'one of the builders needs another name for its own.'
      )
    default = parameter.default
    if optimizer.get(piece) in (None, getattr(method, piece, None)):
      default = method.defaults.get(public, default)
    named = dataclasses.replace(parameter, name=public, default=default)
    slots[public] = Slot(piece, parameter.name, named)
  return slots


def _offered(
  method: methods.Method, optimizer: Mapping[str, Any]
) -> Iterator[tuple[str, str, parameters.Parameter]]:
  """Pieces, public names and parameters of everything to be built."""
  shared = dict(builders.parameters_of(COMMON))
  for side in optimizers.SIDES if method.has_clients else ['server']:
    rate = optimizers.public_name(side, 'learning_rate')
    scheduled = method.has_clients and rate not in method.hides
    if isinstance(name := optimizer[side], str):
      accepted = optimizers.parameters_of(side, name)
      scheduled = scheduled and 'learning_rate' in accepted
      for argument, parameter in accepted.items():
        yield side, optimizers.public_name(side, argument, name), parameter
    if scheduled:
      for argument, parameter in builders.parameters_of(SCHEDULE).items():
        yield f'{side}_schedule', f'{side}_{argument}', parameter
  if not method.has_clients:
    yield 'common', 'seed', shared['seed']
    return
  for argument, parameter in builders.parameters_of(AGGREGATION).items():
    yield 'aggregation', argument, parameter
  if isinstance(name := optimizer['client'], str):
    if 'learning_rate' not in optimizers.parameters_of('client', name):
      del shared['client_warmup_steps']
    if not optimizers.entry_of('client', name).chooses_step_size:
      del shared['record_step_sizes']
  own: Mapping[str, parameters.Parameter] = {}
  if method.pieces is not None:
    own = builders.parameters_of(method.pieces)
  for argument, parameter in shared.items():
    if argument not in own:
      yield 'common', argument, parameter
  for argument, parameter in own.items():
    yield 'own', argument, parameter


def resolve(
  name: str,
  *,
  client_optimizer: Optional[Optimizer] = None,
  server_optimizer: Optional[Optimizer] = None,
  model_aggregator: Optional[
    'tff.aggregators.WeightedAggregationFactory'
  ] = None,
  **given: Any,
) -> Plan:
  """Checks what `algorithms.build` takes, and fills in what is not given.

  Raises:
    ParameterError: As `algorithms.build` says.
  """
  method = methods.find(name)
  optimizer = optimizers_of(method, client_optimizer, server_optimizer)
  slots = slots_of(method, optimizer)
  values: dict[str, Any] = {}
  plan = Plan(method, optimizer, slots, values, model_aggregator)
  for public, value in given.items():
    if public not in slots:
      raise _stray(plan, public, value)
  for public, slot in slots.items():
    if public in given:
      values[public] = slot.parameter.check(_weighting_word(given[public]))
    elif slot.parameter.required:
      raise parameters.ParameterError(
        public, 'The algorithm {method} needs {}.', method=name
      )
    else:
      values[public] = slot.parameter.default
  if method.has_clients:
    values |= requirements.check(plan, 'client_weighting' in given)
  for side in optimizers.SIDES:
    _check_side(plan, side)
  if method.check is not None:
    _call(method.check, values)
  return plan


def _stray(plan: Plan, name: str, value: Any) -> parameters.ParameterError:
  """Makes the error about a hyperparameter that nothing has a use for."""
  known = ', '.join(f'{{{n}}}' for n in sorted(plan.slots))
  client, server = (
    o if isinstance(o, str) else type(o).__name__
    for o in plan.optimizer.values()
  )
  return parameters.UnusedError(
    name,
    '{}={given} would be ignored: the algorithm {method} with client optimizer '
    f'{{client}} and server optimizer {{server}} has no use for it{{hint}}; it '
    f'accepts {known}.',
    given=value,
    hint=parameters.suggestion(name, plan.slots),
    method=plan.method.name,
    client=client,
    server=server,
  )


def _check_side(plan: Plan, side: str) -> None:
  """Checks what the range of no single argument says."""
  optimizer = plan.optimizer[side]
  if isinstance(optimizer, str) and (arguments := plan.arguments(side)):
    place = optimizers.entry_of(side, optimizer).check
    # A method may hide some of the arguments that have to fit each other.
    if place and _arguments_of(place) <= arguments.keys():
      with parameters.renamed(plan.public(side)):
        _call(place, arguments)
  if arguments := plan.arguments(f'{side}_schedule'):
    with parameters.renamed(plan.public(f'{side}_schedule')):
      schedules.check(**arguments)
    if plan.schedule(side) and not isinstance(optimizer, str):
      raise parameters.ParameterError(
        f'{side}_lr_schedule', '{} needs the optimizer of its side by name.'
      )


def _arguments_of(place: str) -> Set[str]:
  return inspect.signature(builders.load(place)).parameters.keys()


def _call(place: str, values: Mapping[str, Any]) -> None:
  """Calls a function with those of the values that it takes."""
  builders.load(place)(**{n: values[n] for n in _arguments_of(place)})


def _weighting_word(value: Any) -> Any:
  """Translates tff.learning's `ClientWeighting` to this package's words."""
  words = {'NUM_EXAMPLES': 'examples', 'UNIFORM': 'uniform'}
  if type(value).__name__ == 'ClientWeighting':
    return words[value.name]
  return value
