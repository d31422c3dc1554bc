"""The server optimizer of FedAvg and FedAvgM."""

from __future__ import annotations

import collections
from typing import ClassVar

from tff_adaptive import parameters
from tff_adaptive import structures
from tff_adaptive.lazy import tff
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers import rule
from tff_adaptive.optimizers import tree


@registry.server_optimizer('sgd', printed='SGD')
class ServerSgd(parameters.Described):
  """The FedAvg and FedAvgM server optimizer: Reddi et al., arXiv 2003.00295.

  With Delta the mean client update (the gradient passed in is -Delta):

    m = momentum m + Delta          m starts at 0
    x = x + learning_rate m

  McMahan et al.'s FedAvg has learning_rate = 1 and momentum = 0; FedAvgM has
  momentum 0.9. With `nesterov`, as in DiLoCo's outer optimizer (arXiv
  2311.08105), the step uses the new m:

    x = x + learning_rate (Delta + momentum m)
  """

  in_state: ClassVar[frozenset[str]] = frozenset({'learning_rate', 'momentum'})
  later: ClassVar[frozenset[str]] = frozenset({'nesterov'})

  learning_rate: parameters.Positive = 1.0
  """Server step, in units of Delta; 1 averages the client models."""

  momentum: parameters.Fraction = 0.0
  """Decay of the velocity per round."""

  nesterov: bool = False
  """Whether to use Nesterov momentum; requires a momentum above 0."""

  def check(self) -> None:
    if self.nesterov and not self.momentum:
      raise parameters.ParameterError(
        'nesterov', '{} would be ignored: {momentum} is 0.'
      )

  def build(self) -> tff.learning.optimizers.Optimizer:
    if self.nesterov:
      return Nesterov(
        learning_rate=self.learning_rate, momentum=self.momentum
      ).build()
    return tff.learning.optimizers.build_sgdm(
      self.learning_rate, self.momentum or None
    )


class Nesterov(rule.Rule):
  """The step of `ServerSgd` with `nesterov`."""

  learning_rate: parameters.Positive
  """Server step, in units of Delta."""

  momentum: parameters.Fraction
  """Decay of the velocity per round."""

  @property
  def formula(self) -> str:
    return (
      'm = momentum m + Delta, from 0\n'
      'x = x + learning_rate (Delta + momentum m)\n' + self.values
    )

  def initialize(self, specs: structures.Specs) -> structures.OptimizerState:
    return collections.OrderedDict(self.initial_hparams(), m=tree.zeros(specs))

  def next(
    self,
    state: structures.OptimizerState,
    weights: structures.WeightsT,
    gradients: structures.WeightsT,
  ) -> tuple[structures.OptimizerState, structures.WeightsT]:
    gradients = tree.dense(weights, gradients)
    m = tree.map_cast(
      lambda b, m, g: b * m + g, (state['momentum'],), state['m'], gradients
    )
    weights = tree.map_cast(
      lambda rate, b, x, g, m: x - rate * (g + b * m),
      (state['learning_rate'], state['momentum']),
      weights,
      gradients,
      m,
    )
    return collections.OrderedDict(state, m=m), weights
