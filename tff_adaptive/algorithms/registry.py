"""The methods by name: which pieces each is made of.

A method is a row: a client optimizer, a server optimizer, and, where it has
more to it, a module of this folder whose `pieces` makes the rest (an objective,
an exchange of statistics). Importing this module imports no TensorFlow.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any
from typing import Optional


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
    hides: Hyperparameters of the optimizers that the method has no use for.
    module: The module of this folder with the method's own pieces, if any.
    function: The function of that module that makes them.
    accepts: Per side, the optimizers that may replace the method's own; all
      unless given.
    unnoised: What its clients send beside their update, to which differential
      privacy adds no noise.
  """

  name: str
  summary: str
  client: str = 'sgd'
  server: str = 'sgd'
  fixes: frozenset[str] = frozenset()
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  hides: frozenset[str] = frozenset()
  module: Optional[str] = None
  function: str = 'pieces'
  accepts: Mapping[str, tuple[str, ...]] = dataclasses.field(
    default_factory=dict
  )
  unnoised: str = ''


def _server_method(name: str, summary: str, server: str, **more: Any) -> Method:
  return Method(
    name, summary, server=server, fixes=frozenset({'server'}), **more
  )


def _client_method(name: str, summary: str, client: str, **more: Any) -> Method:
  return Method(
    name, summary, client=client, fixes=frozenset({'client'}), **more
  )


_MIME_BASES = {'client': ('adagrad', 'adam', 'sgd')}
# The base optimizer's state is frozen in the round anyway.
_MIME_HIDES = frozenset({'delay', 'delay_unit', 'local_epochs'})
_JOINT = {
  'client': ('adagrad', 'adam', 'sm3_adagrad', 'sm3_adam'),
  'server': ('adagrad', 'adam', 'ams', 'yogi'),
}

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
      'Clients held near the received model by a proximal term (Li et al.).',
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
      unnoised="how many local steps they took (`count='round'` does without)",
    ),
    _client_method(
      'fedsps_normalized',
      'FedSPS with clients weighted by the inverse of their steps.',
      'polyak',
      module='fedsps_normalized',
      unnoised='weights that their steps decide',
    ),
    _client_method(
      'fedsps_global',
      'FedSPS with one step size for all clients of a round.',
      'polyak_global',
      module='fedsps_global',
      unnoised='their losses and step sizes',
    ),
    _client_method(
      'scaffold',
      'SGD clients corrected by control variates (Karimireddy et al.).',
      'sgd',
      hides=frozenset({'client_momentum'}),
      module='scaffold',
      unnoised='the change of their control variates',
    ),
    Method(
      'moon',
      "Clients held near the server's representations (Li et al.).",
      module='moon',
    ),
    Method(
      'local_adaalter',
      'AdaGrad clients whose accumulator is averaged (Xie et al.).',
      client='adaalter',
      fixes=frozenset({'client', 'server'}),
      module='local_adaalter',
      unnoised='their accumulators',
    ),
    Method(
      'local_amsgrad',
      'AMSGrad clients whose moments are averaged (Chen et al.).',
      client='amsgrad',
      fixes=frozenset({'client', 'server'}),
      module='local_amsgrad',
      unnoised='their moments',
    ),
    Method(
      'mime',
      "Clients that step with the server's statistics and a corrected "
      'gradient (Karimireddy et al.).',
      defaults={'client_momentum': 0.9},
      hides=_MIME_HIDES,
      module='mime',
      accepts=_MIME_BASES,
      unnoised='their gradients at the received weights',
    ),
    Method(
      'mimelite',
      'MIME without the correction of gradients.',
      defaults={'client_momentum': 0.9},
      hides=_MIME_HIDES,
      module='mime',
      function='lite_pieces',
      accepts=_MIME_BASES,
      unnoised='their gradients at the received weights',
    ),
    Method(
      'direct_joint',
      "Adaptive clients that start from the server's preconditioner (Lee "
      'et al.).',
      client='adagrad',
      server='adagrad',
      # The server's v takes its place.
      hides=frozenset({'client_initial_accumulator'}),
      module='direct_joint',
      accepts=_JOINT,
    ),
    Method(
      'joint_zero_init',
      'Adaptive clients that start from zero under an adaptive server '
      '(Lee et al.).',
      client='adagrad',
      server='adagrad',
      accepts=_JOINT,
    ),
    Method(
      'fedada2',
      'SM3 clients under an adaptive server (Lee et al.).',
      client='sm3_adagrad',
      server='adagrad',
      accepts={
        'client': ('sm3_adagrad', 'sm3_adam'),
        'server': _JOINT['server'],
      },
    ),
    Method(
      'fedada2_blended',
      'Clients that draw their own local optimizer under an adaptive '
      'server (Lee et al.).',
      client='blended',
      server='adagrad',
      fixes=frozenset({'client'}),
      accepts={'server': _JOINT['server']},
    ),
  )
}
