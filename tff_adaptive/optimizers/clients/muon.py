"""The Muon client optimizer."""

from __future__ import annotations

import collections
import math
from typing import Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tf
from tff_adaptive.optimizers import protocol
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import tree
from tff_adaptive.optimizers.clients import adamw
from tff_adaptive.optimizers.clients import muon_global


@registry.client_optimizer('muon', printed='Muon')
class Muon(protocol.LocalOptimizer):
  """The Muon client optimizer: Jordan et al. 2024, as in arXiv 2505.23725.

  At every local step (MuLoCo's version), for variables of rank 2 or more
  (reshaped to a matrix whose columns are the last axis):

    M = momentum M + g                                  M starts at 0
    x = x - learning_rate (s O(M) + weight_decay x)

  O runs five Newton-Schulz iterations towards U V^T; with `nesterov` its
  argument is g + momentum M. Other variables use `AdamW` with the same learning
  rate and weight decay. Embeddings and output layers are treated as any other
  matrix. The state is reset in every round.
  """

  uses_batch = False

  learning_rate: parameters.Positive = 0.02
  """Step size, in units of x."""

  momentum: parameters.Fraction = 0.95
  """Decay of M per local step."""

  nesterov: bool = False
  """Whether to orthogonalize g + momentum M (Nesterov) instead of M."""

  muon_scale: Literal['spectral', 'rms', 'none'] = 'spectral'
  """Scale s: 'spectral' is sqrt(columns / rows), columns being a kernel's
  outputs; 'rms' is 0.2 sqrt(max(rows, columns)); 'none' is 1. The weight decay
  is not scaled.
  """

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step, for the other variables."""

  beta_2: parameters.Fraction = 0.95
  """Decay of v per local step, for the other variables."""

  epsilon: parameters.NonNegative = 1e-8
  """Adaptivity of the other variables, in units of g."""

  weight_decay: parameters.NonNegative = 0.01
  """lambda of the decoupled decay, per unit of the learning rate."""

  @property
  def formula(self) -> str:
    scale = {
      'spectral': 'sqrt(columns / rows) ',
      'rms': '0.2 sqrt(max(rows, columns)) ',
      'none': '',
    }[self.muon_scale]
    taken = 'g + momentum M' if self.nesterov else 'M'
    return (
      'matrices: M = momentum M + g, from 0\n'
      f'x = x - learning_rate ({scale}O({taken}) + weight_decay x)\n'
      'others: m = beta_1 m + (1 - beta_1) g, v = beta_2 v + (1 - beta_2) g^2,'
      ' from 0\n'
      "m' = m / (1 - beta_1^k), v' = v / (1 - beta_2^k)\n"
      "x = x - learning_rate (m' / (sqrt(v') + epsilon) + weight_decay x)\n"
      + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    small = tuple(muon_global.others(specs))
    return collections.OrderedDict(
      self.initial_hparams(),
      step=tf.constant(0, tf.int32),
      momenta=tuple(tree.zeros(muon_global.matrices(specs))),
      m=tree.zeros(small),
      v=tree.zeros(small),
    )

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
    *,
    batch: Optional[protocol.Batch[structures.WeightsT]] = None,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    large = tuple(muon_global.matrices(gradients))
    momenta = tree.map_cast(
      lambda b, m, g: b * m + g, (state['momentum'],), state['momenta'], large
    )
    taken = momenta
    if self.nesterov:
      taken = tree.map_cast(
        lambda b, m, g: g + b * m, (state['momentum'],), momenta, large
      )
    rest, small = adamw.decayed_step(
      state,
      tuple(muon_global.others(weights)),
      tuple(muon_global.others(gradients)),
    )
    moved = iter(
      self._moved(state, x, t)
      for x, t in zip(muon_global.matrices(weights), taken)
    )
    others = iter(small)
    new_weights = [
      next(moved if x.shape.rank >= 2 else others)
      for x in tf.nest.flatten(weights)
    ]
    return (
      collections.OrderedDict(rest, momenta=momenta),
      tf.nest.pack_sequence_as(weights, new_weights),
    )

  def _moved(
    self, state: structures.OptimizerState, x: tf.Tensor, taken: tf.Tensor
  ) -> tf.Tensor:
    """Computes a matrix after the step."""
    columns = x.shape[-1]
    rows = x.shape.num_elements() // max(columns, 1)
    scale = {
      'spectral': math.sqrt(columns / max(rows, 1)),
      'rms': 0.2 * math.sqrt(max(rows, columns)),
      'none': 1.0,
    }[self.muon_scale]
    rate = tf.cast(state['learning_rate'], x.dtype)
    decay = tf.cast(state['weight_decay'], x.dtype)
    return x - rate * (scale * muon_global.orthogonalized(taken) + decay * x)
