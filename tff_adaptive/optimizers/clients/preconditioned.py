"""The step that FedAda2's adaptive client optimizers share.

Lee et al., Efficient Adaptive Federated Optimization (arXiv 2410.18117),
Algorithms 3, 4, 7 and 9. At local step k = 1, 2, ..., elementwise:

  v = the preconditioner's estimate, updated with g^2 unless delayed
  m = beta_1 m + (1 - beta_1) g                      (m = g without momentum)
  x = x - learning_rate m' / (sqrt(v') + epsilon)

with m' and v' bias-corrected for Adam. A preconditioner stores v itself, or
SM3's maxima over the slices of each tensor.
"""

from __future__ import annotations

import abc
import collections
import dataclasses
from collections.abc import Callable
from typing import ClassVar, Generic, Literal, Optional, TypeVar

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree

# Maps (v, g^2, beta_2) to the next v.
Rule = Callable[['tf.Tensor', 'tf.Tensor', 'tf.Tensor'], 'tf.Tensor']


def adagrad_rule(
  v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
) -> tf.Tensor:
  return v + squared


def adam_rule(v: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor) -> tf.Tensor:
  return beta_2 * v + (1 - beta_2) * squared


# The state of a preconditioner for one tensor.
Kept = TypeVar('Kept')


class Preconditioner(abc.ABC, Generic[Kept]):
  """A preconditioner of one tensor, the source of v.

  Attributes:
    initial: Initial value of every entry of v.
  """

  initial: float = 0.0

  @abc.abstractmethod
  def start(self, spec: tf.TensorSpec) -> Kept:
    """Builds the state before the first step."""

  @abc.abstractmethod
  def renew(
    self, kept: Kept, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tuple[Kept, tf.Tensor]:
    """Updates the state with g^2; returns the new state and v."""

  @abc.abstractmethod
  def read(self, kept: Kept) -> tf.Tensor:
    """Returns v between updates."""

  @abc.abstractmethod
  def receive(self, v: tf.Tensor) -> Kept:
    """Builds the state that corresponds to a v received from the server."""


@dataclasses.dataclass(eq=False, repr=False)
class Full(Preconditioner['tf.Tensor']):
  """A preconditioner that stores v."""

  _rule: Rule
  initial: float = 0.0

  def start(self, spec: tf.TensorSpec) -> tf.Tensor:
    return tf.fill(spec.shape, tf.cast(self.initial, spec.dtype))

  def renew(
    self, kept: tf.Tensor, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tuple[tf.Tensor, tf.Tensor]:
    v = self._rule(kept, squared, beta_2)
    return v, v

  def read(self, kept: tf.Tensor) -> tf.Tensor:
    return kept

  def receive(self, v: tf.Tensor) -> tf.Tensor:
    return v


# The maxima over a tensor's slices, one vector per axis.
Maxima = tuple['tf.Tensor', ...]


@dataclasses.dataclass(eq=False, repr=False)
class Sm3(Preconditioner[Maxima]):
  """The SM3 preconditioner, which stores one number per slice of each axis.

  A tensor is covered by its slices of co-dimension 1: an m x n matrix stores m
  + n numbers. Tensors of rank 0 and 1 store one number per entry.

  Form II: v = rule(minimum over the slices that contain the entry, g^2), and
  each slice stores the maximum of v over it. Form I: each slice is updated with
  the maximum of g^2 over it, and v is the minimum over slices. Between updates,
  v is the minimum over slices; nothing of the tensor's size is stored.
  """

  _rule: Rule
  _form: str
  initial: float = 0.0

  def start(self, spec: tf.TensorSpec) -> Maxima:
    first = tf.cast(self.initial, spec.dtype)
    if spec.shape.rank < 2:
      return (tf.fill(spec.shape, first),)
    return tuple(tf.fill([size], first) for size in spec.shape)

  def renew(
    self, kept: Maxima, squared: tf.Tensor, beta_2: tf.Tensor
  ) -> tuple[Maxima, tf.Tensor]:
    if self._form == 'I':
      maxima = self._maxima(squared)
      kept = tuple(
        self._rule(old, new, beta_2) for old, new in zip(kept, maxima)
      )
      return kept, self.read(kept)
    v = self._rule(self.read(kept), squared, beta_2)
    return self._maxima(v), v

  def read(self, kept: Maxima) -> tf.Tensor:
    if len(kept) == 1:
      return kept[0]
    rank = len(kept)
    smallest = None
    for axis, values in enumerate(kept):
      shape = [-1 if a == axis else 1 for a in range(rank)]
      spread = tf.reshape(values, shape)
      smallest = spread if smallest is None else tf.minimum(smallest, spread)
    return smallest

  def receive(self, v: tf.Tensor) -> Maxima:
    return self._maxima(v)

  def _maxima(self, values: tf.Tensor) -> Maxima:
    rank = values.shape.rank
    if rank < 2:
      return (values,)
    return tuple(
      tf.reduce_max(values, [a for a in range(rank) if a != axis])
      for axis in range(rank)
    )


class PreconditionedClient(protocol.LocalOptimizer):
  """The base of FedAda2's client optimizers; the module has the equations.

  Attributes:
    corrects_bias: Whether m and v are bias-corrected.
    preconditioner: The source of v.
    rule_text: The update rule of v as text.
  """

  fixed = frozenset({'initial_accumulator', 'min_step_norm'})
  corrects_bias: ClassVar[bool] = False

  epsilon: parameters.NonNegative = 1e-5
  """Adaptivity, in units of g."""

  initial_accumulator: parameters.NonNegative = 0.0
  """Initial value of v in every round."""

  delay: parameters.Count = 1
  """z: v is updated at every z-th local step, starting with the first."""

  delay_unit: Literal['steps', 'epochs'] = 'steps'
  """Unit of the delay. With 'epochs', v is updated at every step of local
  epochs 0, z, 2 z, ... and frozen in the others.
  """

  local_epochs: Optional[parameters.Count] = None
  """Number of local epochs per round, for a delay in epochs."""

  min_step_norm: parameters.NonNegative = 0.0
  """epsilon_s: a nonzero step whose global norm is below this is skipped; m is
  still updated.
  """

  # Whether v starts from the server's, which needs no bias correction.
  _receives: bool = False

  def check(self) -> None:
    if (self.delay_unit == 'epochs') != (self.local_epochs is not None):
      raise parameters.ParameterError(
        'local_epochs',
        '{}, the number of local epochs per round, must be given exactly if '
        '{delay_unit}=epochs, got {unit!r} and {epochs!r}.',
        unit=self.delay_unit,
        epochs=self.local_epochs,
      )

  @property
  @abc.abstractmethod
  def preconditioner(self) -> Preconditioner:
    """The source of v."""

  @property
  @abc.abstractmethod
  def rule_text(self) -> str:
    """The update rule of v as text."""

  @property
  def needs_client_size(self) -> bool:  # type: ignore[override]
    return self.local_epochs is not None

  @property
  def uses_batch(self) -> bool:  # type: ignore[override]
    return self.local_epochs is not None

  @property
  def formula(self) -> str:
    unit = 'step' if self.local_epochs is None else 'epoch'
    every = f', renewed every {self.delay} {unit}s' if self.delay > 1 else ''
    start = f'{self.preconditioner.initial:g}'
    if self._receives:
      start = "the server's v"
    lines = [f'{self.rule_text}, from {start}{every}']
    m, v = 'g', 'v'
    if 'beta_1' in self.hparams:
      lines.append('m = beta_1 m + (1 - beta_1) g, from 0')
      m = 'm / (1 - beta_1^k)' if self.corrects_bias else 'm'
    if self.corrects_bias and not self._receives:
      v = 'v / (1 - beta_2^u)'
    lines.append(f'x = x - learning_rate {m} / (sqrt({v}) + epsilon)')
    if self.corrects_bias:
      lines.append('k counting local steps, u renewals of v')
    if self.min_step_norm:
      lines.append(f'steps of a norm below {self.min_step_norm:g} not taken')
    lines.append(self.values)
    return '\n'.join(lines)

  def received_form(self) -> PreconditionedClient:
    """Returns a copy of this optimizer whose v starts from the server's."""
    return dataclasses.replace(self, _receives=True)

  def receive(
    self, state: structures.OptimizerState, v: structures.FlatWeights
  ) -> structures.OptimizerState:
    """Replaces v in a state by the server's, a flat list of leaves."""
    kept = tuple(self.preconditioner.receive(leaf) for leaf in v)
    return collections.OrderedDict(state, preconditioner=kept)

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    state = self.initial_hparams()
    state['step'] = tf.constant(0, tf.int32)
    if self.corrects_bias:
      state['renewals'] = tf.constant(0, tf.int32)
    if self.local_epochs is not None:
      state['examples'] = tf.constant(0, tf.int64)
    state['preconditioner'] = tuple(
      self.preconditioner.start(spec) for spec in tf.nest.flatten(specs)
    )
    if 'beta_1' in self.hparams:
      state['m'] = tree.zeros(specs)
    return state

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    new_state = collections.OrderedDict(state, step=state['step'] + 1)
    renews = self._renews(state, new_state, batch)
    kept, v = self._precondition(state, gradients, renews)
    new_state['preconditioner'] = kept

    m = gradients
    if 'beta_1' in self.hparams:
      m = tree.moving_average(state['beta_1'], state['m'], gradients)
      new_state['m'] = m
    scale_m, scale_v = tf.constant(1.0), tf.constant(1.0)
    if self.corrects_bias:
      new_state['renewals'] = state['renewals'] + tf.cast(renews, tf.int32)
      steps = tf.cast(new_state['step'], tf.float32)
      scale_m = 1 / (1 - tf.pow(state['beta_1'], steps))
      if not self._receives:
        renewals = tf.cast(new_state['renewals'], tf.float32)
        scale_v = 1 / (1 - tf.pow(state['beta_2'], renewals))
    # With v = 0 and epsilon = 0 the step is 0 / 0, which means no step.
    step = tree.map_cast(
      lambda scale_m, scale_v, e, m, v: tf.math.divide_no_nan(
        m * scale_m, tf.sqrt(v * scale_v) + e
      ),
      (scale_m, scale_v, state['epsilon']),
      m,
      v,
    )
    rate = state['learning_rate']
    if self.min_step_norm:
      rate = tf.where(tree.norm(step) < self.min_step_norm, 0.0, rate)
    return new_state, tree.add_scaled(weights, -rate, step)

  def _renews(
    self,
    state: structures.OptimizerState,
    new_state: structures.OptimizerState,
    batch: Optional[protocol.Batch],
  ) -> tf.Tensor:
    """Returns whether v is updated at this step, bool scalar."""
    if self.local_epochs is None:
      return tf.equal(state['step'] % self.delay, 0)
    batch = protocol.require_batch(batch, 'A delay counted in epochs')
    if batch.client_size is None:
      raise TypeError('A delay counted in epochs needs `client_size`.')
    new_state['examples'] = state['examples'] + batch.size
    # A client without examples trains beside others, and counts for nothing.
    size = tf.maximum(batch.client_size, 1)
    epoch = state['examples'] * self.local_epochs // size
    return tf.equal(epoch % self.delay, 0)

  def _precondition(
    self,
    state: structures.OptimizerState,
    gradients: structures.WeightsT,
    renews: tf.Tensor,
  ) -> tuple[tuple, structures.WeightsT]:
    """Returns the preconditioners' state, and v in the gradients' structure."""
    beta_2 = state.get('beta_2', tf.constant(0.0))
    leaves = tf.nest.flatten(gradients)
    kept = state['preconditioner']

    def renew() -> tuple[tuple, structures.FlatWeights]:
      pairs = [
        self.preconditioner.renew(own, tf.square(g), tf.cast(beta_2, g.dtype))
        for own, g in zip(kept, leaves)
      ]
      return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)

    def keep() -> tuple[tuple, structures.FlatWeights]:
      v = tuple(
        tf.broadcast_to(self.preconditioner.read(own), g.shape)
        for own, g in zip(kept, leaves)
      )
      return kept, v

    if self.delay == 1:
      kept, v = renew()
    else:
      kept, v = tree.cond(renews, renew, keep)
    return kept, tf.nest.pack_sequence_as(gradients, list(v))
