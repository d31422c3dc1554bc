"""What --algorithm names: the federated methods, and centralized training.

As `algorithms` has them, with one name more. Nothing here imports TensorFlow.
"""

from collections.abc import Mapping
from typing import Any
from typing import Optional

from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import registry

CENTRALIZED = 'centralized'
# The only optimizer of a centralized run takes the server's flags, so that one
# set of names serves both; there are no clients that would have another.
_NO_CLIENT = 'none'
_CENTRAL_SERVER = 'sgd'
_DECIDED = ('seed', 'dp_clients_per_round')


def names() -> list[str]:
  """The names that --algorithm accepts."""
  return [*algorithms.names(), CENTRALIZED]


def summary(name: str) -> str:
  """One line that says what a method is."""
  if name == CENTRALIZED:
    return (
      'No federation: --server_optimizer trains on the pooled data of all '
      'clients, as many examples a round as a cohort has on average.'
    )
  return algorithms.summary(name)


def own_optimizer(name: str, side: str) -> str:
  """The optimizer that a method has on a side unless told otherwise."""
  if name == CENTRALIZED:
    return _NO_CLIENT if side == 'client' else _CENTRAL_SERVER
  return getattr(registry.METHODS[name], side)


def parameters_of(
  name: str,
  client_optimizer: Optional[str] = None,
  server_optimizer: Optional[str] = None,
) -> Mapping[str, parameters.Parameter]:
  """As `algorithms.parameters_of`."""
  if name != CENTRALIZED:
    return algorithms.parameters_of(name, client_optimizer, server_optimizer)
  if client_optimizer not in (None, _NO_CLIENT):
    raise parameters.ParameterError(
      f'The algorithm {CENTRALIZED} has no clients: `client_optimizer` cannot '
      f'be {client_optimizer!r}; `server_optimizer` is what trains.'
    )
  server = server_optimizer or _CENTRAL_SERVER
  # What the experiment decides for every method.
  common = algorithms.parameters_of('fedavg')
  result = {k: common[k] for k in _DECIDED if k in common}
  for argument, parameter in optimizers.parameters_of('server', server).items():
    public = optimizers.public_name('server', argument)
    # A step of one example's gradient is not a step of a whole round: the
    # defaults of the client's rule fit, not the server's.
    if server == _CENTRAL_SERVER and argument == 'learning_rate':
      parameter = optimizers.parameters_of('client', 'sgd')[argument]
    result[public] = parameters.Parameter(
      public, parameter.annotation, parameter.default, parameter.help
    )
  return result


def check(name: str, **hyperparameters: Any) -> None:
  """As `algorithms.check`."""
  if name != CENTRALIZED:
    algorithms.check(name, **hyperparameters)
    return
  accepted = parameters_of(
    name,
    hyperparameters.pop('client_optimizer', None),
    hyperparameters.pop('server_optimizer', None),
  )
  for word, value in hyperparameters.items():
    if word not in accepted:
      raise parameters.ParameterError(
        f'The algorithm {name} has no use for `{word}`; it accepts '
        f'{", ".join(sorted(accepted))}.'
      )
    accepted[word].check(value)


def describe(name: str, **hyperparameters: Any) -> str:
  """As `algorithms.describe`."""
  if name != CENTRALIZED:
    return algorithms.describe(name, **hyperparameters)
  server = hyperparameters.pop('server_optimizer', _CENTRAL_SERVER)
  hyperparameters.pop('client_optimizer', None)
  values = ', '.join(
    f'{k} = {v}' for k, v in hyperparameters.items() if v is not None
  )
  return (
    f'algorithm {CENTRALIZED}: no federation\n'
    'all examples of all clients are pooled, shuffled anew for every pass, and '
    'cut into batches\n'
    f'optimizer {server}, one step a batch, its state kept from round to '
    f'round:\n  with {values}'
  )


def whose_data(name: str, clients_per_round: int, population: int) -> str:
  """Whose data a round of a method is trained on, for people."""
  cohort = f'{clients_per_round} of {population:,} clients'
  if name == CENTRALIZED:
    return f'as many pooled examples a round as {cohort} have on average'
  return f'{cohort} a round'
