"""Clients that sample their optimizer, local epochs and delay in each round."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, Optional

from tff_adaptive import optimizers
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import mixes

# One state per optimizer in the mix.
_States = tuple['structures.OptimizerState', ...]


@registry.client_optimizer('blended', of_method=True)
class Blended(protocol.LocalOptimizer):
  """The blended clients of FedAda2 (arXiv 2410.18117), Algorithm 5.

  In every round each client samples its local optimizer O as a function of
  (seed, round, client) alone. In the paper, O determines the client's number of
  local epochs K(O), its delay z, the initial value of v and the weight w(O) of
  its pseudo-gradient. For optimizers without epochs or a delay of their own,
  these are sampled independently of the optimizer.
  """

  draws = True
  needs_client_size = True

  client_mix: str = 'adam=0.25,adagrad=0.25,sgd=0.25,sm3_adagrad=0.25'
  """Optimizers and their probabilities (summing to 1), such as
  'adam=0.5,sgd=0.5'.
  """

  client_learning_rates: str = ''
  """Learning rates of optimizers in the mix, such as 'adam=0.001,sgd=0.1'; by
  default each optimizer's own.
  """

  client_delays: str = ''
  """Delays z of optimizers in the mix, such as 'adam=5'."""

  client_epochs: str = ''
  """Local epochs of optimizers in the mix, such as 'sgd=2'. The client data
  must be repeated for the largest number of epochs that can be sampled.
  """

  client_starts: str = ''
  """Initial v of optimizers in the mix, such as 'adam=0.01'; 0 by default."""

  client_weights: str = ''
  """w, the scale of the updates of optimizers in the mix, such as 'sgd=0.5'; 1
  by default.
  """

  delay_mix: str = '1=1'
  """Delays z and their probabilities, such as '1=0.5,5=0.5'."""

  epochs_mix: str = '1=1'
  """Local epochs and their probabilities."""

  def check(self) -> None:
    _ = self.mix  # Raises if a mix cannot be parsed.

  @functools.cached_property
  def mix(self) -> mixes.Mix:
    """The parsed choices and their probabilities."""
    words = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
    return mixes.read(**words)

  @functools.cached_property
  def _families(self) -> list[dict[int, tff.learning.optimizers.Optimizer]]:
    # One branch per optimizer and delay. An optimizer without a delay, or with
    # one of its own, ignores the sampled delay.
    return [
      {
        delay: optimizers.client(
          name,
          **{
            **(
              {'delay': delay}
              if 'delay' in optimizers.parameters_of('client', name)
              else {}
            ),
            **self.mix.settings[name],
          },
        )
        for delay in self.mix.delays
      }
      for name in self.mix.optimizers
    ]

  @property
  def weighs(self) -> bool:
    """Whether each optimizer's pseudo-gradient has a weight of its own."""
    return bool(self.mix.weights)

  def weight_of(self, state: structures.OptimizerState) -> tf.Tensor:
    """Returns w of the sampled optimizer, float32 scalar."""
    weights = [self.mix.weights.get(name, 1.0) for name in self.mix.optimizers]
    return tf.gather(tf.constant(weights, tf.float32), state['optimizer'])

  @property
  def choices(self) -> list[tff.learning.optimizers.Optimizer]:
    """Every combination of optimizer and delay that a client may sample."""
    return [o for family in self._families for o in family.values()]

  @property
  def formula(self) -> str:
    def listed(mix: Mapping[str, float] | Mapping[int, float]) -> str:
      return ', '.join(f'{word} ({share:g})' for word, share in mix.items())

    own: dict[str, Any] = {
      name: dict(settings) for name, settings in self.mix.settings.items()
    }
    for word, values in (
      ('epochs', self.mix.own_epochs),
      ('weight', self.mix.weights),
    ):
      for name, value in values.items():
        own[name][word] = value
    lines = [
      'each client draws in every round',
      f'  its optimizer from {listed(self.mix.optimizers)}',
      f'  its delay z from {listed(self.mix.delays)}',
      f'  its local epochs from {listed(self.mix.epochs)}',
    ]
    for name, values in own.items():
      if values:
        assignments = ', '.join(f'{k} = {v:g}' for k, v in values.items())
        lines.append(f'  with {name}: {assignments}')
    if self.weighs:
      lines.append('a client sends weight times its update')
    return '\n'.join(lines)

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      optimizer=tf.constant(0, tf.int32),
      delay=tf.constant(0, tf.int32),
      # The state's structure does not depend on the delay.
      states=tuple(
        tf.nest.map_structure(
          tf.convert_to_tensor,
          next(iter(family.values())).initialize(specs),
        )
        for family in self._families
      ),
    )

  def draw(
    self,
    state: structures.OptimizerState,
    seed: tf.Tensor,
    num_batches: tf.Tensor,
  ) -> tuple[structures.OptimizerState, tf.Tensor]:
    """Samples the client's optimizer, delay and epochs.

    Args:
      state: The state returned by `initialize`.
      seed: int32 of shape [2].
      num_batches: Number of batches in the client's data, int64 scalar. The
        data is repeated for the largest number of epochs that a client may
        sample.

    Returns:
      The state and the number of batches to use.
    """
    uniform = tf.random.stateless_uniform([3], seed)
    mix = self.mix
    chosen = _pick(mix.optimizers, uniform[0])
    drawn = tf.gather(
      tf.constant(list(mix.epochs), tf.int64), _pick(mix.epochs, uniform[2])
    )
    own = tf.gather(
      tf.constant(
        [mix.own_epochs.get(name, 0) for name in mix.optimizers], tf.int64
      ),
      chosen,
    )
    epochs = tf.where(own > 0, own, drawn)
    longest = mix.longest
    used = (num_batches * epochs + longest - 1) // longest
    return (
      collections.OrderedDict(
        state,
        optimizer=chosen,
        delay=_pick(mix.delays, uniform[1]),
      ),
      used,
    )

  def gradient_point(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    context: structures.FlatWeights,
  ) -> Optional[structures.WeightsT]:
    """Returns the sampled optimizer's point; `None` if no optimizer has one."""
    firsts = [next(iter(family.values())) for family in self._families]
    points = [
      first.gradient_point(own, weights, context)
      if isinstance(first, protocol.LocalOptimizer)
      else None
      for first, own in zip(firsts, state['states'])
    ]
    if all(point is None for point in points):
      return None
    return tree.switch(
      state['optimizer'],
      [
        functools.partial(lambda p: weights if p is None else p, point)
        for point in points
      ],
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: protocol.Batch[structures.WeightsT] | None = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    batch = protocol.require_batch(batch, 'A blended client')
    gradients = tree.dense(weights, gradients)

    def branch(
      index: int, optimizer: tff.learning.optimizers.Optimizer
    ) -> Callable[[], tuple[_States, structures.WeightsT]]:
      def step() -> tuple[_States, structures.WeightsT]:
        own, moved = protocol.take_step(
          optimizer, state['states'][index], weights, gradients, batch
        )
        own = tf.nest.map_structure(tf.convert_to_tensor, own)
        states = list(state['states'])
        states[index] = own
        return tuple(states), moved

      return step

    branches = [
      branch(index, optimizer)
      for index, family in enumerate(self._families)
      for optimizer in family.values()
    ]
    chosen = state['optimizer'] * len(self.mix.delays) + state['delay']
    states, weights = tree.switch(chosen, branches)
    return collections.OrderedDict(state, states=states), weights


def _pick(
  mix: Mapping[str, float] | Mapping[int, float], uniform: tf.Tensor
) -> tf.Tensor:
  """Finds the index of the choice that a uniform number in [0, 1) selects."""
  ends = tf.cumsum(tf.constant(list(mix.values()), tf.float32))
  # Rounding may leave the last end slightly below 1.
  index = tf.reduce_sum(tf.cast(uniform >= ends, tf.int32))
  return tf.minimum(index, len(mix) - 1)
