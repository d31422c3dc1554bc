"""The SM3 client optimizers: adaptive steps with sublinear memory."""

from __future__ import annotations

from typing import Literal

from tff_adaptive import parameters
from tff_adaptive.optimizers import registry
from tff_adaptive.optimizers.clients import preconditioned

_FORMS = {
  'I': '{decay}mu(r) {plus} max of g^2 over slice r; v = min of mu',
  'II': 'v = {decay}min of mu {plus} g^2; mu(r) = max of v over slice r',
}


class _Sm3(preconditioned.PreconditionedClient):
  """A client optimizer whose v is the minimum of maxima over slices."""

  form: Literal['I', 'II'] = 'II'
  """How slice accumulators are updated with the squared gradient."""

  initial_accumulator: parameters.NonNegative = 0.0
  """Initial value of mu, and thus of v, in every round."""

  delay: parameters.Count = 1
  """z: mu is updated at every z-th local step, starting with the first."""

  delay_unit: Literal['steps', 'epochs'] = 'steps'
  """Unit of the delay. With 'epochs', mu is updated at every step of local
  epochs 0, z, 2 z, ... and frozen in the others.
  """

  def _sm3(self, rule: preconditioned.Rule) -> preconditioned.Sm3:
    return preconditioned.Sm3(rule, self.form, self.initial_accumulator)


@registry.client_optimizer('sm3_adagrad', printed='SM3-Adagrad', adaptive=True)
class Sm3Adagrad(_Sm3):
  """The SM3-AdaGrad client optimizer of FedAda2 (arXiv 2410.18117).

  With S_r the slices of co-dimension 1 of a tensor, at local step k, form II
  (Algorithm 4):

    v(j)  = min over r with j in S_r of mu(r) + g(j)^2
    mu(r) = max over j in S_r of v(j)
    x     = x - learning_rate g / (sqrt(v) + epsilon)

  Form I (Algorithm 3): mu(r) = mu(r) + max over j in S_r of g(j)^2, and v(j) is
  the minimum of mu. At steps without an update the paper keeps v; this
  implementation stores only mu and takes its minimum, so that nothing of the
  tensor's size is stored.
  """

  learning_rate: parameters.Positive = 0.01
  """Step size, in units of x."""

  @property
  def preconditioner(self) -> preconditioned.Sm3:
    return self._sm3(preconditioned.adagrad_rule)

  @property
  def rule_text(self) -> str:
    return _FORMS[self.form].format(decay='', plus='+')


@registry.client_optimizer('sm3_adam', printed='SM3-Adam', adaptive=True)
class Sm3Adam(_Sm3):
  """The SM3-Adam client optimizer: FedAda2, arXiv 2410.18117.

  `Sm3Adagrad` with

    v(j) = beta_2 min over r of mu(r) + (1 - beta_2) g(j)^2
    m    = beta_1 m + (1 - beta_1) g
    x    = x - learning_rate m / (sqrt(v) + epsilon)

  There is no bias correction. SM3 saves the memory of v; m has the size of the
  weights.
  """

  learning_rate: parameters.Positive = 0.001
  """Step size, in units of x."""

  beta_1: parameters.Fraction = 0.9
  """Decay of m per local step."""

  beta_2: parameters.Fraction = 0.999
  """Decay of v per update of v."""

  @property
  def preconditioner(self) -> preconditioned.Sm3:
    return self._sm3(preconditioned.adam_rule)

  @property
  def rule_text(self) -> str:
    return _FORMS[self.form].format(decay='beta_2 ', plus='+ (1 - beta_2)')
