"""From a name and hyperparameters to a checked plan, without TensorFlow."""

import collections
import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import registry
from tff_adaptive.optimizers import schedules
from tff_adaptive.privacy import mechanism as privacy

_FOLDER = pathlib.Path(__file__).parent
_SIDES = ('client', 'server')


def common(
  *,
  client_weighting: Literal['examples', 'uniform', 'tokens'] = 'examples',
  proximal_strength: parameters.NonNegative = 0.0,
  client_warmup_steps: parameters.NonNegativeInt = 0,
  seed: parameters.NonNegativeInt = 0,
  record_step_sizes: bool = False,
) -> None:
  """What every method accepts; only the signature is used.

  Args:
    client_weighting: Whether clients count by the examples that they iterated,
      all alike, or by the tokens that they predicted, as the FedOpt code of
      2021 did for words and characters.
    proximal_strength: mu of the term (mu / 2) |x - x_t|^2 added to the clients'
      loss (FedProx); 0 for none.
    client_warmup_steps: Local steps in every round over which the client's
      learning rate rises to its value (FedAda2's warm-up); 0 for none.
    seed: Seed of what is random inside a round (dropout).
    record_step_sizes: Whether every client's own step sizes are measured, not
      only the cohort's; a run writes them to step_sizes.csv, a row a client and
      round.
  """
  del client_weighting, proximal_strength, client_warmup_steps, seed
  del record_step_sizes


@dataclasses.dataclass(frozen=True)
class Plan:
  """A method with everything chosen.

  Attributes:
    method: The method's row.
    optimizer: Per side, an optimizer's name or the object that was given.
    optimizer_arguments: Per side, what to build a named optimizer with.
    schedule_arguments: Per side, what to build a learning-rate schedule with,
      empty for a constant rate.
    rate: Per side, the learning rate to schedule.
    common: Values for `common`'s parameters.
    own: Values for the parameters of the method's own module.
    model_aggregator: As given.
    aggregation: How updates are aggregated otherwise.
  """

  method: registry.Method
  optimizer: Mapping[str, Any]
  optimizer_arguments: Mapping[str, Mapping[str, Any]]
  schedule_arguments: Mapping[str, Mapping[str, Any]]
  rate: Mapping[str, Optional[float]]
  common: Mapping[str, Any]
  own: Mapping[str, Any]
  model_aggregator: Any
  aggregation: privacy.Aggregation


def method_of(name: str) -> registry.Method:
  """Looks a method up.

  Raises:
    ParameterError: If there is none of that name.
  """
  if not isinstance(name, str) or name not in registry.METHODS:
    raise parameters.ParameterError(
      f'The algorithm must be one of {", ".join(registry.METHODS)}, got '
      f'{name!r}.'
    )
  return registry.METHODS[name]


@dataclasses.dataclass(frozen=True)
class _Slot:
  """Where a public hyperparameter goes: a group and its name there."""

  group: str
  name: str
  parameter: parameters.Parameter


def _slots(
  method: registry.Method, chosen: Mapping[str, Any]
) -> Mapping[str, _Slot]:
  """Every hyperparameter that the method accepts with these optimizers."""
  slots = collections.OrderedDict()

  def add(public: str, group: str, parameter: parameters.Parameter) -> None:
    if public in method.hides:
      return
    if public in method.defaults:
      parameter = dataclasses.replace(
        parameter, default=method.defaults[public]
      )
    slots[public] = _Slot(
      group, parameter.name, dataclasses.replace(parameter, name=public)
    )

  for side in _SIDES:
    has_rate = True
    if isinstance(chosen[side], str):
      accepted = optimizers.parameters_of(side, chosen[side])
      has_rate = 'learning_rate' in accepted
      for name, parameter in accepted.items():
        public = optimizers.public_name(side, name, chosen[side])
        add(public, side, parameter)
    if has_rate:
      for name, parameter in parameters.read_signature(
        _FOLDER.parent / 'optimizers' / 'schedules.py', 'build_schedule'
      ).items():
        add(f'{side}_{name}', f'{side}_schedule', parameter)
  for name, parameter in parameters.read_signature(
    _FOLDER.parent / 'privacy' / 'mechanism.py', 'aggregation'
  ).items():
    add(name, 'aggregation', parameter)
  useful = {
    'client_warmup_steps': 'client_lr_schedule' in slots,
    'record_step_sizes': not isinstance(chosen['client'], str)
    or optimizers.chooses_step_size(chosen['client']),
  }
  for name, parameter in parameters.read_signature(__file__, 'common').items():
    if useful.get(name, True):
      add(name, 'common', parameter)
  if method.module is not None:
    for name, parameter in parameters.read_signature(
      _FOLDER / f'{method.module}.py', method.function
    ).items():
      add(name, 'own', parameter)
  return slots


def _choose(
  method: registry.Method, given: Mapping[str, Any]
) -> Mapping[str, Any]:
  """The optimizer of each side: a name or an object."""
  chosen = {}
  for side in _SIDES:
    own = getattr(method, side)
    choice = given.get(f'{side}_optimizer')
    if choice is None or choice == own:
      chosen[side] = own
    elif side in method.fixes:
      raise parameters.ParameterError(
        f'The algorithm {method.name} has its own {side} optimizer, {own}: '
        f'`{side}_optimizer` cannot be {choice!r}.'
      )
    else:
      if isinstance(choice, str):
        accepted = getattr(optimizers, f'{side}_names')()
        if choice not in accepted:
          raise parameters.ParameterError(
            f'`{side}_optimizer` must be one of {", ".join(accepted)}, got '
            f'{choice!r}.'
          )
      chosen[side] = choice
      allowed = method.accepts.get(side)
      if isinstance(choice, str) and allowed and choice not in allowed:
        raise parameters.ParameterError(
          f'The algorithm {method.name} accepts the {side} optimizers '
          f'{", ".join(allowed)}, got {choice!r}.'
        )
  return chosen


def parameters_of(
  name: str,
  client_optimizer: Any = None,
  server_optimizer: Any = None,
) -> Mapping[str, parameters.Parameter]:
  """See `algorithms.parameters_of`."""
  method = method_of(name)
  chosen = _choose(
    method,
    dict(client_optimizer=client_optimizer, server_optimizer=server_optimizer),
  )
  return collections.OrderedDict(
    (public, slot.parameter) for public, slot in _slots(method, chosen).items()
  )


def resolve(name: str, given: Mapping[str, Any]) -> Plan:
  """Checks the hyperparameters of a method and says where each goes.

  Raises:
    ParameterError: As `algorithms.build` says.
  """
  method = method_of(name)
  chosen = _choose(method, given)
  slots = _slots(method, chosen)
  elsewhere = {'client_optimizer', 'server_optimizer', 'model_aggregator'}
  for word in given:
    if word not in slots and word not in elsewhere:
      raise parameters.ParameterError(
        f'The algorithm {name} with client optimizer '
        f'{_called(chosen["client"])} and server optimizer '
        f'{_called(chosen["server"])} has no use for `{word}`; it accepts '
        f'{", ".join(sorted(set(slots) | elsewhere))}.'
      )
  groups: dict[str, dict[str, Any]] = collections.defaultdict(dict)
  for public, slot in slots.items():
    if public in given:
      value = _weighting_word(given[public])
      groups[slot.group][slot.name] = slot.parameter.check(value)
    elif not slot.parameter.required:
      groups[slot.group][slot.name] = slot.parameter.default
    else:
      raise parameters.ParameterError(f'The algorithm {name} needs `{public}`.')
  aggregation = _aggregation(method, groups, given)
  rates = {}
  for side in _SIDES:
    if isinstance(chosen[side], str):
      optimizers.check(side, chosen[side], groups[side])
    rates[side] = groups[side].get('learning_rate')
    settings = groups[f'{side}_schedule']
    try:
      scheduled = schedules.build_schedule(rates[side] or 1.0, **settings)
    except parameters.ParameterError as e:
      raise parameters.ParameterError(
        str(e).replace('lr_', f'{side}_lr_')
      ) from e
    if scheduled is None:
      settings.clear()
    elif rates[side] is None:
      raise parameters.ParameterError(
        f'A {side} learning-rate schedule needs the {side} optimizer by name.'
      )
  return Plan(
    method,
    chosen,
    {side: dict(groups[side]) for side in _SIDES},
    {side: dict(groups[f'{side}_schedule']) for side in _SIDES},
    rates,
    dict(groups['common']),
    dict(groups['own']),
    given.get('model_aggregator'),
    aggregation,
  )


def _aggregation(
  method: registry.Method,
  groups: Mapping[str, dict[str, Any]],
  given: Mapping[str, Any],
) -> privacy.Aggregation:
  """Checks how updates are aggregated against the rest.

  Under differential privacy clients weigh the same unless asked otherwise,
  which is refused.
  """
  aggregation = privacy.check(groups['aggregation'])
  if given.get('model_aggregator') is not None:
    usual = parameters.read_signature(
      _FOLDER.parent / 'privacy' / 'mechanism.py', 'aggregation'
    )
    for name, parameter in usual.items():
      if groups['aggregation'][name] != parameter.default:
        raise parameters.ParameterError(
          f'`{name}` would be ignored: `model_aggregator` is given.'
        )
  if not aggregation.private:
    return aggregation
  if method.unnoised and groups['own'].get('count') != 'round':
    raise parameters.ParameterError(
      f'The algorithm {method.name} has no differential privacy: its clients '
      f'send {method.unnoised} beside their update, to which no noise is '
      'added.'
    )
  if groups['common'].get('record_step_sizes'):
    raise parameters.ParameterError(
      '`record_step_sizes` does not go with differential privacy: it writes '
      'down what each client did, to which no noise is added; give one of '
      'them.'
    )
  weighting = groups['common']
  if 'client_weighting' not in given:
    weighting['client_weighting'] = 'uniform'
  elif weighting['client_weighting'] != 'uniform':
    raise parameters.ParameterError(
      "`client_weighting` must be 'uniform' under differential privacy, got "
      f'{weighting["client_weighting"]!r}: how much a client counts must not '
      'depend on its data.'
    )
  return aggregation


def _called(optimizer: Any) -> str:
  return optimizer if isinstance(optimizer, str) else type(optimizer).__name__


def _weighting_word(value: Any) -> Any:
  """tff.learning's `ClientWeighting` values, by this package's words."""
  words = {'NUM_EXAMPLES': 'examples', 'UNIFORM': 'uniform'}
  if type(value).__name__ == 'ClientWeighting':
    return words[value.name]
  return value
