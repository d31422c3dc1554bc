"""Messages of a round: client output, its sums and the server's next state.

Plain TensorFlow; `client_work` places it on clients and server.
"""

import collections
from collections.abc import Callable, Sequence
from typing import NamedTuple, Optional, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import adapters
from tff_adaptive import structures
from tff_adaptive.optimizers import tree
from tff_adaptive.processes import drift
from tff_adaptive.processes import exchange as exchange_lib
from tff_adaptive.processes import hparams as hparams_lib
from tff_adaptive.processes.local import step_sizes


class State(NamedTuple):
  """The client work's state at the server, broadcast with the model.

  Attributes:
    round: Rounds completed, int32 scalar.
    hparams: The client optimizer's hyperparameters.
    statistics: The exchange's statistics.
    numbers: Numbers of objective and exchange, and the seed, by name.
  """

  round: tf.Tensor
  hparams: structures.HParams
  statistics: structures.Statistics
  numbers: structures.Statistics


class Sums(NamedTuple):
  """A client's contribution to the cohort's sums, or these sums.

  Attributes:
    clients: Counts of clients and steps, by name.
    weight: The clients' weights, float32 scalar.
    weighted: The weighted parts of the reports, times the weights.
    taking_part: Number of participating clients, float32 scalar.
    mean: The unweighted parts of the reports.
    step_size: `step_sizes.StepSums`; empty for an optimizer without step sizes.
    preconditioner: As `drift.spread` returns it, if drift is recorded and the
      exchange has preconditioners.
    products: As `adapters.products` returns them, times the weights. Not
      counted as sent: the server can compute them from the updates.
  """

  clients: collections.OrderedDict[str, tf.Tensor]
  weight: tf.Tensor
  weighted: structures.Statistics
  taking_part: tf.Tensor
  mean: structures.Statistics
  step_size: Union[step_sizes.StepSums, tuple[()]]
  preconditioner: Union[structures.Statistics, tuple[()]] = ()
  products: tuple[tf.Tensor, ...] = ()


# Values of which the cohort's maximum is taken, by name.
Maxima = collections.OrderedDict[str, tf.Tensor]


class Output(NamedTuple):
  """The output of a client's round.

  Attributes:
    result: The update and its weight.
    metrics: The model's unfinalized metrics.
    sums: The client's contribution to the cohort's sums.
    maxima: The client's contribution to the cohort's maxima.
    record: The client's step sizes, as `step_sizes.record` returns them; empty
      unless recorded.
    client_state: The client's next state; empty for methods without one.
  """

  result: tff.learning.templates.ClientResult
  metrics: structures.Metrics
  sums: Sums
  maxima: Maxima
  record: Union[tf.Tensor, tuple[()]]
  client_state: structures.ClientState


def of_client(
  exchange: exchange_lib.Exchange,
  client: exchange_lib.Client,
  update: structures.Structure,
  metrics: Callable[[tf.Tensor], structures.Metrics],
  steps: Optional[step_sizes.Steps],
  record: bool,
  record_drift: bool,
  products: tuple[tf.Tensor, ...] = (),
) -> Output:
  """Builds a client's output; a rejected client contributes zeros.

  Args:
    exchange: The method's exchange.
    client: The client after its steps.
    update: The received weights minus its own, in the model's structure.
    metrics: Returns the model's metrics; those of no data if its argument, a
      bool scalar, is true.
    steps: The client's step sizes; `None` for an optimizer without.
    record: Whether to record each client's step sizes.
    record_drift: Whether to measure client drift.
    products: As `adapters.products` returns them.
  """
  report = exchange.report(client)
  remembered = exchange.next_client_state(client)
  weight = exchange.weight(client)
  # One test of everything sent: an accumulator or a step size can overflow
  # before the weights do.
  finite = tree.all_finite(
    (update, client.optimizer_state, report, remembered, weight)
  )
  empty = tf.equal(client.num_examples, 0)
  takes_part = tf.logical_and(finite, tf.logical_not(empty))
  weight = tf.where(takes_part, weight, 0.0)
  clients = collections.OrderedDict(
    count=tf.constant(1, tf.int32),
    empty=tf.cast(empty, tf.int32),
    rejected=tf.cast(tf.logical_not(finite), tf.int32),
    steps=client.num_steps,
  )
  bits = exchange.update_bits(client)
  if bits is not None:
    clients['update_bits'] = tf.cast(bits, tf.float32)
  client_state = client.state
  if client_state:
    client_state = tf.nest.map_structure(
      lambda new, old: tf.where(takes_part, new, old), remembered, client.state
    )
  sums = _sums(clients, report, weight, takes_part, steps)
  if record_drift and (own := exchange.preconditioner(client)):
    sums = sums._replace(preconditioner=drift.spread(own, takes_part))
  if products:
    weighed = tuple(weight * product for product in products)
    sums = sums._replace(products=tree.zero_unless(takes_part, weighed))
  return Output(
    result=tff.learning.templates.ClientResult(
      update=tree.zero_unless(takes_part, update), update_weight=weight
    ),
    metrics=metrics(tf.logical_not(finite)),
    sums=sums,
    maxima=_maxima(report, takes_part, steps),
    record=(
      step_sizes.record(steps, takes_part)
      if record and steps is not None
      else ()
    ),
    client_state=client_state,
  )


def _sums(
  clients: collections.OrderedDict[str, tf.Tensor],
  report: exchange_lib.Report,
  weight: tf.Tensor,
  takes_part: tf.Tensor,
  steps: Optional[step_sizes.Steps],
) -> Sums:
  """Computes a client's contribution to the cohort's sums."""
  weighted = tf.nest.map_structure(
    lambda t: tf.cast(weight, t.dtype) * t, report.weighted
  )
  return Sums(
    clients=clients,
    weight=weight,
    weighted=tree.zero_unless(takes_part, weighted),
    taking_part=tf.cast(takes_part, tf.float32),
    mean=tree.zero_unless(takes_part, report.mean),
    step_size=() if steps is None else step_sizes.sums(steps, takes_part),
  )


def _maxima(
  report: exchange_lib.Report,
  takes_part: tf.Tensor,
  steps: Optional[step_sizes.Steps],
) -> Maxima:
  """Computes a client's contribution to the cohort's maxima."""
  maxima = collections.OrderedDict(
    (name, tf.where(takes_part, value, value.dtype.min))
    for name, value in report.maximum.items()
  )
  if steps is not None:
    maxima.update(step_sizes.maxima(steps, takes_part))
  return maxima


def next_state(
  exchange: exchange_lib.Exchange,
  state: State,
  sums: Sums,
  maxima: Maxima,
  full_gradient: structures.FlatWeights,
  update: Optional[structures.Structure] = None,
) -> tuple[State, Optional[structures.Structure]]:
  """Computes the server's state after a round.

  Args:
    exchange: The method's exchange.
    state: The state before the round.
    sums, maxima: The cohort's sums and maxima.
    full_gradient: The cohort's mean gradient; empty if not computed.
    update: The aggregated update, as gradients, if the exchange sees it.

  Returns:
    The next state, and the update for the server optimizer if the exchange
    sees it.
  """

  def divide(structure: structures.Tree, by: tf.Tensor) -> structures.Tree:
    return tf.nest.map_structure(
      lambda t: tf.math.divide_no_nan(t, tf.cast(by, t.dtype)), structure
    )

  exchange = exchange.with_hparams(hparams_lib.below('exchange', state.numbers))
  server = exchange_lib.Server(
    state.statistics,
    report=exchange_lib.Report(
      weighted=divide(sums.weighted, sums.weight),
      mean=divide(sums.mean, sums.taking_part),
      maximum=maxima,
    ),
    cohort_size=sums.taking_part,
    full_gradient=full_gradient,
    update=tuple(-u for u in tf.nest.flatten(() if update is None else update)),
  )
  # With no weight at all there is no mean to take up.
  stay = tf.equal(sums.weight, 0)
  if update is not None:
    finite = tree.all_finite(update)
    stay = tf.logical_or(stay, tf.logical_not(finite))
  merged = tf.nest.map_structure(
    lambda old, new: tf.where(stay, old, new),
    state.statistics,
    exchange.merge(server),
  )
  step = None
  if update is not None:
    server = server._replace(statistics=merged)
    # A step of an earlier state does not hide that an update is discarded.
    steps = [
      tf.where(finite, -step, given)
      for step, given in zip(
        exchange.step(server), tf.nest.flatten(update), strict=True
      )
    ]
    step = tf.nest.pack_sequence_as(update, steps)
  state = state._replace(round=state.round + 1, statistics=merged)
  return state, step


def corrected(
  residuals: Sequence[adapters.Residual],
  stepped: structures.ModelWeights,
  before: structures.ModelWeights,
  sums: Sums,
  update: structures.Structure,
) -> structures.ModelWeights:
  """Adds the residual of averaged adapters to a model's frozen weights.

  Args:
    residuals: The adapters' residuals.
    stepped: The model after the server's step.
    before: The model that clients trained from.
    sums: The cohort's sums.
    update: The aggregated update, as gradients.
  """
  mean = tuple(
    x - u
    for x, u in zip(
      tf.nest.flatten(before.trainable), tf.nest.flatten(update), strict=True
    )
  )
  products = [tf.math.divide_no_nan(p, sums.weight) for p in sums.products]
  fixed = adapters.corrected(residuals, stepped, mean, products)
  counts = tf.logical_and(tree.all_finite(update), sums.weight > 0)
  kept = [
    tf.where(counts, new, old)
    for new, old in zip(
      fixed, tf.nest.flatten(stepped.non_trainable), strict=True
    )
  ]
  return tff.learning.models.ModelWeights(
    stepped.trainable, tf.nest.pack_sequence_as(stepped.non_trainable, kept)
  )


def measure(sums: Sums, maxima: Maxima) -> structures.Metrics:
  """Computes measurements from the cohort's sums and maxima."""
  measured: structures.Metrics = collections.OrderedDict(clients=sums.clients)
  if isinstance(sums.step_size, step_sizes.StepSums):
    measured['step_size'] = step_sizes.figures(sums.step_size, maxima)
  if not isinstance(sums.preconditioner, tuple):
    measured['drift'] = collections.OrderedDict(
      preconditioner=drift.spread_of(sums.preconditioner, sums.taking_part)
    )
  return measured
