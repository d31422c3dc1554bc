"""Gradient descent with momentum, for clients and servers."""

import tensorflow_federated as tff

from tff_adaptive import parameters


@parameters.checked
def build_sgd(
  *,
  learning_rate: parameters.Positive = 0.1,
  momentum: parameters.Fraction = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds stochastic gradient descent for clients.

    m = momentum m + g              m starts at 0 in every round
    x = x - learning_rate m

  No dampening and no Nesterov step: `tff.learning.optimizers.build_sgdm`.

  Args:
    learning_rate: Step size, in units of x per gradient.
    momentum: Decay of the velocity per step; 0 for plain SGD.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)


@parameters.checked
def build_server_sgd(
  *,
  learning_rate: parameters.Positive = 1.0,
  momentum: parameters.Fraction = 0.0,
) -> tff.learning.optimizers.Optimizer:
  """Builds FedAvg's and FedAvgM's server: Reddi et al., arXiv 2003.00295.

  With Delta the mean client update (the gradient handed in is -Delta):

    m = momentum m + Delta          m starts at 0
    x = x + learning_rate m

  McMahan et al.'s FedAvg is learning_rate = 1 and momentum = 0; FedAvgM has
  momentum 0.9.

  Args:
    learning_rate: Server step, in units of Delta; 1 averages the client models.
    momentum: Decay of the velocity per round.

  Raises:
    ParameterError: If a hyperparameter is outside its range.
  """
  return tff.learning.optimizers.build_sgdm(learning_rate, momentum or None)
