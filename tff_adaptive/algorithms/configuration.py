"""Methods with checked hyperparameters, resolved without TensorFlow."""

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
  """The place of a hyperparameter among the components of a process.

  Attributes:
    components: Those that take it: 'client' or 'server' (the optimizers, both
      if they have it under one name), 'client_schedule', 'server_schedule',
      'aggregation', 'common' or 'own' (the method's options).
    description: The class of the first of them.
    argument: The argument's name in these.
    parameter: The parameter under its public name, with the method's default.
  """

  components: tuple[str, ...]
  description: Any
  argument: str
  parameter: parameters.Parameter


@dataclasses.dataclass(frozen=True)
class MethodConfiguration:
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

  def public(self, component: str) -> dict[str, str]:
    """Returns the public names of a component's arguments; see `Slot`."""
    return {
      s.argument: n for n, s in self.slots.items() if component in s.components
    }

  def arguments(self, component: str) -> dict[str, Any]:
    """Returns the arguments of a component with their values."""
    return {a: self.values[n] for a, n in self.public(component).items()}

  def build(self, component: str) -> Any:
    """Builds the description of a component from the configuration's values.

    Args:
      component: A component, as named in `Slot`.

    Returns:
      The `parameters.Described` object, or `None` if the configuration has no
      such component.

    Raises:
      ParameterError: If a value is not accepted; it names the public name.
    """
    if component not in self._built:
      own = (
        slot.description
        for slot in self.slots.values()
        if slot.components[0] == component
      )
      if (description := next(own, None)) is None:
        return None
      with parameters.renamed(self.public(component)):
        built = description(**self.arguments(component))
      self._built[component] = built
    return self._built[component]

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
    and whether they are 0, because zeros may leave components out.
    """
    inside = {
      name: ('number', value is None, not value)
      for name, value in self.values.items()
      if name in self._numbers
    }
    rules = [
      optimizers.entry_of(side, name) if isinstance(name, str) else name
      for side, name in self.optimizer.items()
      if side == 'server' or self.method.has_clients
    ]
    return (
      self.method.name,
      self.method.options,
      tuple(rules),
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
    if self.values.get('smoothness_batch') == 'successive':
      count -= 1  # The second one is the next step's.
    if chosen == 'blended':
      mixed = self.build('client').mix.optimizers
      own = (optimizers.entry_of('client', name).gradients for name in mixed)
      count += max(own) - 1
    return count

  @property
  def private(self) -> bool:
    """Whether updates are clipped for differential privacy."""
    return mechanism.is_asked(self.arguments('aggregation'))

  def with_values(self, **values: Any) -> 'MethodConfiguration':
    """Returns a copy of the configuration with some values replaced."""
    changed = {
      component
      for name in values
      if name in self.slots
      for component in self.slots[name].components
    }
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
  elif not isinstance(asked, str) and (
    isinstance(asked, type)
    or not any(hasattr(asked, name) for name in ('build', 'initialize'))
  ):
    problem = (
      "{} must be an optimizer's name, an instance of this package's "
      'optimizers or of tff.learning.optimizers.Optimizer, got {asked!r}.'
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


class NameClash(parameters.ParameterError, LookupError):
  """Raised if two parts of a method have a hyperparameter of one name."""


def slots_of(
  method: methods.Method, optimizer: Mapping[str, Optimizer]
) -> dict[str, Slot]:
  """Returns the places of a method's hyperparameters, by public name.

  Args:
    method: A method.
    optimizer: Optimizers by side, as returned by `optimizers_of`.
  """
  slots: dict[str, Slot] = {}
  for component, description, argument, public in _offered(method, optimizer):
    if component != 'own' and public in method.hides:
      continue
    parameter = parameters.parameters_of(description)[argument]
    default = parameter.default
    if optimizer.get(component) in (None, getattr(method, component, None)):
      default = method.defaults.get(public, default)
    slot = Slot(
      (component,),
      description,
      argument,
      parameter.named(public, default=default),
    )
    if (there := slots.get(public)) is not None:
      both = *there.components, component
      if both != optimizers.SIDES or there.parameter != slot.parameter:
        raise NameClash(
          'algorithm',
          '{method} with {optimizer} has two hyperparameters {public!r}; one '
          'of the builders needs another name for its own.',
          method=method.name,
          optimizer=dict(optimizer),
          public=public,
        )
      # That of a class that both extend, such as clip_mode of BiClip.
      slot = dataclasses.replace(there, components=both)
    slots[public] = slot
  own = all(optimizer[s] == getattr(method, s) for s in optimizers.SIDES)
  if own and (strange := {*method.defaults} - {*slots}):
    raise parameters.ParameterError(
      'algorithm',
      'The method {method} is declared with a default of {strange!r}, a '
      'hyperparameter that it does not have.',
      method=method.name,
      strange=min(strange),
    )
  return slots


def _offered(
  method: methods.Method, optimizer: Mapping[str, Any]
) -> Iterator[tuple[str, Any, str, str]]:
  """Yields component, class, argument and public name of hyperparameters."""
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
) -> MethodConfiguration:
  """Checks the arguments of `algorithms.build` and fills in defaults.

  Example:

    >>> from tff_adaptive import algorithms
    >>> fedadam = algorithms.resolve('fedadam', server_learning_rate=0.003)
    >>> fedadam.optimizer
    {'client': 'sgd', 'server': 'adam'}
    >>> fedadam.values['server_learning_rate'], fedadam.values['beta_2']
    (0.003, 0.99)

  Raises:
    ParameterError: If `algorithms.build` would raise it.
  """
  method = methods.find(name)
  optimizer = optimizers_of(method, client_optimizer, server_optimizer)
  slots = slots_of(method, optimizer)
  values: dict[str, Any] = {}
  configuration = MethodConfiguration(
    method, optimizer, slots, values, model_aggregator
  )
  for public, value in given.items():
    if public not in slots:
      raise _stray(configuration, public, value)
  for public, slot in slots.items():
    if public in given:
      values[public] = _weighting_word(given[public])
    elif slot.parameter.required:
      raise parameters.ParameterError(
        public, 'The algorithm {method} needs {}.', method=name
      )
    else:
      values[public] = slot.parameter.default
  for component in dict.fromkeys(
    c for s in slots.values() for c in s.components
  ):
    built = configuration.build(component)
    values |= {
      public: getattr(built, argument)
      for argument, public in configuration.public(component).items()
    }
  if method.has_clients:
    values |= mechanism.check(configuration, 'client_weighting' in given)
    configuration._built.pop('common')  # The weighting may have changed.
  for side in optimizers.SIDES:
    if configuration.schedule(side) and not isinstance(optimizer[side], str):
      raise parameters.ParameterError(
        f'{side}_lr_schedule',
        '{} needs an optimizer of the same side, given by name.',
      )
  method.options.check_all(values)
  return configuration


def _stray(
  configuration: MethodConfiguration, name: str, value: Any
) -> parameters.ParameterError:
  """Builds the error about a hyperparameter that the method does not use."""
  who, choice, users = _users(configuration, name)
  # In braces, so that the caller's own names are shown.
  hint = parameters.suggestion(
    name, {f'{{{slot}}}' for slot in configuration.slots}
  )
  if users:
    others = f' (or {", ".join(users[1:4])})' if users[1:] else ''
    hint = f', but {{{choice}}}={users[0]} does{others}'
  return parameters.UnusedError(
    name,
    f'{{}}={{given}} would be ignored: the {who} does not use it{hint}.',
    given=value,
  )


def _users(
  configuration: MethodConfiguration, name: str
) -> tuple[str, str, list[str]]:
  """Says who does not use a hyperparameter, and which choice of what would."""
  method = configuration.method
  for side in configuration.optimizer if method.has_clients else ():
    users = [
      other
      for other in sorted(
        method.accepted(side), key=lambda other: other != getattr(method, side)
      )
      if _uses(method, {**configuration.optimizer, side: other}, name)
    ]
    if users:
      who = f'{side} optimizer {configuration.optimizer[side]}'
      return who, f'{side}_optimizer', users
  users = [
    other.name
    for other in methods.table().values()
    if method.has_clients and _uses(other, optimizers_of(other), name)
  ]
  return f'algorithm {method.name}', 'algorithm', users


def _uses(
  method: methods.Method, optimizer: Mapping[str, Optimizer], name: str
) -> bool:
  try:
    return name in slots_of(method, optimizer)
  except NameClash:
    return False


def _weighting_word(value: Any) -> Any:
  """Translates tff.learning's `ClientWeighting` to this package's names."""
  words = {'NUM_EXAMPLES': 'examples', 'UNIFORM': 'uniform'}
  if type(value).__name__ == 'ClientWeighting':
    return words[value.name]
  return value
