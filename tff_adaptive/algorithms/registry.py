"""The methods by name: which pieces each is made of.

A method is a row: a client optimizer, a server optimizer, and, where it has
more to it, a module of this folder whose `pieces` makes the rest (an objective,
an exchange of statistics). Importing this module imports no TensorFlow.
"""

import dataclasses
from typing import Any, Mapping, Optional


@dataclasses.dataclass(frozen=True)
class Method:
  """One published method.

  Attributes:
    name: As users type it.
    summary: One line for lists and help.
    client: Client optimizer, a name that `optimizers` knows.
    server: Server optimizer, likewise.
    fixes: The sides ('client', 'server') whose optimizer makes the method what
      it is and cannot be replaced.
    defaults: Hyperparameters whose default is not the optimizer's, by their
      public names.
    hides: Hyperparameters of the optimizers that the method does not offer.
    module: The module of this folder with the method's own `pieces`, if any.
  """

  name: str
  summary: str
  client: str = 'sgd'
  server: str = 'sgd'
  fixes: frozenset[str] = frozenset()
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  hides: frozenset[str] = frozenset()
  module: Optional[str] = None


def _server_method(name: str, summary: str, server: str, **more: Any) -> Method:
  return Method(
      name, summary, server=server, fixes=frozenset({'server'}), **more
  )


def _client_method(name: str, summary: str, client: str, **more: Any) -> Method:
  return Method(
      name, summary, client=client, fixes=frozenset({'client'}), **more
  )


METHODS: Mapping[str, Method] = {
    method.name: method
    for method in (
        _server_method(
            'fedavg',
            'Federated averaging: SGD clients, their mean applied as it is.',
            'sgd',
            hides=frozenset({'momentum'}),
        ),
        _server_method(
            'fedavgm',
            'Federated averaging with momentum 0.9 on the server.',
            'sgd',
            defaults={'momentum': 0.9},
        ),
        _server_method(
            'fedadagrad', 'Adagrad on the server (Reddi et al.).', 'adagrad'
        ),
        _server_method('fedadam', 'Adam on the server (Reddi et al.).', 'adam'),
        _server_method('fedyogi', 'Yogi on the server (Reddi et al.).', 'yogi'),
        _server_method(
            'fedams',
            'AMSGrad with max stabilisation on the server (Wang et al.).',
            'ams',
        ),
        Method(
            'fedprox',
            'Clients held near the received model by a proximal term (Li et '
            'al.).',
            defaults={'proximal_strength': 0.01},
        ),
        _client_method(
            'delta_sgd',
            'Clients that tune their own step size (Kim et al.).',
            'delta_sgd',
        ),
        _client_method(
            'fedsps',
            'Clients with stochastic Polyak steps (Mukherjee et al.).',
            'polyak',
        ),
        _client_method(
            'feddecsps',
            'FedSPS with steps that shrink as training goes on.',
            'polyak_decreasing',
            module='feddecsps',
        ),
        _client_method(
            'fedsps_normalized',
            'FedSPS with clients weighted by the inverse of their steps.',
            'polyak',
            module='fedsps_normalized',
        ),
        _client_method(
            'fedsps_global',
            'FedSPS with one step size for all clients of a round.',
            'polyak_global',
            module='fedsps_global',
        ),
    )
}
