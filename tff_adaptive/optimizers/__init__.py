"""Update rules, for clients and servers alike, by name.

Each rule is a `tff.learning.optimizers.Optimizer` in a file of its own. Rules
that look at more than the gradient (the loss, the gradient at another point)
extend that protocol as `protocol.LocalOptimizer` says.

Importing this module imports no TensorFlow; `client` and `server` do.
"""

import dataclasses
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.optimizers import combinations

_FOLDER = pathlib.Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class _Entry:
  """Where a rule is.

  Attributes:
    module: Of this package.
    builder: Its function.
    chooses_step_size: Whether the rule has a step size of its own to measure.
  """

  module: str
  builder: str
  chooses_step_size: bool = False


_CLIENT = {
  'adagrad': _Entry('client_adagrad', 'build_client_adagrad'),
  'adam': _Entry('client_adam', 'build_client_adam'),
  'delta_sgd': _Entry('delta_sgd', 'build_delta_sgd', True),
  'polyak': _Entry('polyak', 'build_polyak', True),
  'sgd': _Entry('sgd', 'build_sgd'),
  'sm3_adagrad': _Entry('sm3', 'build_sm3_adagrad'),
  'sm3_adam': _Entry('sm3', 'build_sm3_adam'),
}

_SERVER = {
  'adagrad': _Entry('adagrad', 'build_adagrad'),
  'adam': _Entry('adam', 'build_adam'),
  'ams': _Entry('ams', 'build_ams'),
  'sgd': _Entry('sgd', 'build_server_sgd'),
  'yogi': _Entry('yogi', 'build_yogi'),
}

# Clients that only make sense under the method that they belong to: methods
# name them, users do not.
_METHOD_CLIENT = {
  'adaalter': _Entry('adaalter', 'build_adaalter'),
  'amsgrad': _Entry('amsgrad', 'build_local_amsgrad'),
  'blended': _Entry('blended', 'build_blended'),
  'polyak_decreasing': _Entry(
    'polyak_decreasing', 'build_polyak_decreasing', True
  ),
  'polyak_global': _Entry('polyak_global', 'build_polyak_global', True),
}

_SIDES = {'client': _CLIENT | _METHOD_CLIENT, 'server': _SERVER}

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

# Local-AMSGrad's decays belong to statistics that the server keeps too.
_SHARED = {('amsgrad', 'beta_1'), ('amsgrad', 'beta_2')}


def _names(side: str) -> list[str]:
  return sorted(_CLIENT if side == 'client' else _SERVER)


def client_names() -> list[str]:
  """Names of the client optimizers that go with any server."""
  return _names('client')


def server_names() -> list[str]:
  """Names of the server optimizers."""
  return _names('server')


def public_name(side: str, parameter: str, optimizer: str = '') -> str:
  """What `algorithms.build` calls a builder's parameter."""
  if (optimizer, parameter) in _SHARED:
    return parameter
  return _PUBLIC[side].get(parameter, parameter)


def parameters_of(side: str, name: str) -> Mapping[str, parameters.Parameter]:
  """Hyperparameters of an optimizer, by the names that its builder uses.

  Args:
    side: 'client' or 'server'.
    name: An optimizer of that side.

  Raises:
    ParameterError: If there is no such optimizer.
  """
  entry = _entry(side, name)
  return parameters.read_signature(
    _FOLDER / f'{entry.module}.py', entry.builder
  )


def chooses_step_size(name: str) -> bool:
  """Whether a client optimizer has a step size of its own to measure.

  Args:
    name: A client optimizer, also one of a method's own.

  Raises:
    ParameterError: If there is no such optimizer.
  """
  return _entry('client', name).chooses_step_size


def check(side: str, name: str, arguments: Mapping[str, Any]) -> None:
  """Checks what no argument's own range says; imports no TensorFlow.

  Args:
    side: 'client' or 'server'.
    name: An optimizer of that side.
    arguments: All of its hyperparameters, each checked for itself.

  Raises:
    ParameterError: If they are not accepted.
  """
  if (side, name) == ('client', 'blended'):
    from tff_adaptive.optimizers import mixes  # pylint: disable=g-import-not-at-top

    mixes.read(**arguments)
  if 'delay_unit' in arguments:
    combinations.delay_epochs(
      arguments['delay_unit'], arguments['local_epochs']
    )
  if 'smoothing' in arguments:
    combinations.check_bound(arguments['smoothing'], arguments['gamma_b'])


def client(name: str, **hyperparameters: Any) -> Any:
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


def server(name: str, **hyperparameters: Any) -> Any:
  """Builds a server optimizer; see `client`."""
  return _build('server', name, hyperparameters)


def _entry(side: str, name: str) -> _Entry:
  table = _SIDES[side]
  if not isinstance(name, str) or name not in table:
    raise parameters.ParameterError(
      f'The {side} optimizer must be one of {", ".join(_names(side))}, '
      f'got {name!r}.'
    )
  return table[name]


def _build(side: str, name: str, given: Mapping[str, Any]) -> Any:
  entry = _entry(side, name)
  accepted = parameters_of(side, name)
  spelled = {public_name(side, p, name): p for p in accepted} | {
    p: p for p in accepted
  }
  arguments = {}
  for word, value in given.items():
    if word not in spelled:
      raise parameters.ParameterError(
        f'The {side} optimizer {name} has no hyperparameter {word!r}; it '
        f'accepts {", ".join(accepted)}.'
      )
    if spelled[word] in arguments:
      raise parameters.ParameterError(
        f'The {side} optimizer {name} was given {spelled[word]} twice.'
      )
    arguments[spelled[word]] = value
  module = importlib.import_module(f'{__name__}.{entry.module}')
  return getattr(module, entry.builder)(**arguments)
