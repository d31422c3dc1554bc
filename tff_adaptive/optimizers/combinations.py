"""Hyperparameters of one optimizer that must fit each other.

Importing this module imports no TensorFlow.
"""

from typing import Optional

from tff_adaptive import parameters


def delay_epochs(delay_unit: str, local_epochs: Optional[int]) -> Optional[int]:
  """Returns the local epochs of a round, if a delay is counted in them.

  Raises:
    ParameterError: If it is and they were not given, or the reverse.
  """
  if (delay_unit == 'epochs') != (local_epochs is not None):
    raise parameters.ParameterError(
      'local_epochs',
      '{}, the local epochs of a round, goes with {delay_unit}=epochs and only '
      'with it, got {unit!r} and {epochs!r}.',
      unit=delay_unit,
      epochs=local_epochs,
    )
  return local_epochs


def check_bound(
  smoothing: str, gamma_b: float, client_examples: Optional[int]
) -> None:
  """Holds a largest Polyak step against the smoothing that replaces it.

  Args:
    smoothing: How the bound changes within a round.
    gamma_b: The largest step.
    client_examples: The examples that a client has, if they were given.

  Raises:
    ParameterError: If `gamma_b` is not the bound that such a smoothing starts
      with, or `client_examples` goes with no smoothing: nothing would look at
      it.
  """
  if smoothing == 'bound' and gamma_b != 1:
    raise parameters.ParameterError(
      'gamma_b',
      '{} ({given:g}) would be ignored: with {smoothing}=bound the bound '
      'starts every round at 1; give {smoothing}=step or leave one of them '
      'out.',
      given=gamma_b,
    )
  if smoothing == 'none' and client_examples is not None:
    raise parameters.ParameterError(
      'client_examples',
      '{} ({given}) would be ignored: it is what {smoothing}=bound and '
      '{smoothing}=step grow by; give one of them or leave it out.',
      given=client_examples,
    )
