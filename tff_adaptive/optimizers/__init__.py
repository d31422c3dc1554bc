"""Client and server optimizers, built by name.

Each update rule has a file of its own and registers a frozen dataclass of
hyperparameters under its name. Rules that need more than the gradient (the
loss, or the gradient at another point) derive from `protocol.LocalOptimizer`.

TensorFlow is not imported with this module, but on the first call of `client`
or `server`.
"""

from collections.abc import Mapping
from typing import Any, TYPE_CHECKING

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

# `algorithms.build` takes the hyperparameters of both sides; these names
# distinguish those that both have. All others keep their own names.
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
  """Lists the client optimizers that combine with any server optimizer."""
  return names('client')


def server_names() -> list[str]:
  """Lists the server optimizers."""
  return names('server')


def entry_of(side: str, name: str) -> Entry:
  """Returns the registry entry of an optimizer.

  Optimizers that only a method may use are found too.

  Raises:
    ParameterError: If the name is not registered.
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
  """Returns a hyperparameter's name in `algorithms.build`."""
  if optimizer and parameter in TABLES[side][optimizer].shared:
    return parameter
  return _PUBLIC[side].get(parameter, parameter)


def parameters_of(side: str, name: str) -> Mapping[str, parameters.Parameter]:
  """Returns an optimizer's hyperparameters by name.

  Args:
    side: 'client' or 'server'.
    name: An optimizer of that side.

  Raises:
    ParameterError: If the name is not registered.
  """
  return parameters.parameters_of(entry_of(side, name).description)


def client(
  name: str, **hyperparameters: Any
) -> 'tff.learning.optimizers.Optimizer':
  """Builds a client optimizer.

  Example:

    >>> import tensorflow as tf
    >>> from tff_adaptive import optimizers
    >>> lion = optimizers.client('lion', learning_rate=0.5)
    >>> state = lion.initialize(tf.TensorSpec([2]))
    >>> weights, gradients = tf.constant([1.0, 2.0]), tf.constant([3.0, -4.0])
    >>> state, weights = lion.next(state, weights, gradients)
    >>> print(weights.numpy())
    [0.5 2.5]

  Args:
    name: One of `client_names()`.
    **hyperparameters: Hyperparameters listed by `parameters_of('client',
      name)`, under their own names or those of `algorithms.build`
      (`client_learning_rate`, ...). Each has the default listed there.

  Returns:
    A `tff.learning.optimizers.Optimizer`.

  Raises:
    ParameterError: If the optimizer, a hyperparameter or its value is not
      accepted.
  """
  return _build('client', name, hyperparameters)


def server(
  name: str, **hyperparameters: Any
) -> 'tff.learning.optimizers.Optimizer':
  """Builds a server optimizer.

  Example:

    >>> import tensorflow as tf
    >>> from tff_adaptive import optimizers
    >>> adam = optimizers.server('adam', learning_rate=0.1)
    >>> state = adam.initialize(tf.TensorSpec([2]))
    >>> print(state['v'].numpy())  # epsilon^2, as in the FedOpt paper
    [1.e-06 1.e-06]

  Args:
    name: One of `server_names()`.
    **hyperparameters: Hyperparameters listed by `parameters_of('server',
      name)`, under their own names or those of `algorithms.build`
      (`server_learning_rate`, ...).

  Returns:
    A `tff.learning.optimizers.Optimizer`. Its gradient is the negative mean
    client update.

  Raises:
    ParameterError: If the optimizer, a hyperparameter or its value is not
      accepted.
  """
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
