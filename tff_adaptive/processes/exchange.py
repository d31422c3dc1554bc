"""Statistics that clients and server exchange in addition to the model.

Some methods share statistics: FedDecSPS a count of steps, Local-AdaAlter an
accumulator, FedSPS-Global a step size. Some let clients keep something between
rounds: SCAFFOLD a control variate, MOON a model. An `Exchange` defines what the
server keeps, how a client starts from it, what the client keeps and reports,
and how the server merges the cohort's reports. All exchanges share one client
work.
"""

from __future__ import annotations

import collections
from typing import NamedTuple, Optional, Union

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.processes import encodings
from tff_adaptive.processes import hparams as hparams_lib

_NOTHING: structures.Statistics = collections.OrderedDict()


class UnsuitableModelError(TypeError):
  """Raised for a model without the layers that a method needs."""


class First(NamedTuple):
  """The first client's measurement on its first batch.

  Attributes:
    measured: Whether the measurement is valid: there was a batch, whose loss
      and gradient at the received weights are finite. Bool scalar.
    loss: The batch's loss, float32 scalar; 0 if not `measured`.
    squared_norm: Squared norm of its gradient over all weights, float32 scalar;
      0 if not `measured`.
  """

  measured: tf.Tensor
  loss: tf.Tensor
  squared_norm: tf.Tensor


class Client(NamedTuple):
  """A client in a round, before its local steps or after them.

  Attributes:
    statistics: The statistics that the server broadcast.
    state: The client's state from its last round; empty for a method without
      client state.
    received: The received trainable weights, flat.
    full_gradient: The cohort's mean gradient at the received weights, flat;
      empty unless the method sets `full_gradient_pass`.
    first: The first client's measurement, if the method sets
      `probes_first_client`.
    optimizer_state: The client optimizer's state: as `initialize` made it, or
      after the last step.
    start: The trainable weights before the first step, flat.
    end: The trainable weights after the last step, flat.
    num_steps: Local steps done, int32 scalar.
    full_steps: Local steps, each weighted by its fraction of the learning rate,
      float32 scalar: less than `num_steps` under a warm-up.
    num_examples: Examples iterated, int64 scalar.
    weight: The weight of the client's update, float32 scalar, unless the
      exchange chooses another.

  Fields that are known only after the steps are `None` or empty before them.
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
  """Statistics that a client sends with its update; each part an ordered dict.

  Attributes:
    weighted: Averaged over clients with the weights of their updates.
    mean: Averaged over participating clients with equal weights.
    maximum: Reduced to the maximum over clients; float32 or int32 scalars.
  """

  weighted: structures.Statistics
  mean: structures.Statistics
  maximum: collections.OrderedDict[str, tf.Tensor]


class Server(NamedTuple):
  """The server in a round.

  Attributes:
    statistics: The method's statistics.
    optimizer_state: The server optimizer's state, before a round.
    report: Aggregated client reports, after a round; see `Report`.
    cohort_size: Number of participating clients, float32 scalar.
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
  """Builds a `Report`; parts that are not given are empty."""
  none: dict[str, structures.Statistics] = {
    name: collections.OrderedDict() for name in Report._fields
  }
  return Report(**(none | parts))


def share_of(
  cohort_size: tf.Tensor, population: Optional[int]
) -> Union[tf.Tensor, float]:
  """Computes the participation |S| / N; 1 if N is unknown."""
  return 1.0 if population is None else cohort_size / population


class Exchange(hparams_lib.HasHparams):
  """Statistics that a method exchanges in addition to the model; none here.

  The hooks of a round, in order: `share` and `broadcast` on the server;
  `start`, `begin` and `context` on each client before its steps; `update`,
  `weight`, `report` and `next_client_state` after them; then the server's
  `merge` and `step`.

  Attributes:
    full_gradient_pass: Extra pass over the clients' data for the cohort's mean
      gradient at the received weights: 'before' the local steps (one more
      communication in the round), 'after' them, or `None`.
    probes_first_client: Whether the cohort's first client measures its first
      batch before the local steps of rounds for which `wants_first` is true
      (one more communication, of three numbers, in every round).
    weight_formula: The client's weight as text, if `weight` changes it.
    sees_update: Whether `merge` and `step` use the aggregated update.
    of_one_version: Whether `merge` and `step` are valid only for clients that
      trained from the same model.
    keeps_layers: Whether some layers stay with each client. Its state is then
      `seen`, a bool, and those variables; `start` and evaluation on single
      clients insert them into the received weights.
    update_formula: The update Delta as text, if `update` or `step` change it.
    encoding: Compressed form of updates; uncompressed if `None`.
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
      specs: Specs of the trainable weights.
    """
    return collections.OrderedDict()

  def initialize_client(
    self, specs: structures.FlatSpecs
  ) -> Optional[structures.ClientState]:
    """Builds a new client's state; `None` for methods without client state."""
    return None

  def share(self, server: Server) -> structures.Statistics:
    """Adds parts of the server optimizer's state to the statistics.

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
    """Returns this client's constants for its objective and optimizer."""
    return ()

  def wants_first(self, statistics: structures.Statistics) -> tf.Tensor:
    """Whether this round needs the first client's measurement, bool scalar."""
    return tf.constant(False)

  def update(self, client: Client) -> structures.FlatWeights:
    """Returns the update to send, by default the model's change x_K - x_t."""
    return tuple(e - x for x, e in zip(client.received, client.end))

  def weight(self, client: Client) -> tf.Tensor:
    """Computes the weight of the client's update in the mean, float32."""
    return client.weight

  def report(self, client: Client) -> Report:
    """Returns the statistics that the client sends along with its update."""
    return report()

  def update_bits(self, client: Client) -> Optional[tf.Tensor]:
    """Returns the bits per coordinate to count for the update, float32.

    `None` for all bits of its dtype. For accounting only: the update itself is
    summed at full precision.
    """
    return None

  def preconditioner(self, client: Client) -> structures.FlatWeights:
    """Returns the client optimizer's preconditioner after the steps, flat.

    Not sent; `drift` measures how much clients' preconditioners differ.
    """
    return ()

  def next_client_state(self, client: Client) -> structures.ClientState:
    """Returns the client's next state; not called for a rejected client."""
    return client.state

  def merge(self, server: Server) -> structures.Statistics:
    """Returns the server's next statistics.

    Statistics stay as they are in a round without participating clients, and if
    `sees_update` and the aggregated update is not finite.
    """
    return server.statistics

  def step(self, server: Server) -> structures.FlatWeights:
    """Returns the update for the server optimizer, if `sees_update`.

    Args:
      server: With the next statistics, as `merge` returned them.
    """
    return server.update

  def evaluated(self, server: Server) -> structures.Structure:
    """Returns the trainable weights to evaluate, given those to train from."""
    return server.weights

  def restarted(
    self, statistics: structures.Statistics
  ) -> structures.Statistics:
    """Returns the statistics to use after the model's weights were replaced."""
    return statistics


class NoExchange(Exchange):
  """Exchange of methods that send the model and nothing else."""
