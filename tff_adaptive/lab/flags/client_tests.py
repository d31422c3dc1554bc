"""Flags of the evaluation on individual clients."""

import re
from typing import Any

from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib

_SHARE = 0.2
# Each flag requires the listed flag.
NEEDS = {
  'client_test_share': ('evaluate_clients',),
  'finetune_epochs': ('evaluate_clients',),
  'evaluate_clients_under_dp': ('evaluate_clients',),
  'finetune_learning_rate': ('finetune_epochs',),
}


def resolve(general: dict[str, Any], plan: plan_lib.Plan) -> None:
  """Checks the flags and fills in defaults.

  Args:
    general: General flags by name; updated in place.
    plan: The run's plan.

  Raises:
    ParameterError: If a flag is not accepted or lacks a required flag.
  """
  clients = general['evaluate_clients']
  if clients is None:
    return
  if clients != 'all' and not re.fullmatch('0*[1-9][0-9]{0,8}', clients):
    raise parameters.ParameterError(
      'evaluate_clients',
      "{} must be 'all' or an integer of at least 1, got {given!r}.",
      given=clients,
    )
  if plan.private and not general['evaluate_clients_under_dp']:
    raise parameters.ParameterError(
      'evaluate_clients',
      '{} records metrics of individual clients, which differential privacy '
      'does not protect; give {evaluate_clients_under_dp} to allow it.',
    )
  if general['client_test_share'] is None:
    general['client_test_share'] = _SHARE
  if general['finetune_epochs'] and general['finetune_learning_rate'] is None:
    rate = plan.values.get('client_learning_rate')
    if not rate:
      raise parameters.ParameterError(
        'finetune_epochs',
        '{} needs {finetune_learning_rate}: the clients of this run have no '
        'learning rate to default to.',
      )
    general['finetune_learning_rate'] = float(rate)
