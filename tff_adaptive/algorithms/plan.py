"""Plans: methods with checked hyperparameters, resolved without TensorFlow."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, Optional, TYPE_CHECKING, TypeAlias, Union

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import common
from tff_adaptive.algorithms import methods
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism

if TYPE_CHECKING:
  import tensorflow_federated as tff

Optimizer: TypeAlias = Union[str, 'tff.learning.optimizers.Optimizer']


@dataclasses.dataclass(frozen=True)
class Slot:
  """The place of a hyperparameter among the pieces of a process.

  Attributes:
    piece: The piece that takes it: 'client' or 'server' (the optimizers),
      'client_schedule', 'server_schedule', 'aggregation', 'common' or 'own'
      (the method's options).
    description: The class of that piece.
    argument: The argument's name in that class.
    parameter: The parameter under its public name, with the method's default.
  """

  piece: str
  description: Any
  argument: str
  parameter: parameters.Parameter


@dataclasses.dataclass(frozen=True)
class Plan:
  """A method with all choices made and checked.

  Attributes:
    method: The method.
    optimizer: Per side, an optimizer's name or the object that was given.
    slots: Places of the hyperparameters, by public name.
    values: Values of the hyperparameters, by public name.
    model_aggregator: As given to `algorithms.build`.
  """

  method: methods.Method
  optimizer: Mapping[str, Optimizer]
  slots: Mapping[str, Slot]
  values: Mapping[str, Any]
  model_aggregator: Any = None
  _built: dict[str, Any] = dataclasses.field(
    default_factory=dict, compare=False
  )

  def public(self, piece: str) -> dict[str, str]:
    """Returns the public names of a piece's arguments; see `Slot`."""
    return {s.argument: n for n, s in self.slots.items() if s.piece == piece}

  def arguments(self, piece: str) -> dict[str, Any]:
    """Returns the arguments of a piece with their values."""
    return {a: self.values[n] for a, n in self.public(piece).items()}

  def build(self, piece: str) -> Any:
    """Builds the description of a piece from the plan's values.

    Args:
      piece: A piece, as named in `Slot`.

    Returns:
      The `parameters.Described` object, or `None` if the plan has no such
      piece.

    Raises:
      ParameterError: If a value is not accepted; it names the public name.
    """
    if piece not in self._built:
      slots = [slot for slot in self.slots.values() if slot.piece == piece]
      if not slots:
        return None
      with parameters.renamed(self.public(piece)):
        built = slots[0].description(**self.arguments(piece))
      self._built[piece] = built
    return self._built[piece]

  def schedule(self, side: str) -> Optional[schedules.Schedule]:
    """Returns the schedule of a learning rate; `None` for a constant rate."""
    schedule = self.build(f'{side}_schedule')
    return None if schedule is None or schedule.is_constant else schedule

  @property
  def aggregation(self) -> mechanism.Aggregation:
    """The aggregation options; unused if `model_aggregator` is given."""
    return self.build('aggregation')

  @property
  def structure(self) -> tuple[Any, ...]:
    """A hashable key of everything that determines the graph of a process.

    Processes of equal structure differ only in numbers stored in their state
    (`_numbers`). Of these numbers, the structure holds whether they are `None`
    and whether they are 0, because zeros may leave pieces out.
    """
    inside = {
      name: ('number', value is None, not value)
      for name, value in self.values.items()
      if name in self._numbers
    }
    return (
      self.method.name,
      self.method.options,
      tuple(self.optimizer.values()),
      tuple({**self.values, **inside}.items()),
      self.model_aggregator,
    )

  @property
  def _numbers(self) -> frozenset[str]:
    """Public names of the hyperparameters that are stored in the state."""
    names = {
      name
      for name, slot in self.slots.items()
      if slot.argument in getattr(slot.description, 'in_state', ())
    }
    if self.schedule('server'):
      # TFF's scheduled optimizer has the rate as a constant of its graph.
      names.discard(optimizers.public_name('server', 'learning_rate'))
    if self.values.get('aggregator') == 'secure':
      names.discard('dp_clip_norm')  # A bound of the summation.
    return frozenset({*names, 'seed'})

  @property
  def gradients_per_step(self) -> int:
    """Gradient evaluations per local step, as listed in docs/costs.md."""
    count = self.method.costs.gradients
    chosen = self.optimizer['client']
    if isinstance(chosen, str) and chosen != self.method.client:
      count += optimizers.entry_of('client', chosen).gradients
      count -= optimizers.entry_of('client', self.method.client).gradients
    return count

  @property
  def private(self) -> bool:
    """Whether updates are clipped for differential privacy."""
    return mechanism.is_asked(self.arguments('aggregation'))

  def with_values(self, **values: Any) -> 'Plan':
    """Returns a copy of the plan with some values replaced."""
    changed = {self.slots[name].piece for name in values if name in self.slots}
    kept = {k: v for k, v in self._built.items() if k not in changed}
    return dataclasses.replace(
      self, values={**self.values, **values}, _built=kept
    )


def optimizers_of(
  method: methods.Method,
  client: Optional[Optimizer] = None,
  server: Optional[Optimizer] = None,
) -> dict[str, Optimizer]:
  """Resolves the optimizer of each side.

  Args:
    method: A method. client, server: Names or objects; by default the method's
    own.

  Raises:
    ParameterError: If an optimizer is unknown, or the method does not accept it
      in place of its own.
  """
  return {
    'client': _choose(method, 'client', client),
    'server': _choose(method, 'server', server),
  }


def _choose(method: methods.Method, side: str, asked: Any) -> Any:
  """Resolves the optimizer of one side."""
  own = getattr(method, side)
  if asked is None or asked == own:
    return own
  known = optimizers.names(side)
  if side == 'client' and not method.has_clients:
    problem = (
      'The algorithm {method} has no clients: {} cannot be {asked!r}; it '
      'trains with {server_optimizer} alone.'
    )
  elif side in method.fixes and asked not in method.accepted(side):
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
  """Returns the places of a method's hyperparameters, by public name.

  Args:
    method: A method.
    optimizer: Optimizers by side, as returned by `optimizers_of`.
  """
  slots: dict[str, Slot] = {}
  for piece, description, argument, public in _offered(method, optimizer):
    if piece != 'own' and public in method.hides:
      continue
    parameter = parameters.parameters_of(description)[argument]
    if public in slots:
      raise LookupError(
        f'{method.name} with {optimizer} has two hyperparameters {public!r}; '
        'one of the builders needs another name for its own.'
      )
    default = parameter.default
    if optimizer.get(piece) in (None, getattr(method, piece, None)):
      default = method.defaults.get(public, default)
    named = parameter.named(public, default=default)
    slots[public] = Slot(piece, description, argument, named)
  return slots


def _offered(
  method: methods.Method, optimizer: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str, str]]:
  """Yields piece, class, argument and public name of each hyperparameter."""
  for side in optimizers.SIDES if method.has_clients else ['server']:
    rate = optimizers.public_name(side, 'learning_rate')
    scheduled = method.has_clients and rate not in method.hides
    if isinstance(name := optimizer[side], str):
      described = optimizers.entry_of(side, name).description
      accepted = parameters.parameters_of(described)
      scheduled = scheduled and 'learning_rate' in accepted
      for argument in accepted:
        public = optimizers.public_name(side, argument, name)
        yield side, described, argument, public
    if scheduled:
      for argument in parameters.parameters_of(schedules.Schedule):
        public = f'{side}_{argument}'
        yield f'{side}_schedule', schedules.Schedule, argument, public
  if not method.has_clients:
    yield 'common', common.Common, 'seed', 'seed'
    return
  for argument in parameters.parameters_of(mechanism.Aggregation):
    yield 'aggregation', mechanism.Aggregation, argument, argument
  own = parameters.parameters_of(method.options)
  unused = {*own}
  if isinstance(name := optimizer['client'], str):
    if 'learning_rate' not in optimizers.parameters_of('client', name):
      unused.add('client_warmup_steps')
    if not optimizers.entry_of('client', name).chooses_step_size:
      unused.add('record_step_sizes')
  for argument in parameters.parameters_of(common.Common):
    if argument not in unused:
      yield 'common', common.Common, argument, argument
  for argument in own:
    yield 'own', method.options, argument, argument


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
  """Checks the arguments of `algorithms.build` and fills in defaults.

  Example:

    >>> from tff_adaptive import algorithms
    >>> plan = algorithms.resolve('fedadam', server_learning_rate=0.003)
    >>> plan.optimizer
    {'client': 'sgd', 'server': 'adam'}
    >>> plan.values['server_learning_rate'], plan.values['server_adaptivity']
    (0.003, 0.001)

  Raises:
    ParameterError: If `algorithms.build` would raise it.
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
      values[public] = _weighting_word(given[public])
    elif slot.parameter.required:
      raise parameters.ParameterError(
        public, 'The algorithm {method} needs {}.', method=name
      )
    else:
      values[public] = slot.parameter.default
  for piece in dict.fromkeys(slot.piece for slot in slots.values()):
    built = plan.build(piece)
    values |= {
      public: getattr(built, argument)
      for argument, public in plan.public(piece).items()
    }
  if method.has_clients:
    values |= mechanism.check(plan, 'client_weighting' in given)
    plan._built.pop('common')  # The weighting may have changed.
  for side in optimizers.SIDES:
    if plan.schedule(side) and not isinstance(optimizer[side], str):
      raise parameters.ParameterError(
        f'{side}_lr_schedule',
        '{} needs an optimizer of the same side, given by name.',
      )
  method.options.check_all(values)
  return plan


def _stray(plan: Plan, name: str, value: Any) -> parameters.ParameterError:
  """Builds the error about a hyperparameter that the method does not use."""
  who, choice, users = _users(plan, name)
  # In braces, so that the caller's own names are shown.
  hint = parameters.suggestion(name, {f'{{{slot}}}' for slot in plan.slots})
  if users:
    others = f' (or {", ".join(users[1:4])})' if users[1:] else ''
    hint = f', but {{{choice}}}={users[0]} does{others}'
  return parameters.UnusedError(
    name,
    f'{{}}={{given}} would be ignored: the {who} does not use it{hint}.',
    given=value,
  )


def _users(plan: Plan, name: str) -> tuple[str, str, list[str]]:
  """Says who does not use a hyperparameter, and which choice of what would."""
  method = plan.method
  for side in plan.optimizer if method.has_clients else ():
    users = [
      other
      for other in sorted(
        method.accepted(side), key=lambda other: other != getattr(method, side)
      )
      if name in slots_of(method, {**plan.optimizer, side: other})
    ]
    if users:
      who = f'{side} optimizer {plan.optimizer[side]}'
      return who, f'{side}_optimizer', users
  users = [
    other.name
    for other in methods.table().values()
    if method.has_clients and name in slots_of(other, optimizers_of(other))
  ]
  return f'algorithm {method.name}', 'algorithm', users


def _weighting_word(value: Any) -> Any:
  """Translates tff.learning's `ClientWeighting` to this package's names."""
  words = {'NUM_EXAMPLES': 'examples', 'UNIFORM': 'uniform'}
  if type(value).__name__ == 'ClientWeighting':
    return words[value.name]
  return value
