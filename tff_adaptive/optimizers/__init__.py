"""Update rules, for clients and servers alike, by name.

Each rule is a `tff.learning.optimizers.Optimizer` in a file of its own. Rules
that look at more than the gradient (the loss, the gradient at another point)
extend that protocol as `protocol.LocalOptimizer` says.

Importing this module imports no TensorFlow; `client` and `server` do.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional
from typing import TYPE_CHECKING

from tff_adaptive import builders
from tff_adaptive import extensions
from tff_adaptive import parameters

if TYPE_CHECKING:
  import tensorflow_federated as tff

SIDES = ('client', 'server')


@dataclasses.dataclass(frozen=True)
class Entry:
  """A rule's row: its builder, and what a plan must know without building it.

  Attributes:
    builder: The function that builds it, 'package.module:function'.
    adaptive: Whether it divides steps by a preconditioner that a client can
      start from, as methods of joint adaptivity ask.
    chooses_step_size: Whether the rule has a step size of its own to measure.
    check: A function that imports no TensorFlow and raises `ParameterError` for
      hyperparameters that do not fit each other, its arguments; likewise.
    shared: Hyperparameters of a client's rule that belong to statistics which
      the server keeps too, and are not named as the client's.
    of_method: Whether methods name it, but users do not.
  """

  builder: str
  adaptive: bool = False
  chooses_step_size: bool = False
  check: Optional[str] = None
  shared: frozenset[str] = frozenset()
  of_method: bool = False


def _entry(place: str, **more: Any) -> Entry:
  return Entry(f'{__name__}.{place}', **more)


_DELAY = f'{__name__}.combinations:delay_epochs'
_CLIENT = {
  'adagrad': _entry(
    'client_adagrad:build_client_adagrad', adaptive=True, check=_DELAY
  ),
  'adam': _entry('client_adam:build_client_adam', adaptive=True, check=_DELAY),
  'delta_sgd': _entry('delta_sgd:build_delta_sgd', chooses_step_size=True),
  'dog': _entry('dog:build_dog', chooses_step_size=True),
  'polyak': _entry(
    'polyak:build_polyak',
    chooses_step_size=True,
    check=f'{__name__}.combinations:check_bound',
  ),
  'prodigy': _entry('prodigy:build_prodigy', chooses_step_size=True),
  'schedule_free_sgd': _entry('schedule_free:build_schedule_free_sgd'),
  'sgd': _entry('sgd:build_sgd'),
  'sm3_adagrad': _entry('sm3:build_sm3_adagrad', adaptive=True, check=_DELAY),
  'sm3_adam': _entry('sm3:build_sm3_adam', adaptive=True, check=_DELAY),
  # Clients that only make sense under the method that they belong to.
  'adaalter': _entry('adaalter:build_adaalter', of_method=True),
  'adamw_global': _entry('adamw:build_adamw_global', of_method=True),
  'amsgrad': _entry(
    'amsgrad:build_local_amsgrad',
    shared=frozenset({'beta_1', 'beta_2'}),
    of_method=True,
  ),
  'blended': _entry(
    'blended:build_blended', check=f'{__name__}.mixes:read', of_method=True
  ),
  'muon_global': _entry('muon:build_muon_global', of_method=True),
  'polyak_decreasing': _entry(
    'polyak_decreasing:build_polyak_decreasing',
    chooses_step_size=True,
    of_method=True,
  ),
  'polyak_global': _entry(
    'polyak_global:build_polyak_global',
    chooses_step_size=True,
    of_method=True,
  ),
}

_SERVER = {
  'adagrad': _entry('adagrad:build_adagrad', adaptive=True),
  'adam': _entry('adam:build_adam', adaptive=True),
  'ams': _entry('ams:build_ams', adaptive=True),
  'sgd': _entry('sgd:build_server_sgd'),
  'yogi': _entry('yogi:build_yogi', adaptive=True),
}

_TABLES = {
  'client': extensions.Table(_CLIENT),
  'server': extensions.Table(_SERVER),
}

# A hyperparameter of one side only, or of the server, keeps its own name in
# `algorithms.build`; what both sides have is told apart by these.
_PUBLIC = {
  'client': {
    'learning_rate': 'client_learning_rate',
    'epsilon': 'client_adaptivity',
    'beta_1': 'client_beta_1',
    'beta_2': 'client_beta_2',
    'initial_accumulator': 'client_initial_accumulator',
    'momentum': 'client_momentum',
  },
  'server': {
    'learning_rate': 'server_learning_rate',
    'epsilon': 'server_adaptivity',
  },
}


def register(side: str, name: str, builder: str, **more: Any) -> None:
  """Adds a rule from outside of the package.

  Args:
    side: 'client' or 'server'.
    name: What users call it.
    builder: Its builder, 'package.module:function'. The module is imported when
      the rule is built, not before; its hyperparameters are read off the
      function's signature, as `builders.read` says.
    **more: Further attributes of `Entry`.

  Raises:
    ValueError: If the name is taken.
  """
  _TABLES[side].add(name, Entry(builder, **more))


def names(side: str) -> list[str]:
  """Lists the optimizers of a side that users may choose."""
  return sorted(n for n, e in _TABLES[side].items() if not e.of_method)


def client_names() -> list[str]:
  """Lists the client optimizers that go with any server."""
  return names('client')


def server_names() -> list[str]:
  """Lists the server optimizers."""
  return names('server')


def entry_of(side: str, name: str) -> Entry:
  """Returns the row of an optimizer, also of a method's own.

  Raises:
    ParameterError: If there is no such optimizer.
  """
  if not isinstance(name, str) or name not in _TABLES[side]:
    raise parameters.ParameterError(
      f'{side}_optimizer',
      'The {side} optimizer must be one of {known}, got {name!r}{hint}.',
      hint=parameters.suggestion(name, names(side)),
      side=side,
      known=', '.join(names(side)),
      name=name,
    )
  return _TABLES[side][name]


def public_name(side: str, parameter: str, optimizer: str = '') -> str:
  """Returns the name that `algorithms.build` has for a builder's parameter."""
  if optimizer and parameter in _TABLES[side][optimizer].shared:
    return parameter
  return _PUBLIC[side].get(parameter, parameter)


def parameters_of(side: str, name: str) -> Mapping[str, parameters.Parameter]:
  """Returns the hyperparameters of an optimizer, by its builder's names.

  Args:
    side: 'client' or 'server'.
    name: An optimizer of that side.

  Raises:
    ParameterError: If there is no such optimizer.
  """
  return builders.parameters_of(entry_of(side, name).builder)


def client(
  name: str, **hyperparameters: Any
) -> 'tff.learning.optimizers.Optimizer':
  """Builds a client optimizer.

  Args:
    name: One of `client_names()`.
    **hyperparameters: As `parameters_of('client', name)` lists them, or by the
      names that `algorithms.build` uses (`client_learning_rate`, ...).

  Returns:
    A `tff.learning.optimizers.Optimizer`.

  Raises:
    ParameterError: If the name, or a hyperparameter or its value, is not
      accepted.
  """
  return _build('client', name, hyperparameters)


def server(
  name: str, **hyperparameters: Any
) -> 'tff.learning.optimizers.Optimizer':
  """Builds a server optimizer; see `client`."""
  return _build('server', name, hyperparameters)


def _build(
  side: str, name: str, given: Mapping[str, Any]
) -> 'tff.learning.optimizers.Optimizer':
  builder = entry_of(side, name).builder
  accepted = builders.parameters_of(builder)
  spelled = {public_name(side, p, name): p for p in accepted} | {
    p: p for p in accepted
  }
  arguments = {}
  for word, value in given.items():
    if word not in spelled:
      raise parameters.ParameterError(
        word,
        'The {side} optimizer {name} has no hyperparameter {word!r}{hint}; it '
        'accepts {accepted}.',
        hint=parameters.suggestion(word, accepted),
        side=side,
        name=name,
        word=word,
        accepted=', '.join(accepted),
      )
    if spelled[word] in arguments:
      raise parameters.ParameterError(
        word,
        'The {side} optimizer {name} was given {word} twice.',
        side=side,
        name=name,
        word=spelled[word],
      )
    arguments[spelled[word]] = value
  return builders.load(builder)(**arguments)
