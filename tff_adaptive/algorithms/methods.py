"""The table of methods, to which each method's file adds its own.

A method is a client optimizer, a server optimizer, hyperparameters of its own
and, where it has more to it, an objective or an exchange of statistics. All of
that is one class in one file; this module imports no TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import ClassVar
from typing import Optional
from typing import TYPE_CHECKING
from typing import TypeVar
from typing import Union

from tff_adaptive import extensions
from tff_adaptive import optimizers
from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff

  from tff_adaptive.algorithms import additions

# In place of names: the optimizers whose rows say that they are adaptive, or
# that they make no method of their own.
ADAPTIVE = 'adaptive'
BUILDING_BLOCKS = 'building blocks'
# Client optimizers that look at nothing but gradients.
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
# Of methods whose server steps with what they make of the update.
OWN_STEP: Mapping[str, Any] = dict(
  fixes=('server',), hides=('server_learning_rate', 'momentum', 'nesterov')
)
# The folders of methods, in the order of lists.
FAMILIES = {
  'adaptive_servers': 'Adaptive servers',
  'client_drift': 'Against client drift',
  'own_step_sizes': 'Clients with step sizes of their own',
  'adaptive_clients': 'Adaptive clients',
  'personal': 'Clients with layers of their own',
  '': 'Others',
}


class Options(parameters.Described):
  """A method's own hyperparameters, and what they make of its optimizers.

  The first paragraph of a subclass's docstring is the method's summary. A
  hyperparameter that every method has, such as `proximal_strength`, is the
  method's own if it declares it.

  Attributes:
    in_state: Names of its numbers that are part of the process's state and
      change no graph: runs that differ in nothing else share one.
  """

  in_state: ClassVar[frozenset[str]] = frozenset()

  def additions(
    self,
    client_optimizer: tff.learning.optimizers.Optimizer,
    server_optimizer: tff.learning.optimizers.Optimizer,
  ) -> additions.Additions:
    """Builds what the method adds to its optimizers; nothing by default.

    Args:
      client_optimizer: The clients' rule.
      server_optimizer: The server's.

    Raises:
      ParameterError: If the method cannot be built with one of these.
    """
    del client_optimizer, server_optimizer
    return {}

  @classmethod
  def check_all(cls, values: Mapping[str, Any]) -> None:
    """Checks the method's hyperparameters against those of other pieces.

    Args:
      values: All hyperparameters by their public names.

    Raises:
      ParameterError: If they do not fit each other.
    """


@dataclasses.dataclass(frozen=True)
class Costs:
  """What a client receives, sends, keeps and holds, beside model and update.

  Attributes:
    down, up, keeps: In words, for tables; empty for nothing.
    models_down, models_up: Everything that is received and sent, in units of
      the model's size.
    optimizer, context, kept: What is held from step to step by the optimizer
      and beside it, and kept between rounds, likewise.
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
    """A client's memory in words, in units of the model's size d."""
    total = 1 + self.optimizer + self.context + self.kept
    return self.holds or f'{total:g} d'


@dataclasses.dataclass(frozen=True)
class Method:
  """One published method.

  Attributes:
    name: The name that users type.
    options: The class of its own hyperparameters.
    printed: The name that papers print; `name` unless given.
    client: Client optimizer, a name that `optimizers` knows.
    server: Server optimizer, likewise.
    fixes: The sides ('client', 'server') whose optimizer makes the method what
      it is and cannot be replaced, but by one that it `accepts`.
    defaults: Defaults of hyperparameters that are not its own, by their public
      names; those of an optimizer hold for the method's own optimizer.
    hides: Hyperparameters of the optimizers that the method has no use for; a
      learning rate takes its schedule with it.
    accepts: Per side, the optimizers that may replace the method's own, by
      name, as `ADAPTIVE` or as `BUILDING_BLOCKS`; all unless given, and none of
      a side that the method fixes.
    unnoised: What its clients send beside their update, to which differential
      privacy adds no noise; such a method is refused under it.
    one_version: Whether its clients must all train from one model, or a
      function of its options that tells: asynchronous training refuses it.
    has_clients: Whether it is federated. One that is not has no client
      optimizer, and its server optimizer trains on pooled data.
    client_words, server_words: What the two do, for tables.
    costs: What it costs a client, with the method's own optimizers.
    look: Its place among the styles of figures; no two methods share one.
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

  @property
  def summary(self) -> str:
    """One sentence or two for lists and help."""
    paragraph = (self.options.__doc__ or '').partition('\n\n')[0]
    return ' '.join(paragraph.split())

  @property
  def family(self) -> str:
    """The name of the family that the method belongs to, for people."""
    return FAMILIES[self._folder]

  @property
  def _folder(self) -> str:
    package, *rest = self.options.__module__.removeprefix(_PREFIX).split('.')
    return package if rest and package in FAMILIES else ''

  @property
  def order(self) -> tuple[int, int]:
    """The method's place in lists: by family, then in order of their looks."""
    look = len(_TABLE) if self.look is None else self.look
    return (list(FAMILIES).index(self._folder), look)

  def accepted(self, side: str) -> list[str]:
    """Lists the optimizers that may take the place of the method's own."""
    names = optimizers.names(side)
    allowed = self.accepts.get(side, () if side in self.fixes else names)
    rows = {name: optimizers.entry_of(side, name) for name in names}
    if allowed == ADAPTIVE:
      return [name for name, row in rows.items() if row.adaptive]
    if allowed == BUILDING_BLOCKS:
      return [name for name, row in rows.items() if not row.makes_method]
    return list(allowed)

  def is_server_method(self, server: str) -> bool:
    """Tells whether the method is nothing but a server optimizer."""
    fixed = self.server == server and self.fixes == ('server',)
    return fixed and self.options.additions is Options.additions

  def needs_one_version(self, options: Options) -> bool:
    """Tells whether clients must all train from one model.

    Args:
      options: The method's own hyperparameters.
    """
    if callable(self.one_version):
      return self.one_version(options)
    return self.one_version

  def whose_data(self, clients_per_round: int, population: int) -> str:
    """Describes the data of a round in words."""
    cohort = f'{clients_per_round} of {population:,} clients'
    if self.has_clients:
      return f'{cohort} a round'
    return f'as many pooled examples a round as {cohort} have on average'


_PREFIX = f'{__name__.rpartition(".")[0]}.'
_TABLE: extensions.Table[Method] = extensions.Table(
  _PREFIX + folder for folder in FAMILIES if folder
)
_Class = TypeVar('_Class', bound=type[Options])


def method(name: str, **row: Any) -> Callable[[_Class], _Class]:
  """Registers the class below, of `Options`, as a method.

  Args:
    name: The name that users choose it by.
    **row: Further attributes of `Method`.

  Raises:
    ValueError: If the name is taken.
  """

  def add(options: _Class) -> _Class:
    _TABLE.add(name, Method(name, options, **row))
    return options

  return add


def table() -> dict[str, Method]:
  """Returns every method by name, family by family, those without clients last.

  A server optimizer that no method is made of has one of its own, `fed` and the
  optimizer's name, unless it is a building block.
  """
  rows = dict(_TABLE)
  for server in optimizers.server_names():
    makes_one = optimizers.entry_of('server', server).makes_method
    if makes_one and not any(
      row.is_server_method(server) for row in rows.values()
    ):
      options = type(
        f'Fed{server}', (Options,), {'__doc__': f'{server} on the server.'}
      )
      name = f'fed{server}'
      rows[name] = Method(name, options, server=server, fixes=('server',))
  return dict(
    sorted(rows.items(), key=lambda r: (not r[1].has_clients, r[1].order))
  )


def find(name: str) -> Method:
  """Looks a method up.

  Raises:
    ParameterError: If there is none of that name.
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
  """Tells whether a method is federated; one that is not known here is."""
  method = table().get(name)
  return method is None or method.has_clients


def of_server(server: str, asked: Iterable[str]) -> Method:
  """Finds the method that a server optimizer makes.

  Args:
    server: The server optimizer; a building block is the server of `fedavg`.
    asked: Public names of hyperparameters that it should have a use for.
  """
  if server in optimizers.server_names():
    if not optimizers.entry_of('server', server).makes_method:
      return find('fedavg')
  made = [m for m in table().values() if m.is_server_method(server)]
  return next((m for m in made if not {*m.hides} & {*asked}), made[0])
