"""Clients that draw their own local optimizer, epochs and delay."""

import collections
from collections.abc import Callable
from collections.abc import Mapping

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import optimizers
from tff_adaptive import structures
from tff_adaptive.optimizers import mixes
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import tree

# A state of each optimizer that a client may draw.
_States = tuple[structures.OptimizerState, ...]


class Blended(protocol.LocalOptimizer):
  """See `build_blended`."""

  draws = True
  needs_client_size = True

  def __init__(
    self,
    shares: Mapping[str, float],
    rates: Mapping[str, float],
    delays: Mapping[int, float],
    epochs: Mapping[int, float],
  ):
    super().__init__()
    self._shares, self._delays, self._epochs = shares, delays, epochs
    # A branch for every optimizer and delay; optimizers without a delay have
    # one branch whatever the delay drawn.
    self._families = [
      {
        delay: optimizers.client(
          name,
          **({'learning_rate': rates[name]} if name in rates else {}),
          **({'delay': delay} if _has_delay(name) else {}),
        )
        for delay in delays
      }
      for name in shares
    ]

  @property
  def choices(self) -> list[tff.learning.optimizers.Optimizer]:
    """Everything that a client may draw."""
    return [o for family in self._families for o in family.values()]

  @property
  def formula(self) -> str:
    def listed(mix: Mapping[str, float] | Mapping[int, float]) -> str:
      return ', '.join(f'{word} ({share:g})' for word, share in mix.items())

    return (
      'each client draws in every round\n'
      f'  its optimizer from {listed(self._shares)}\n'
      f'  its delay z from {listed(self._delays)}\n'
      f'  its local epochs from {listed(self._epochs)}'
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(
      optimizer=tf.constant(0, tf.int32),
      delay=tf.constant(0, tf.int32),
      # The delay decides when state changes, not what it is made of.
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
    """Draws the client's choices.

    Args:
      state: As `initialize` made it.
      seed: int32 of shape [2].
      num_batches: Batches that the client's data has, int64 scalar; its epochs
        are the largest that `epochs_mix` names.

    Returns:
      The state, and how many of the batches to use.
    """
    uniform = tf.random.stateless_uniform([3], seed)
    epochs = tf.gather(
      tf.constant(list(self._epochs), tf.int64),
      _pick(self._epochs, uniform[2]),
    )
    longest = max(self._epochs)
    used = (num_batches * epochs + longest - 1) // longest
    return (
      collections.OrderedDict(
        state,
        optimizer=_pick(self._shares, uniform[0]),
        delay=_pick(self._delays, uniform[1]),
      ),
      used,
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
    chosen = state['optimizer'] * len(self._delays) + state['delay']
    states, weights = tf.switch_case(chosen, branches)
    return collections.OrderedDict(state, states=states), weights


def _has_delay(name: str) -> bool:
  return 'delay' in optimizers.parameters_of('client', name)


def _pick(
  mix: Mapping[str, float] | Mapping[int, float], uniform: tf.Tensor
) -> tf.Tensor:
  """Finds the index of the choice that a uniform number in [0, 1) falls on."""
  ends = tf.cumsum(tf.constant(list(mix.values()), tf.float32))
  # Rounding may leave the last end a little below 1.
  index = tf.reduce_sum(tf.cast(uniform >= ends, tf.int32))
  return tf.minimum(index, len(mix) - 1)


def build_blended(
  *,
  client_mix: str = 'adam=0.25,adagrad=0.25,sgd=0.25,sm3_adagrad=0.25',
  client_learning_rates: str = '',
  delay_mix: str = '1=1',
  epochs_mix: str = '1=1',
) -> tff.learning.optimizers.Optimizer:
  """Builds FedAda2's blended clients (arXiv 2410.18117), Algorithm 5.

  In every round each client draws its local optimizer, how many of its epochs
  it runs and its delay, independently and as a function of (seed, round,
  client) alone.

  Args:
    client_mix: Optimizers with their shares, summing to 1, such as
      'adam=0.5,sgd=0.5'.
    client_learning_rates: Rates of optimizers in the mix, such as
      'adam=0.001,sgd=0.1'; each optimizer's own default unless given.
    delay_mix: Delays z with their shares, such as '1=0.5,5=0.5'.
    epochs_mix: Local epochs with their shares; the data must be repeated for
      the largest of them.

  Raises:
    ParameterError: If a mix cannot be read or its shares do not sum to 1.
  """
  mix = mixes.read(
    client_mix=client_mix,
    client_learning_rates=client_learning_rates,
    delay_mix=delay_mix,
    epochs_mix=epochs_mix,
  )
  return Blended(mix.optimizers, mix.rates, mix.delays, mix.epochs)
