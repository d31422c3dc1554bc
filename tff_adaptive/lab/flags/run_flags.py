"""The general flags of a run: values and consistency checks."""

import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tasks
from tff_adaptive import parameters
from tff_adaptive.algorithms import plan as plan_lib
from tff_adaptive.lab.flags import client_tests
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.flags import general as general_lib
from tff_adaptive.lab.flags import participation_flags
from tff_adaptive.lab.flags import settings as settings_lib
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.optimizers.clients import mixes

# Of surrogates, only those that represent bytes can be in a folder's name.
_NAME = re.compile(
  r'(?!\.)[^/\\\x00-\x1f\x7f\ud800-\udc7f\udd00-\udfff]{1,200}'
)
_NO_PATH = re.compile(r'[\x00\ud800-\udc7f\udd00-\udfff]')
_OF_LORA = {
  f'lora_{name}': ('lora_rank',)
  for name in ('rule', 'alpha', 'targets', 'also_train')
}
# Default fraction that is set apart for validation.
_SHARES = {'examples': 0.5, 'clients': 0.1}


def resolve(
  table: flag_table.FlagTable, of_run: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns the general flags by name, with defaults filled in.

  Args:
    table: All flags.
    of_run: Values of the general flags that were given.

  Raises:
    ParameterError: If a flag is not accepted.
  """
  general = {
    name: flag.parameter.check(of_run[name])
    if name in of_run
    else flag.parameter.default
    for name, flag in table.general.items()
  }
  _check_task(general['task'])
  accepted = tasks.parameters_of(general['task'])
  for flag, option in settings_lib.shared_flags(general['task']).items():
    if flag not in of_run and not accepted[option].required:
      general[flag] = accepted[option].default
  there = tasks.info(general['task']).num_clients
  if there is not None and 'clients_per_round' not in of_run:
    general['clients_per_round'] = min(general['clients_per_round'], there)
  if general['num_validation_examples'] == 0:
    raise parameters.ParameterError(
      'num_validation_examples',
      '{} must be -1 (all) or at least 1, got 0.',
    )
  if (
    general['validation_sample'] == 'resampled'
    and general['num_validation_examples'] == -1
  ):
    raise parameters.ParameterError(
      'validation_sample',
      '{}=resampled would be ignored: {num_validation_examples}=-1 evaluates '
      'on all examples; give a number of examples.',
    )
  _set_validation(general)
  _check_target(general['target_metric'])
  metric_names.parse_directions(general['metric_direction'])
  name = general['experiment_name']
  if name is not None and not _NAME.fullmatch(name):
    raise parameters.ParameterError(
      'experiment_name',
      '{} must be a folder name of at most 200 letters, without slashes, '
      'control characters or a leading dot, got {name!r}.',
      name=name[:80],
    )
  root = general['root_output_dir']
  if not root or _NO_PATH.search(root):
    raise parameters.ParameterError(
      'root_output_dir', '{} must name a folder, got {root!r}.', root=root[:80]
    )
  return general


def _check_task(task: str) -> None:
  """Raises `ParameterError` for an unknown task."""
  if not tasks.is_place(task) and task not in tasks.names():
    raise parameters.ParameterError(
      'task',
      '{} must be one of {names}, or PACKAGE.MODULE:FUNCTION of a function '
      'that returns a task, got {given!r}{hint}.',
      names=', '.join(repr(name) for name in tasks.names()),
      hint=parameters.suggestion(task, tasks.names()),
      given=task,
    )


def _set_validation(general: dict[str, Any]) -> None:
  """Fills in the flags of validation data."""
  split = general['validation_split']
  if split is None:
    is_problem = tasks.info(general['task']).test_is_problem
    split = 'test' if is_problem else 'examples'
    general['validation_split'] = split
  share = general['validation_share']
  if split == 'test' and share is not None:
    raise parameters.ParameterError(
      'validation_share',
      '{}={share:g} would be ignored: {validation_split}=test holds nothing '
      'out.',
      share=share,
    )
  if share is None:
    general['validation_share'] = _SHARES.get(split)


def _check_target(target: Optional[str]) -> None:
  if target is None:
    return
  name, _, value = target.rpartition(':')
  try:
    fits = bool(name) and (
      value in ('max', 'min') or math.isfinite(float(value))
    )
  except ValueError:
    fits = False
  if not fits:
    raise parameters.ParameterError(
      'target_metric',
      '{} must be NAME:VALUE, such as accuracy:0.95, or NAME:max or NAME:min, '
      'got {target!r}.',
      target=target,
    )


def check(
  general: dict[str, Any],
  plan: plan_lib.Plan,
  flag_of: Mapping[str, str],
) -> None:
  """Checks the general flags against the method's plan.

  Fills in the flags of client tests and of asynchronous runs.

  Args:
    general: General flags as returned by `resolve`; updated in place.
    plan: The method with its hyperparameters.
    flag_of: The flags that set hyperparameters, by hyperparameter.

  Raises:
    ParameterError: If flags and plan contradict each other.
  """
  _check_accounting(general, plan, flag_of)
  _check_epochs(general['client_epochs_per_round'], plan, flag_of)
  given = [n for n, value in general.items() if value not in (None, False)]
  _check_needed(general, given, plan)
  _check_adapters(general, plan)
  client_tests.resolve(general, plan)
  participation_flags.resolve(general, plan, given)


def _check_needed(
  general: Mapping[str, Any], given: Sequence[str], plan: plan_lib.Plan
) -> None:
  """Raises `ParameterError` for flags that lack a required flag."""
  for name in ('client_steps_per_round', *participation_flags.FLAGS):
    if name in given and not plan.method.has_clients:
      raise parameters.ParameterError(
        name,
        '{} would be ignored: {algorithm}={method} has no clients.',
        method=plan.method.name,
      )
  needs = {**client_tests.NEEDS, **participation_flags.NEEDS, **_OF_LORA}
  for name, needed in needs.items():
    if name in given and not {*needed} & {*given}:
      value = general[name]
      raise parameters.ParameterError(
        name,
        '{}={given} would be ignored without '
        f'{" or ".join(f"{{{other}}}" for other in needed)}.',
        given=f'{value:g}' if isinstance(value, float) else value,
      )


def _check_adapters(general: Mapping[str, Any], plan: plan_lib.Plan) -> None:
  """Checks that the server sees the updates that the rule fedex corrects."""
  if general['lora_rule'] != 'fedex':
    return
  reason = ''
  if not plan.method.has_clients:
    reason = '{algorithm} has no clients to average adapters of'
  elif general['asynchronous']:
    reason = 'with {asynchronous} clients start from different models'
  elif plan.aggregation.formula:
    reason = 'the chosen aggregation hides individual updates from the server'
  if reason:
    raise parameters.ParameterError(
      'lora_rule',
      '{}=fedex corrects the mean of the adapters by what each client sends, '
      f'but {reason}; use lora or ffa.',
    )


def _check_epochs(
  epochs: int, plan: plan_lib.Plan, flag_of: Mapping[str, str]
) -> None:
  """Checks the optimizers' epochs against those of the data."""
  for name in ('local_epochs', 'epochs_mix', 'client_epochs'):
    if name not in flag_of:
      continue
    times = given = plan.values[name]
    if name != 'local_epochs':
      times = mixes.longest(
        plan.values['epochs_mix'], plan.values['client_epochs']
      )
    if times != epochs:
      raise parameters.ParameterError(
        name,
        '{}={given} needs {times} passes over the client data, but '
        '{client_epochs_per_round} is {epochs}.',
        given=given,
        times=times,
        epochs=epochs,
      )


def _check_accounting(
  general: Mapping[str, Any],
  plan: plan_lib.Plan,
  flag_of: Mapping[str, str],
) -> None:
  """Checks the flags of privacy accounting against those of the mechanism."""
  target = general['target_epsilon']
  if plan.private:
    if target and 'dp_noise_multiplier' in flag_of:
      raise parameters.ParameterError(
        'target_epsilon',
        '{} and {dp_noise_multiplier} both set the noise; give one of them.',
      )
    return
  if target is not None:
    raise parameters.ParameterError(
      'target_epsilon',
      '{}={target:g} needs {dp_clip_norm} or {dp_adaptive_clipping}: noise '
      'without clipping gives no privacy.',
      target=target,
    )
  for name in ('dp_delta', 'dp_sampling', 'dp_accounting'):
    if general[name] != getattr(general_lib.AsGiven, name):
      raise parameters.ParameterError(
        name,
        '{}={given} would be ignored: without {dp_clip_norm} there is no '
        'differential privacy.',
        given=general[name],
      )
