"""A client's Keras model as a function of tensors, over masked batches.

For clients that train together: their weights and metrics are tensors that
`tf.vectorized_map` stacks, and their batches are filled up to one size. The
model's variables are `slots.Slot`s, which are filled before each pass.
"""

import collections
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Optional, TypeVar, Union

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import masking
from tff_adaptive import models
from tff_adaptive import slots
from tff_adaptive import structures
from tff_adaptive import tff_internals
from tff_adaptive.processes import randomness
from tff_adaptive.processes.local import autograph
from tff_adaptive.processes.local import local_model

_Result = TypeVar('_Result')


class Carry(NamedTuple):
  """The model's state from one batch to the next.

  Attributes:
    trainable: The trainable weights.
    others: The other weights, then the metrics' sums.
  """

  trainable: structures.FlatWeights
  others: structures.FlatWeights


class TensorModel(local_model.CarriedModel):
  """A `VariableModel` made by Keras, without variables.

  Attributes:
    mask: Set before each batch.
    may_mix: As `masking.may_mix` says.
  """

  def __init__(self, model_fn: Callable[[], tff.learning.models.VariableModel]):
    """Builds the model, in the graph that is being traced.

    Args:
      model_fn: Builds it.

    Raises:
      MaskError: If its loss or its metrics cannot be masked.
    """
    with slots.in_place_of_variables() as made, models.without_values():
      self._model = model_fn()
      self._seed, self._draws = randomness.seeded(self._model)
    masking.check(self._model)
    self.may_mix = masking.may_mix(self._model)
    self._scale = local_model.loss_scale(self._model)
    weights = tff.learning.models.ModelWeights.from_model(self._model)
    self._weights = tuple(tf.nest.flatten(weights.trainable))
    self._others = (
      *tf.nest.flatten(weights.non_trainable),
      *self._model.local_variables,
    )
    self._none = self._metrics_of_no_data()
    self.residuals = getattr(self._model, 'residuals', ())
    self._represent: Optional[Callable[[structures.Examples], tf.Tensor]] = None
    # By kind of pass, the number of draws of each layer before its first call:
    # all its calls in a step draw the same numbers.
    self._drawn: dict[str, collections.Counter[int]] = {}
    self._most_draws: collections.Counter[int] = collections.Counter()
    for slot in made:
      # Weights, sums of metrics and the seed are; others have no value here.
      slot.must_be_filled = True

  @property
  def _inner(self) -> Any:
    return tff_internals.unwrapped(self._model)

  def _metrics_of_no_data(self) -> list[tf.Tensor]:
    if isinstance(self._inner, models.Keras3Model):
      self._inner.reset_metrics()
    else:
      for metric in tff_internals.metric_objects(self._inner):
        metric.reset_state()
    values = [v.read_value() for v in self._model.local_variables]
    # Keras 2 resets outside of the graph, whose functions capture no tensors.
    return [
      tf.constant(v.numpy()) if hasattr(v, 'numpy') else v for v in values
    ]

  def prepare_representation(self) -> None:
    self._represent = local_model.representation_of(self._model)

  def begin(self, weights: structures.ModelWeights) -> Carry:
    fixed = tf.nest.flatten(weights.non_trainable)
    return Carry(
      tuple(tf.nest.flatten(weights.trainable)), (*fixed, *self._none)
    )

  def _pass(self, kind: str, carry: Carry, call: Callable[[], _Result]) -> Any:
    """Fills the slots, and calls the model with the draws of this kind."""
    for slot, value in zip(
      (*self._weights, *self._others), (*carry.trainable, *carry.others)
    ):
      slot.assign(value)
    self._draws.clear()
    self._draws.update(self._drawn.setdefault(kind, self._most_draws.copy()))
    result = call()
    self._most_draws |= self._draws
    return result

  def evaluate(
    self, carry: Carry, batch: structures.Examples, term: local_model.Term
  ) -> tuple[Carry, local_model.Evaluated]:
    with tf.GradientTape(watch_accessed_variables=False) as tape:
      tape.watch(carry.trainable)
      loss = self._pass(
        'forward',
        carry,
        lambda: autograph.call(masking.forward, self._model, batch, self.mask),
      )[0]
      others = tuple(slot.read_value() for slot in self._others)
      added = term(carry.trainable, lambda: self._representation(carry, batch))
      loss = tf.cast(loss, tf.float32) + added
      scaled = loss * self._scale
    gradients = tape.gradient(
      scaled,
      carry.trainable,
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )
    evaluated = local_model.Evaluated(
      loss,
      local_model.dense(gradients, carry.trainable, self._scale),
      self.batch_size(batch),
    )
    return carry._replace(others=others), evaluated

  def loss(
    self, weights: structures.ModelWeights, batch: structures.Examples
  ) -> tf.Tensor:
    """Returns the loss of a batch as in evaluation, scalar."""
    return self._pass(
      'loss',
      self.begin(weights),
      lambda: autograph.call(
        masking.forward, self._model, batch, training=False
      ),
    )[0]

  def loss_somewhere(self, batch: structures.Examples) -> tf.Tensor:
    """Returns the loss of a batch, scalar, at random weights."""
    self.set_seed(lambda: tf.constant([0, 0]))
    weights = [
      tf.random.stateless_normal(w.shape, [0, i], stddev=0.3, dtype=w.dtype)
      for i, w in enumerate(self._weights)
    ]
    fixed = self._others[: -len(self._none)]
    # Positive, as variances are.
    others = [
      tf.random.stateless_uniform(w.shape, [1, i], 0.5, 1.5, w.dtype)
      if w.dtype.is_floating
      else tf.ones(w.shape, w.dtype)
      for i, w in enumerate(fixed)
    ]
    carry = Carry(tuple(weights), (*others, *self._none))
    return self.evaluate(carry, batch, lambda *_: tf.constant(0.0))[1].loss

  def gradients_at(
    self,
    carry: Carry,
    weights: structures.FlatWeights,
    batch: structures.Examples,
    term: local_model.Term,
  ) -> structures.FlatWeights:
    elsewhere = self.with_trainable(carry, weights)
    return self.evaluate(elsewhere, batch, term)[1].gradients

  def represent_at(
    self,
    carry: Carry,
    weights: structures.FlatWeights,
    batch: structures.Examples,
  ) -> tf.Tensor:
    return self._representation(self.with_trainable(carry, weights), batch)

  def _representation(
    self, carry: Carry, batch: structures.Examples
  ) -> tf.Tensor:
    represent = self._represent
    assert represent is not None, 'prepare_representation comes first.'
    return self._pass('represent', carry, lambda: represent(batch))

  def metrics(
    self, carry: Carry, discard: Union[bool, tf.Tensor]
  ) -> structures.Metrics:
    counted: Sequence[tf.Tensor] = carry.others[-len(self._none) :]
    values = iter(
      [tf.where(discard, none, own) for none, own in zip(self._none, counted)]
    )
    inner = self._inner
    if isinstance(inner, models.Keras3Model):
      variables = [(m.name, m.variables) for m in inner.metric_states]
    else:
      variables = [(m.name, m.variables) for m in inner.get_metrics()]
    return collections.OrderedDict(
      (name, [next(values) for _ in own]) for name, own in variables
    )
