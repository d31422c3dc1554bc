"""The registry of methods.

A method consists of a client optimizer, a server optimizer, its own
hyperparameters and optionally an objective or an exchange of statistics. It is
declared by one class in one file. This module imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import (
  Any,
  ClassVar,
  NamedTuple,
  Optional,
  TypedDict,
  TypeVar,
  Union,
)

from tff_adaptive import extensions
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.lazy import tff

# Stand for the names of all optimizers registered as adaptive, or as building
# blocks.
ADAPTIVE = 'adaptive'
BUILDING_BLOCKS = 'building blocks'
# Client optimizers whose steps depend on gradients only.
GRADIENTS_ALONE = (
  'adagrad',
  'adam',
  'adamw',
  'biclip',
  'dog',
  'lion',
  'muon',
  'prodigy',
  'sgd',
  'sm3_adagrad',
  'sm3_adam',
)
JOINT = dict.fromkeys(optimizers.SIDES, ADAPTIVE)
# Shared by methods that compute the server's step themselves.
OWN_STEP: Mapping[str, Any] = dict(
  fixes=('server',), hides=('server_learning_rate', 'momentum', 'nesterov')
)
# The folders of methods, in the order of listings.
FAMILIES = {
  'adaptive_servers': 'Adaptive servers',
  'client_drift': 'Client drift correction',
  'own_step_sizes': 'Adaptive client step sizes',
  'adaptive_clients': 'Adaptive clients',
  'personal': 'Personalization',
  '': 'Others',
}


class Chosen(NamedTuple):
  """The optimizers that a method is built with.

  Attributes:
    client_optimizer, server_optimizer: `tff.learning.optimizers.Optimizer`s.
  """

  client_optimizer: Any
  server_optimizer: Any


class Options(parameters.Described):
  """A method's own hyperparameters, and the components that it adds.

  The first paragraph of a subclass's docstring is the method's summary. A
  subclass may redeclare a hyperparameter that every method has, such as
  `proximal_strength`, to give it a meaning of its own.

  Attributes:
    in_state: Names of the numbers that are stored in the process's state and do
      not change the graph; runs that differ only in these share one graph.
  """

  in_state: ClassVar[frozenset[str]] = frozenset()

  def additions(self, chosen: Chosen) -> Additions:
    """Builds the components that the method adds; none by default.

    Args:
      chosen: The optimizers of both sides.

    Raises:
      ParameterError: If the method cannot be built with one of these.
    """
    return {}

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    """Checks the method's hyperparameters against those of other components.

    Args:
      values: All hyperparameters by their public names.

    Raises:
      ParameterError: If they contradict each other.
    """


@dataclasses.dataclass(frozen=True)
class Costs:
  """Communication and memory of a client, beside the model and its update.

  Attributes:
    down, up, keeps: What a client receives, sends and keeps between rounds, in
      words for tables; empty for nothing.
    models_down, models_up: Total size received and sent, in units of the
      model's size.
    optimizer, context, kept: Size of the optimizer's state, of further values
      held during local steps, and of the state kept between rounds, in units of
      the model's size.
    gradients: Gradient evaluations per local step.
    holds: A client's memory in words, if it is not the sum of these.
  """

  down: str = ''
  up: str = ''
  keeps: str = ''
  models_down: float = 1
  models_up: float = 1
  optimizer: float = 0
  context: float = 0
  kept: float = 0
  gradients: int = 1
  holds: str = ''

  @property
  def memory(self) -> str:
    """A client's memory as text, in units of the model's size d."""
    total = 1 + self.optimizer + self.context + self.kept
    return self.holds or f'{total:g} d'


@dataclasses.dataclass(frozen=True)
class Method:
  """A published method.

  Attributes:
    name: The name that users type.
    options: The class of its own hyperparameters.
    printed: The name as papers print it; `name` if empty.
    client: Name of the client optimizer, one known to `optimizers`.
    server: Name of the server optimizer, one known to `optimizers`.
    fixes: The sides ('client', 'server') whose optimizer defines the method and
      can only be replaced by one listed in `accepts`.
    defaults: Defaults of hyperparameters that are not the method's own, by
      public name; those of an optimizer apply to the method's own optimizer
      only.
    hides: Hyperparameters of the optimizers that the method does not use.
      Hiding a learning rate hides its schedule.
    accepts: Per side, the optimizers that may replace the method's own: names,
      `ADAPTIVE` or `BUILDING_BLOCKS`. A side that is not listed accepts all, or
      none if the method fixes it.
    unnoised: What clients send beside their update, without the noise of
      differential privacy; a method that sets it is refused under differential
      privacy.
    one_version: Whether all clients of a round must train from the same model,
      or a function of the method's options that returns it. Such methods are
      refused in asynchronous training.
    has_clients: Whether the method is federated. One that is not has no client
      optimizer; its server optimizer trains on pooled data.
    client_words, server_words: Descriptions of the two sides, for tables.
    costs: Costs of a client, with the method's own optimizers.
    look: Index of the method's style in figures, unique among methods.
  """

  name: str
  options: type[Options] = Options
  printed: str = ''
  client: str = 'sgd'
  server: str = 'sgd'
  fixes: tuple[str, ...] = ()
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  hides: tuple[str, ...] = ()
  accepts: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  unnoised: str = ''
  one_version: Union[bool, Callable[[Any], bool]] = False
  has_clients: bool = True
  client_words: str = ''
  server_words: str = ''
  costs: Costs = Costs()
  look: Optional[int] = None

  def __post_init__(self) -> None:
    """Raises `TypeError` or `ValueError` for what would be ignored."""
    if not isinstance(self.options, type) or not issubclass(
      self.options, Options
    ):
      raise TypeError(
        f'The method {self.name} must derive from algorithms.Options, got '
        f'{self.options!r}.'
      )
    words = {w for w in self.accepts.values() if isinstance(w, str)}
    if isinstance(self.fixes, str) or isinstance(self.hides, str):
      problem = '`fixes` and `hides` are tuples of names'
    elif strange := {*self.fixes, *self.accepts} - {*optimizers.SIDES}:
      problem = f"{min(strange)!r} is no side, 'client' or 'server'"
    elif strange := words - {ADAPTIVE, BUILDING_BLOCKS}:
      problem = f'`accepts` takes lists of optimizers, got {min(strange)!r}'
    else:
      return
    raise ValueError(f'The method {self.name}: {problem}.')

  @property
  def summary(self) -> str:
    """The summary in listings and help, one or two sentences."""
    paragraph = (self.options.__doc__ or '').partition('\n\n')[0]
    return ' '.join(paragraph.split())

  @property
  def family(self) -> str:
    """The printed name of the method's family."""
    return FAMILIES[self._folder]

  @property
  def _folder(self) -> str:
    package, *rest = self.options.__module__.removeprefix(_PREFIX).split('.')
    return package if rest and package in FAMILIES else ''

  @property
  def order(self) -> tuple[int, int]:
    """Sort key of the method in listings: family, then index of its style."""
    look = len(_TABLE) if self.look is None else self.look
    return (list(FAMILIES).index(self._folder), look)

  def accepted(self, side: str) -> list[str]:
    """Lists the optimizers that may replace the method's own."""
    names = optimizers.names(side)
    allowed = self.accepts.get(side, () if side in self.fixes else names)
    rows = {name: optimizers.entry_of(side, name) for name in names}
    if allowed == ADAPTIVE:
      return [name for name, row in rows.items() if row.adaptive]
    if allowed == BUILDING_BLOCKS:
      return [name for name, row in rows.items() if not row.makes_method]
    return list(allowed)

  def is_server_method(self, server: str) -> bool:
    """Returns whether the method is defined by its server optimizer alone."""
    fixed = self.server == server and self.fixes == ('server',)
    return fixed and self.options.additions is Options.additions

  def needs_one_version(self, options: Options) -> bool:
    """Returns whether all clients of a round must train from the same model.

    Args:
      options: The method's own hyperparameters.
    """
    if callable(self.one_version):
      return self.one_version(options)
    return self.one_version

  def whose_data(self, clients_per_round: int, population: int) -> str:
    """Describes the data of a round as text."""
    cohort = f'{clients_per_round} of {population:,} clients'
    if self.has_clients:
      return f'{cohort} a round'
    return f'pooled examples, each round as many as {cohort} hold on average'


_PREFIX = f'{__name__.rpartition(".")[0]}.'
_TABLE: extensions.Table[Method] = extensions.Table(
  _PREFIX + folder for folder in FAMILIES if folder
)
_Class = TypeVar('_Class', bound=type[Options])


def method(name: str, **row: Any) -> Callable[[_Class], _Class]:
  """Registers the decorated `Options` class as a method.

  Args:
    name: The name that users choose it by.
    **row: Further attributes of `Method`.

  Raises:
    ValueError: If the name is already registered.
  """

  def add(options: _Class) -> _Class:
    _TABLE.add(name, Method(name, options, **row))
    return options

  return add


def table() -> dict[str, Method]:
  """Returns every method by name, sorted by family, centralized methods last.

  A server optimizer without a method gets one named `fed` plus the optimizer's
  name, unless it is a building block, or that of a method of this name.

  Raises:
    ParameterError: If a method names an optimizer that there is not, or a
      server optimizer would make a method of another's name.
  """
  rows = dict(_TABLE)
  for row in rows.values():
    for side in optimizers.SIDES if row.has_clients else ['server']:
      if (name := getattr(row, side)) not in optimizers.TABLES[side]:
        raise parameters.ParameterError(
          'algorithm',
          'The method {method} is declared with the {side} optimizer {name!r}, '
          'which there is not.',
          method=row.name,
          side=side,
          name=name,
        )
  for server in optimizers.server_names():
    makes_one = optimizers.entry_of('server', server).makes_method
    if makes_one and not any(
      row.is_server_method(server) for row in rows.values()
    ):
      options = type(
        f'Fed{server}', (Options,), {'__doc__': f'{server} on the server.'}
      )
      name = f'fed{server}'
      made = Method(name, options, server=server, fixes=('server',))
      if rows.setdefault(name, made).server != server:
        raise parameters.ParameterError(
          'algorithm',
          'The server optimizer {server} would make the method {name}, which '
          'there is already: register it by another name, or with '
          'makes_method=False.',
          server=server,
          name=name,
        )
  return dict(
    sorted(rows.items(), key=lambda r: (not r[1].has_clients, r[1].order))
  )


def find(name: str) -> Method:
  """Returns the method of a name.

  Raises:
    ParameterError: If the name is not registered.
  """
  known = table()
  if not isinstance(name, str) or name not in known:
    raise parameters.ParameterError(
      'algorithm',
      'The algorithm must be one of {known}, got {name!r}{hint}.',
      known=', '.join(known),
      name=name,
      hint=parameters.suggestion(name, known),
    )
  return known[name]


def has_clients(name: Any) -> bool:
  """Returns whether a method is federated; true for an unknown name."""
  method = table().get(name)
  return method is None or method.has_clients


def of_server(server: str, asked: Iterable[str]) -> Method:
  """Returns the method that a server optimizer defines.

  Args:
    server: The server optimizer; one that defines none is that of `fedavg`.
    asked: Public names of hyperparameters that the method should accept.
  """
  known = table()
  made = [m for m in known.values() if m.is_server_method(server)]
  block = server in optimizers.server_names() and not (
    optimizers.entry_of('server', server).makes_method
  )
  if block or not made:
    return known.get('' if block else f'fed{server}', known['fedavg'])
  return next((m for m in made if not {*m.hides} & {*asked}), made[0])


class Additions(TypedDict, total=False):
  """The components that a method adds to a process or replaces.

  Attributes:
    client_optimizer, server_optimizer: Replacements of the chosen optimizers.
    exchange: The statistics exchanged beside the model.
    objective: The terms added to the clients' loss.
  """

  client_optimizer: tff.learning.optimizers.Optimizer
  server_optimizer: tff.learning.optimizers.Optimizer
  exchange: processes.Exchange
  objective: processes.Objective
