"""Search spaces of entries, and the trials drawn from them.

A space is the same for all workloads, and names its source: the paper's own
grid where there is one. A dimension is log-uniform between two bounds, or one
of several values; a value may be a mapping of flags, of which the text
'horizon' stands for the workload's rounds, so that schedules are dimensions
like others:

  {"source": "where the ranges are from",
   "dimensions": {
     "client_learning_rate": {"low": 0.001, "high": 10},
     "proximal_strength": {"values": [0.001, 0.01, 0.1, 1]},
     "schedule": {"values": [{}, {"client_lr_schedule": "cosine",
                                  "client_lr_decay_steps": "horizon"}]}}}

A space names hyperparameters, schedules of rates and optimizers, and nothing
else; those that its method refuses are refused when a run begins. Rates of
clients with plain SGD go from 1e-3, for small models, to 1e2, for autoencoders
and tags. Trials are points of a scrambled Sobol sequence,
whose first are as evenly spread as all of them. Imports no TensorFlow.
"""

import dataclasses
import json
import math
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.recording import files
from tff_adaptive.privacy import mechanism

# Stands for the number of rounds of a workload.
HORIZON = 'horizon'
# Of the hyperparameters that all methods share.
_NOT_TUNED = {'seed', 'record_drift', 'record_step_sizes'}
# Sobol sequences are balanced in lengths that are powers of two.
_LOG2 = 6
_BOUNDS = ['low', 'high']
_VALUE: Mapping[str, Any] = {'type': ['number', 'string', 'boolean']}
_RANGE = {
  'required': _BOUNDS,
  'additionalProperties': False,
  'properties': {
    bound: {'type': 'number', 'exclusiveMinimum': 0} for bound in _BOUNDS
  },
}
_VALUES = {
  'additionalProperties': False,
  'properties': {
    'values': {
      'type': 'array',
      'minItems': 1,
      'items': {
        'type': [*_VALUE['type'], 'object'],
        'additionalProperties': _VALUE,
      },
    }
  },
}
_SCHEMA = {
  'type': 'object',
  'required': ['source', 'dimensions'],
  'properties': {
    'source': {'type': 'string'},
    'dimensions': {
      'type': 'object',
      'minProperties': 1,
      'additionalProperties': {
        'type': 'object',
        'if': {'required': ['values']},
        'then': _VALUES,
        'else': _RANGE,
      },
    },
  },
}


@dataclasses.dataclass(frozen=True)
class Space:
  """The search space of an entry.

  Attributes:
    source: Where its ranges are from.
    dimensions: By flag, or by a name of its own where values are mappings;
      each in the form above.
  """

  source: str
  dimensions: Mapping[str, Mapping[str, Any]]

  def trials(self, workload: str, rounds: int) -> list[dict[str, str]]:
    """Draws 64 trials, of which entries use the first.

    Args:
      workload: The workload's name, on which the scrambling depends.
      rounds: Its horizon.

    Returns:
      The flags of each, as text.
    """
    from scipy.stats import qmc  # pylint: disable=g-import-not-at-top

    seed = zlib.crc32(workload.encode('utf-8'))
    points = qmc.Sobol(len(self.dimensions), scramble=True, seed=seed)
    return [self._flags(p, rounds) for p in points.random_base2(_LOG2)]

  def _flags(self, point: Sequence[float], rounds: int) -> dict[str, str]:
    flags: dict[str, Any] = {}
    for (name, dimension), share in zip(
      self.dimensions.items(), point, strict=True
    ):
      value = _at(dimension, share)
      flags |= value if isinstance(value, Mapping) else {name: value}
    return {
      flag: f'{rounds if value == HORIZON else value}'
      for flag, value in flags.items()
    }


def _at(dimension: Mapping[str, Any], u: float) -> Any:
  """Maps u in [0, 1) uniformly to one of the values, or to a number, uniformly
  in its logarithm."""
  if 'values' in dimension:
    return dimension['values'][int(u * len(dimension['values']))]
  low, high = dimension['low'], dimension['high']
  # As text a value is a few digits, the same in folders, tables and runs.
  return float(f'{low * (high / low) ** u:.4g}')


def read(path: pathlib.Path, method: str) -> Space:
  """Reads a method's space from a file.

  Raises:
    SettingsError: If it cannot be read, or as for `parse`.
  """
  name = f'--space={path}'
  with files.reading(name, 'JSON'):
    return parse(json.loads(files.read(path)), name, method)


def parse(found: Any, name: str, method: str) -> Space:
  """Builds a method's space from its JSON form.

  It may hold hyperparameters of methods, schedules and optimizers. Anything
  else would change the workload, or what a run reads, writes and imports. Which
  of these the method takes, with which values, shows when a trial is parsed.

  Args:
    found: The parsed JSON.
    name: Its name in error messages.
    method: The method.

  Raises:
    SettingsError: If it is malformed, there is no such method, or it holds
      something else.
  """
  import jsonschema  # pylint: disable=g-import-not-at-top

  wrong = jsonschema.exceptions.best_match(
    jsonschema.Draft202012Validator(_SCHEMA).iter_errors(found)
  )
  if wrong is not None:
    raise errors.SettingsError(
      f'{name} is no search space (docs/board.md): at {wrong.json_path}, '
      f'{wrong.message:.120}.'
    )
  if method not in algorithms.names():
    raise errors.SettingsError(
      f'{name} is of {method!r:.60}, and there is no such method: known are '
      f'{", ".join(algorithms.names())}; one of your own is named by '
      '--algorithm=MODULE:NAME.'
    )
  space = Space(found['source'], found['dimensions'])
  flags: list[str] = []
  for flag, dimension in space.dimensions.items():
    for value in dimension.get('values', [0]):
      flags += value if isinstance(value, Mapping) else [flag]
    if 'low' not in dimension:
      continue
    low, high = (float(dimension[bound]) for bound in _BOUNDS)
    if not 1.0 < high / low < math.inf:
      raise errors.SettingsError(
        f'{name}: {flag!r} must have bounds with 0 < low < high, got '
        f'{dimension!r:.60}.'
      )
  if strange := set(flags) - _tuned():
    raise errors.SettingsError(
      f'{name} tunes {min(strange)!r:.60}, which is no hyperparameter of a '
      'method, schedule or optimizer, nor client_optimizer or server_optimizer.'
    )
  return space


def _tuned() -> set[str]:
  """Returns all flags that spaces may hold."""
  table = flag_table.FlagTable()
  # Own methods may have options of these names.
  taken = {*table.general, *table.task, *_NOT_TUNED}
  flags = {*table.algorithm} - {
    *parameters.parameters_of(mechanism.Aggregation)
  }
  return flags - taken | {f'{side}_optimizer' for side in optimizers.SIDES}


# Those of this project's methods.
_TABLE: Mapping[str, Any] = {
  name: space
  for names, space in json.loads(
    pathlib.Path(__file__).with_suffix('.json').read_text('utf-8')
  ).items()
  for name in names.split()
}
METHODS: Sequence[str] = tuple(_TABLE)
BASELINES = ('fedavg', 'fedavgm', 'fedadam', 'scaffold')


def of_method(name: str) -> Space:
  """Returns the space of a method of this project.

  Raises:
    SettingsError: If it has none.
  """
  if name not in _TABLE:
    raise errors.SettingsError(
      f'--methods may name {", ".join(METHODS)}, got {name!r}.'
    )
  return Space(**_TABLE[name])
