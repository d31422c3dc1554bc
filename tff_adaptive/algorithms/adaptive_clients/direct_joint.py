"""Direct joint adaptivity: clients start from the server's preconditioner."""

from __future__ import annotations

import collections
import dataclasses

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.algorithms import methods
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers.clients import preconditioned
from tff_adaptive.optimizers.servers import fedopt
from tff_adaptive.processes import exchange


@dataclasses.dataclass(eq=False, repr=False)
class ServerPreconditioner(exchange.Exchange):
  """The direct form of FedAda2 (arXiv 2410.18117): the server sends its v.

  v is sent unchanged, in the first round its initial value, for AdaGrad, Adam,
  Yogi and AMS servers alike. A client Adam that starts from it does not
  bias-correct v, and SM3 clients start from v's maxima over slices.
  """

  _client: preconditioned.PreconditionedClient
  _server: fedopt.AdaptiveServerOptimizer

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    first = self._server.initialize(specs)
    return collections.OrderedDict(v=tuple(tf.nest.flatten(first['v'])))

  def share(self, server: exchange.Server) -> structures.Statistics:
    # A scheduled server optimizer nests the state of its base optimizer.
    state = server.optimizer_state.get('optimizer', server.optimizer_state)
    return collections.OrderedDict(v=tuple(tf.nest.flatten(state['v'])))

  def begin(self, client: exchange.Client) -> structures.OptimizerState:
    return self._client.receive(client.optimizer_state, client.statistics['v'])


@methods.method(
  'direct_joint',
  printed='Direct joint',
  client='adagrad',
  server='adagrad',
  hides=('client_initial_accumulator',),
  accepts=methods.JOINT,
  client_words='AdaGrad, Adam or SM3',
  server_words='Adagrad, Adam, Yogi, AMS',
  costs=methods.Costs(down='v, d', models_down=2, optimizer=1),
  look=15,
)
class DirectJoint(methods.Options):
  """Adaptive clients that start at the server's preconditioner (Lee et al.)."""

  def additions(self, chosen: methods.Chosen) -> methods.Additions:
    if not isinstance(chosen.server_optimizer, fedopt.AdaptiveServerOptimizer):
      raise parameters.ParameterError(
        'server_optimizer',
        'direct_joint needs a server optimizer with a second moment, a '
        'fedopt.AdaptiveServerOptimizer, got {given}.',
        given=type(chosen.server_optimizer).__name__,
      )
    if not isinstance(
      chosen.client_optimizer, preconditioned.PreconditionedClient
    ):
      raise parameters.ParameterError(
        'client_optimizer',
        'direct_joint needs a client optimizer with a preconditioner, a '
        'preconditioned.PreconditionedClient, got {given}.',
        given=type(chosen.client_optimizer).__name__,
      )
    client = chosen.client_optimizer.received_form()
    return {
      'client_optimizer': client,
      'exchange': ServerPreconditioner(client, chosen.server_optimizer),
    }
