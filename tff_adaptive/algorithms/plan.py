"""From a name and hyperparameters to a checked plan, without TensorFlow."""

import dataclasses
import inspect
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any

from tff_adaptive import builders
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism
from tff_adaptive.privacy import requirements

# The signatures of what every method is built with.
COMMON = 'tff_adaptive.algorithms.common:common'
SCHEDULE = 'tff_adaptive.optimizers.schedules:build_schedule'
AGGREGATION = mechanism.SIGNATURE


@dataclasses.dataclass(frozen=True)
class Slot:
  """Where a hyperparameter goes.

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
  optimizer: Mapping[str, Any]
  slots: Mapping[str, Slot]
  values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  model_aggregator: Any = None

  def arguments(self, piece: str) -> dict[str, Any]:
    """What to build a piece with; see `Slot`."""
    return {
      slot.argument: self.values[name]
      for name, slot in self.slots.items()
      if slot.piece == piece
    }

  def schedule(self, side: str) -> dict[str, Any]:
    """What to build a learning-rate schedule with; empty for a constant."""
    arguments = self.arguments(f'{side}_schedule')
    constant = not arguments or schedules.is_constant(**arguments)
    return {} if constant else arguments

  @property
  def aggregation(self) -> mechanism.AggregationOptions:
    """How updates are aggregated, unless `model_aggregator` says."""
    return mechanism.check(self.arguments('aggregation'))

  @property
  def private(self) -> bool:
    """Whether updates are clipped and noised for differential privacy."""
    return mechanism.is_asked(self.arguments('aggregation'))

  def with_values(self, **values: Any) -> 'Plan':
    """The same plan with other values, of which the caller is sure."""
    return dataclasses.replace(self, values={**self.values, **values})


def choose(
  name: str, client_optimizer: Any = None, server_optimizer: Any = None
) -> Plan:
  """Looks up a method, its optimizers and what they accept.

  Args:
    name: A method.
    client_optimizer, server_optimizer: Names or objects; the method's own
      unless given.

  Returns:
    A plan that has no values yet.

  Raises:
    ParameterError: If there is no such method or optimizer, or the method does
      not let that optimizer be replaced.
  """
  method = methods.find(name)
  optimizer = {
    'client': _choose(method, 'client', client_optimizer),
    'server': _choose(method, 'server', server_optimizer),
  }
  slots: dict[str, Slot] = {}
  for piece, public, parameter in _offered(method, optimizer):
    if public in slots:
      raise LookupError(
        f'{name} with {optimizer} has two hyperparameters {public!r}; one of '
        'the builders needs another name for its own.'
      )
    default = parameter.default
    if optimizer.get(piece) in (None, getattr(method, piece, None)):
      default = method.defaults.get(public, default)
    named = dataclasses.replace(parameter, name=public, default=default)
    slots[public] = Slot(piece, parameter.name, named)
  hidden = {
    f'{side}_schedule'
    for side in optimizers.SIDES
    if optimizers.public_name(side, 'learning_rate') in method.hides
  }
  for public, slot in list(slots.items()):
    if public in method.hides or slot.piece in hidden:
      del slots[public]
  return Plan(method, optimizer, slots)


def _choose(method: methods.Method, side: str, asked: Any) -> Any:
  """The optimizer of a side."""
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


def _offered(
  method: methods.Method, optimizer: Mapping[str, Any]
) -> Iterator[tuple[str, str, parameters.Parameter]]:
  """Pieces, public names and parameters of everything to be built."""
  shared = dict(builders.parameters_of(COMMON))
  for side in optimizers.SIDES if method.has_clients else ['server']:
    accepted: Mapping[str, parameters.Parameter] = {}
    has_rate = True
    if isinstance(name := optimizer[side], str):
      accepted = optimizers.parameters_of(side, name)
      has_rate = 'learning_rate' in accepted
    for argument, parameter in accepted.items():
      public = optimizers.public_name(side, argument, optimizer[side])
      yield side, public, parameter
    if has_rate and method.has_clients:
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
  chosen: Plan, given: Mapping[str, Any], model_aggregator: Any = None
) -> Plan:
  """Checks hyperparameters, every one of them once, and fills in the others.

  Args:
    chosen: As `choose` made it.
    given: Values by public name.
    model_aggregator: As given to `algorithms.build`.

  Raises:
    ParameterError: As `algorithms.build` says.
  """
  for name, value in given.items():
    if name not in chosen.slots:
      raise _stray(chosen, name, value)
  values = {}
  for name, slot in chosen.slots.items():
    if name in given:
      values[name] = slot.parameter.check(_weighting_word(given[name]))
    elif slot.parameter.required:
      raise parameters.ParameterError(
        name, 'The algorithm {method} needs {}.', method=chosen.method.name
      )
    else:
      values[name] = slot.parameter.default
  plan = dataclasses.replace(
    chosen, values=values, model_aggregator=model_aggregator
  )
  if plan.method.has_clients:
    weighting_given = 'client_weighting' in given
    plan = plan.with_values(**requirements.check(plan, weighting_given))
  for side in optimizers.SIDES:
    _check_side(plan, side)
  if plan.method.check is not None:
    takes = inspect.signature(builders.load(plan.method.check)).parameters
    builders.load(plan.method.check)(**{n: plan.values[n] for n in takes})
  return plan


def _stray(plan: Plan, name: str, value: Any) -> parameters.ParameterError:
  """What to say of a hyperparameter that nothing has a use for."""
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
  name, arguments = plan.optimizer[side], plan.arguments(side)
  # A method may hide some of the arguments that have to fit each other.
  if arguments and (place := optimizers.entry_of(side, name).check):
    takes = inspect.signature(builders.load(place)).parameters
    if takes.keys() <= arguments.keys():
      with parameters.renamed(_public(plan, side)):
        builders.load(place)(**{n: arguments[n] for n in takes})
  if scheduled := plan.arguments(f'{side}_schedule'):
    with parameters.renamed(_public(plan, f'{side}_schedule')):
      schedules.check(**scheduled)
  if plan.schedule(side) and not isinstance(name, str):
    raise parameters.ParameterError(
      f'{side}_lr_schedule', '{} needs the optimizer of its side by name.'
    )


def _public(plan: Plan, piece: str) -> dict[str, str]:
  """The public names of a piece's arguments."""
  return {s.argument: n for n, s in plan.slots.items() if s.piece == piece}


def _weighting_word(value: Any) -> Any:
  """tff.learning's `ClientWeighting` values, by this package's words."""
  words = {'NUM_EXAMPLES': 'examples', 'UNIFORM': 'uniform'}
  if type(value).__name__ == 'ClientWeighting':
    return words[value.name]
  return value
