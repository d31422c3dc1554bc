"""Update rules, for clients and servers alike, by name.

Each rule is a file of its own, in which a frozen dataclass of hyperparameters
registers itself under its name. Rules that look at more than the gradient (the
loss, the gradient at another point) derive from `protocol.LocalOptimizer`.

Importing this module imports no TensorFlow; `client` and `server` do.
"""

from collections.abc import Mapping
from typing import Any
from typing import TYPE_CHECKING

from tff_adaptive import parameters
from tff_adaptive.optimizers.registry import (
  client_optimizer as client_optimizer,
)
from tff_adaptive.optimizers.registry import Entry
from tff_adaptive.optimizers.registry import (
  server_optimizer as server_optimizer,
)
from tff_adaptive.optimizers.registry import SIDES as SIDES
from tff_adaptive.optimizers.registry import TABLES

if TYPE_CHECKING:
  import tensorflow_federated as tff

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
    'nesterov': 'client_nesterov',
    'clip_upper': 'client_clip_upper',
    'clip_lower': 'client_clip_lower',
  },
  'server': {
    'learning_rate': 'server_learning_rate',
    'epsilon': 'server_adaptivity',
    'clip_upper': 'server_clip_upper',
    'clip_lower': 'server_clip_lower',
  },
}


def names(side: str) -> list[str]:
  """Lists the optimizers of a side that users may choose."""
  return sorted(n for n, e in TABLES[side].items() if not e.of_method)


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
  if not isinstance(name, str) or name not in TABLES[side]:
    raise parameters.ParameterError(
      f'{side}_optimizer',
      'The {side} optimizer must be one of {known}, got {name!r}{hint}.',
      hint=parameters.suggestion(name, names(side)),
      side=side,
      known=', '.join(names(side)),
      name=name,
    )
  return TABLES[side][name]


def public_name(side: str, parameter: str, optimizer: str = '') -> str:
  """Returns the name that `algorithms.build` has for a builder's parameter."""
  if optimizer and parameter in TABLES[side][optimizer].shared:
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
  return parameters.parameters_of(entry_of(side, name).description)


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
  description = entry_of(side, name).description
  accepted = parameters.parameters_of(description)
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
  return description(**arguments).build()
