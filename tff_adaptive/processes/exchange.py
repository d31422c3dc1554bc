"""Statistics that clients and server exchange in addition to the model.

Some methods share statistics: FedDecSPS a count of steps, Local-AdaAlter an
accumulator, FedSPS-Global a step size. Some let clients keep something between
rounds: SCAFFOLD a control variate, MOON a model. An `Exchange` defines what the
server keeps, how a client starts from it, what the client keeps and reports,
and how the server merges the cohort's reports. The client work does the
sending, so that such a method needs no client work of its own.
"""

from __future__ import annotations

import collections
from typing import NamedTuple
from typing import Optional
from typing import Union

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.processes import encodings
from tff_adaptive.processes import numbers as numbers_lib

_NOTHING: structures.Statistics = collections.OrderedDict()


class UnsuitableModelError(TypeError):
  """A method needs layers that the model does not have."""


class First(NamedTuple):
  """The first client's measurement on its first batch.

  Attributes:
    measured: Whether there is one: a batch whose loss and gradient are finite
      at the received weights. Bool scalar.
    loss: Of the batch, float32 scalar; 0 without a measurement.
    squared_norm: Of its gradient over all weights, float32 scalar; 0 likewise.
  """

  measured: tf.Tensor
  loss: tf.Tensor
  squared_norm: tf.Tensor


class Client(NamedTuple):
  """A client in a round, before its local steps or after them.

  Attributes:
    statistics: The statistics that the server broadcast.
    state: What the client kept from earlier rounds; empty for a method that
      keeps nothing.
    received: The received trainable weights, flat.
    full_gradient: The cohort's mean gradient at the received weights, flat, for
      a method that asks for it; else empty.
    first: The first client's measurement, for a method that asks for it.
    optimizer_state: The client optimizer's state: as `initialize` made it, or
      after the last step.
    start: The trainable weights before the first step, flat.
    end: The trainable weights after the last step, flat.
    num_steps: Local steps done, int32 scalar.
    full_steps: The same, each counted by the share of the learning rate that it
      was taken with, float32 scalar: less than `num_steps` under a warm-up.
    num_examples: Examples iterated, int64 scalar.
    weight: The weight of the client's update, float32 scalar, unless the
      exchange chooses another.

  What is only known after the steps is `None` or empty before them.
  """

  statistics: structures.Statistics
  state: structures.ClientState
  received: structures.FlatWeights
  full_gradient: structures.FlatWeights = ()
  first: Optional[First] = None
  optimizer_state: structures.OptimizerState = _NOTHING
  start: structures.FlatWeights = ()
  end: structures.FlatWeights = ()
  num_steps: tf.Tensor = None
  full_steps: tf.Tensor = None
  num_examples: tf.Tensor = None
  weight: tf.Tensor = None


class Report(NamedTuple):
  """A client's message in addition to its update; each part an ordered dict.

  Attributes:
    weighted: Averaged over clients with the weights of their updates.
    mean: Averaged over clients that took part, all alike.
    maximum: Scalars of which the largest counts; float32 or int32.
  """

  weighted: structures.Statistics
  mean: structures.Statistics
  maximum: collections.OrderedDict[str, tf.Tensor]


class Server(NamedTuple):
  """The server in a round.

  Attributes:
    statistics: The method's statistics.
    optimizer_state: The server optimizer's state, before a round.
    report: The clients' reports, averaged or maximised as `Report` says, after
      a round.
    cohort_size: Clients that took part, float32 scalar.
    full_gradient: As in `Client`.
    update: The aggregated update, flat and in the direction of the step, for a
      method that `sees_update`; else empty.
    weights: The trainable weights, for `evaluated`.
  """

  statistics: structures.Statistics
  optimizer_state: structures.OptimizerState = _NOTHING
  report: Report = Report(_NOTHING, _NOTHING, _NOTHING)
  cohort_size: tf.Tensor = None
  full_gradient: structures.FlatWeights = ()
  update: structures.FlatWeights = ()
  weights: structures.Structure = ()


def report(**parts: structures.Statistics) -> Report:
  """Builds a `Report` with nothing in the parts that are not given."""
  none: dict[str, structures.Statistics] = {
    name: collections.OrderedDict() for name in Report._fields
  }
  return Report(**(none | parts))


def share_of(
  cohort_size: tf.Tensor, population: Optional[int]
) -> Union[tf.Tensor, float]:
  """Computes |S| / N; 1 without N, as if all took part."""
  return 1.0 if population is None else cohort_size / population


class Exchange(numbers_lib.Numbered):
  """Statistics that a method exchanges in addition to the model; none here.

  The hooks of a round, in order: `share` and `broadcast` on the server;
  `start`, `begin` and `context` on each client before its steps; `update`,
  `weight`, `report` and `next_client_state` after them; then the server's
  `merge` and `step`.

  Attributes:
    full_gradient_pass: When clients go over their data once more, for the
      cohort's mean gradient at the received weights: 'before' the
      local steps, which costs one more exchange in the round, 'after' them,
      or not at all (`None`).
    probes_first_client: Whether the cohort's first client measures its first
      batch before the local steps of rounds for which `wants_first` is true,
      which costs one more exchange of three numbers in every round.
    weight_formula: The client's weight as text, if `weight` changes it.
    sees_update: Whether the server looks at the aggregated update: to `merge`
      it, or to `step` with another.
    of_one_version: Whether what the server merges makes sense only if clients
      trained from one model, as long as it merges or steps at all.
    keeps_layers: Whether part of the model stays with each client, whose state
      is `seen`, a bool, and the variables that stay: `start` puts these into
      the received weights, and evaluation on single clients does so too.
    update_formula: The update Delta as text, if `update` or `step` change it.
    encoding: The form in which updates travel; as they are if `None`.
  """

  full_gradient_pass: Optional[str] = None
  probes_first_client = False
  weight_formula = ''
  sees_update = False
  of_one_version = True
  keeps_layers = False
  update_formula = ''
  encoding: Optional[encodings.Encoding] = None

  def initialize(self, specs: structures.FlatSpecs) -> structures.Statistics:
    """Builds the server's first statistics.

    Args:
      specs: Of the trainable weights.
    """
    del specs
    return collections.OrderedDict()

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> Optional[structures.ClientState]:
    """Builds a new client's state; `None` if clients keep nothing."""
    del specs
    return None

  def share(self, server: Server) -> structures.Statistics:
    """Returns the statistics to send, given the server optimizer's state.

    Called on the server before each round.
    """
    return server.statistics

  def broadcast(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    """Returns the part of the statistics that clients receive."""
    return statistics

  def start(self, client: Client) -> structures.FlatWeights:
    """Returns the trainable weights that a client begins with, flat."""
    return client.received

  def begin(self, client: Client) -> structures.OptimizerState:
    """Returns the client's optimizer state at its first step."""
    return client.optimizer_state

  def context(self, client: Client) -> structures.FlatWeights:
    """Returns what objective and optimizer use on this client in this round."""
    del client
    return ()

  def wants_first(self, statistics: structures.Statistics) -> tf.Tensor:
    """Tells whether a round needs the first client's measurement, bool."""
    del statistics
    return tf.constant(False)

  def update(self, client: Client) -> structures.FlatWeights:
    """Returns what the client sends for the model's change x_K - x_t."""
    return tuple(e - x for x, e in zip(client.received, client.end))

  def weight(self, client: Client) -> tf.Tensor:
    """Computes the weight of the client's update in the mean, float32."""
    return client.weight

  def report(self, client: Client) -> Report:
    """Returns the statistics that the client sends along with its update."""
    del client
    return report()

  def update_bits(self, client: Client) -> Optional[tf.Tensor]:
    """Returns the bits that a coordinate of the update can be sent in, float32.

    `None` where it takes all of its number. What is summed is the update as it
    is; this only says what sending it costs.
    """
    del client
    return None

  def preconditioner(self, client: Client) -> structures.FlatWeights:
    """Returns what clients' rules divide or turn steps by, after them, flat.

    Nothing is sent of it; `drift` measures how far it is apart.
    """
    del client
    return ()

  def next_client_state(self, client: Client) -> structures.ClientState:
    """Returns what the client keeps, unless it had to be left out."""
    return client.state

  def merge(self, server: Server) -> structures.Statistics:
    """Returns the server's next statistics.

    In a round without a client that took part the statistics stay; so they do
    if an aggregated update that is looked at is not finite.
    """
    return server.statistics

  def step(self, server: Server) -> structures.FlatWeights:
    """Returns the update for the server optimizer, if `sees_update`.

    Args:
      server: With the next statistics, as `merge` returned them.
    """
    return server.update

  def evaluated(self, server: Server) -> structures.Structure:
    """Returns the trainable weights to evaluate from those to train from."""
    return server.weights

  def restarted(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    """Returns the statistics after the model's weights were replaced."""
    return statistics


class NoExchange(Exchange):
  """An exchange of nothing but the model."""
