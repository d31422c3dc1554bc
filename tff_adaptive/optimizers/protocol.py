"""The protocol of client optimizers that need more than the gradient.

`tff.learning.optimizers.Optimizer.next` takes the state, the weights and the
gradients. A stochastic Polyak step also needs the loss of the batch, and
Delta-SGD the gradient of the same batch at the previous point. `LocalOptimizer`
adds these as keyword arguments of `next` (as optax adds them to `update`).
`take_step` passes them only to rules that accept them, so that one client work
runs both TFF's own optimizers and these.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import ClassVar, Generic, NamedTuple, Optional

from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff
from tff_adaptive.optimizers import rule as rule_lib


class Batch(NamedTuple, Generic[structures.WeightsT]):
  """The current batch, for update rules that need more than its gradient.

  Attributes:
    loss: Scalar float32, the differentiated objective at the current weights:
      the mean loss of the batch, plus a proximal or contrastive term if the
      objective has one.
    gradient_fn: Maps other weights (in the structure of `weights`) to the
      gradient of the same objective on the same batch at those weights, with
      the same dropout mask unless the optimizer sets `own_masks`. Costs one
      more forward and backward pass.
    size: Scalar int64, number of examples in the batch.
    client_size: Scalar int64, number of examples that the client iterates in
      the round; `None` unless the optimizer sets `needs_client_size`.
  """

  loss: tf.Tensor
  gradient_fn: Callable[[structures.WeightsT], structures.WeightsT]
  size: tf.Tensor
  client_size: Optional[tf.Tensor] = None


class StepSize(NamedTuple):
  """The step size that a rule used in its last step.

  Attributes:
    value: Scalar float32.
    at_bound: Scalar bool, whether an upper bound rather than the curvature
      determined the step size.
  """

  value: tf.Tensor
  at_bound: tf.Tensor


class LocalOptimizer(rule_lib.Rule):
  """An optimizer whose step may depend on the batch, not only on its gradient.

  Methods are called without AutoGraph: conditions on tensors need `tf.where` or
  `tf.cond`.

  Attributes:
    needs_client_size: Whether `Batch.client_size` must be known from the first
      step on; counting it costs one more pass over the client's data.
    own_masks: Whether `Batch.gradient_fn` draws its own dropout masks.
    uses_batch: Whether a step depends on `batch`.
    draws: Whether the client samples its choices before the first step
      (`draw`).
  """

  needs_client_size: ClassVar[bool] = False
  own_masks: ClassVar[bool] = False
  uses_batch: ClassVar[bool] = True
  draws: ClassVar[bool] = False

  def draw(
    self,
    state: structures.OptimizerState,
    seed: tf.Tensor,
    num_batches: tf.Tensor,
  ) -> tuple[structures.OptimizerState, tf.Tensor]:
    """Samples the client's choices for this round; called if `draws` is set.

    Args:
      state: The state returned by `initialize`.
      seed: int32 of shape [2], a function of (seed, round, client).
      num_batches: Number of the client's batches, int64 scalar.

    Returns:
      The state and the number of batches to use.
    """
    return state, num_batches

  def gradient_point(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    context: structures.FlatWeights,
  ) -> Optional[structures.WeightsT]:
    """Returns the weights at which to evaluate the next gradient.

    The loss and the metrics of the batch are evaluated at the same point.

    Args:
      state: The state returned by `initialize` or `next`.
      weights: The current weights.
      context: Values that the method's exchange computed for this client and
        round.

    Returns:
      A structure like `weights`, or `None` for the current weights.
    """
    return None

  @abc.abstractmethod
  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    """Takes a step; see `tff.learning.optimizers.Optimizer.next`.

    Args:
      state: The state returned by `initialize` or `next`.
      weights: The current weights.
      gradients: The gradient of the objective at `gradient_point`.
      batch: The batch, for rules that use its loss, sizes or other gradients.

    Returns:
      The next state and the next weights.

    Raises:
      TypeError: If the rule uses `batch` and none is given.
    """

  def step_size(self, state: structures.OptimizerState) -> Optional[StepSize]:
    """Returns the step size that led to `state`, or `None` if there is none."""
    return None


def take_step(
  optimizer: tff.learning.optimizers.Optimizer,
  state: structures.OptimizerState,
  weights: structures.WeightsT,
  gradients: structures.WeightsT,
  batch: Batch[structures.WeightsT],
) -> tuple[structures.OptimizerState, structures.WeightsT]:
  """Calls `optimizer.next`, with the batch if the optimizer accepts it."""
  if isinstance(optimizer, LocalOptimizer):
    return optimizer.next(state, weights, gradients, batch=batch)
  return optimizer.next(state, weights, gradients)


def step_size_of(
  optimizer: tff.learning.optimizers.Optimizer,
  state: structures.OptimizerState,
) -> Optional[StepSize]:
  """Returns the step size of the last step, if the rule chooses its own."""
  if isinstance(optimizer, LocalOptimizer):
    return optimizer.step_size(state)
  return None


def require_batch(
  batch: Optional[Batch[structures.WeightsT]], rule: str
) -> Batch[structures.WeightsT]:
  """Returns `batch`; raises `TypeError` naming the rule if it is `None`."""
  if batch is None:
    raise TypeError(
      f'{rule} needs the batch, not only its gradient: call next(state, '
      'weights, gradients, batch=protocol.Batch(...)), as '
      'tff_adaptive.processes.build_client_work does. The client work of '
      'tff.learning does not pass batches.'
    )
  return batch
