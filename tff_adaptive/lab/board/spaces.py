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

A space names hyperparameters of its method, schedules of rates and optimizers,
and nothing else (`check`). Trials are points of a scrambled Sobol sequence,
whose first are as evenly spread as all of them. Imports no TensorFlow.
"""

import dataclasses
import json
import math
import pathlib
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, Union

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import optimizers
from tff_adaptive import parameters
from tff_adaptive.algorithms import configuration
from tff_adaptive.algorithms import methods
from tff_adaptive.lab.flags import flag_table
from tff_adaptive.lab.recording import files

# Stands for the number of rounds of a workload.
HORIZON = 'horizon'
# Of the hyperparameters that all methods share.
_NOT_TUNED = {'seed', 'record_drift', 'record_step_sizes'}
# Sobol sequences are balanced in lengths that are powers of two.
_MOST_LOG2 = 6
_FORM = (
  '{"source": TEXT, "dimensions": {FLAG: {"low": NUMBER, "high": NUMBER} or '
  '{"values": [VALUE, ...]}}}'
)


@dataclasses.dataclass(frozen=True)
class LogUniform:
  """Numbers between two bounds, uniform in their logarithm."""

  low: float
  high: float

  def at(self, u: float) -> Any:
    """Maps u in [0, 1) to a number, uniformly in its logarithm."""
    value = self.low * (self.high / self.low) ** u
    # As text a value is a few digits, the same in folders, tables and runs.
    return float(f'{value:.4g}')

  def plain(self) -> Mapping[str, Any]:
    """Returns a JSON-serializable form."""
    return {'low': self.low, 'high': self.high}


@dataclasses.dataclass(frozen=True)
class Discrete:
  """One of several values: numbers, words, or mappings of flags."""

  values: Sequence[Any]

  def at(self, u: float) -> Any:
    """Maps u in [0, 1) uniformly to one of the values."""
    return self.values[min(int(u * len(self.values)), len(self.values) - 1)]

  def plain(self) -> Mapping[str, Any]:
    """Returns a JSON-serializable form."""
    return {'values': list(self.values)}


Dimension = Union[LogUniform, Discrete]


@dataclasses.dataclass(frozen=True)
class Space:
  """The search space of an entry.

  Attributes:
    source: Where its ranges are from.
    dimensions: By flag, or by a name of its own where values are mappings.
  """

  source: str
  dimensions: Mapping[str, Dimension]

  def plain(self) -> dict[str, Any]:
    """Returns a JSON-serializable form that `parse` accepts."""
    return {
      'source': self.source,
      'dimensions': {k: d.plain() for k, d in self.dimensions.items()},
    }

  def trials(
    self, workload: str, rounds: int, count: int
  ) -> list[dict[str, str]]:
    """Draws trials, the first ones of a fixed sequence.

    Args:
      workload: The workload's name, on which the scrambling depends.
      rounds: Its horizon.
      count: How many.

    Returns:
      The flags of each, as text.
    """
    from scipy.stats import qmc  # pylint: disable=g-import-not-at-top

    seed = zlib.crc32(workload.encode('utf-8'))
    points = qmc.Sobol(len(self.dimensions), scramble=True, seed=seed)
    drawn = points.random_base2(_MOST_LOG2)[:count]
    return [self._flags(point, rounds) for point in drawn]

  def _flags(self, point: Sequence[float], rounds: int) -> dict[str, str]:
    flags: dict[str, Any] = {}
    for (name, dimension), share in zip(
      self.dimensions.items(), point, strict=True
    ):
      value = dimension.at(share)
      flags |= value if isinstance(value, Mapping) else {name: value}
    return {
      flag: f'{rounds if value == HORIZON else value}'
      for flag, value in flags.items()
    }


def read(path: pathlib.Path) -> Space:
  """Reads a space from a file.

  Raises:
    SettingsError: If it cannot be read, or is no space.
  """
  name = f'--space={path}'
  try:
    found = json.loads(files.read(path))
  except (OSError, ValueError, RecursionError) as e:
    raise errors.SettingsError(
      f'{name} cannot be read as JSON, {_FORM}: {errors.reason(e)}.'
    ) from e
  return parse(found, name)


def parse(found: Any, name: str) -> Space:
  """Builds a space from its JSON form.

  Args:
    found: The parsed JSON.
    name: Its name in error messages.

  Raises:
    SettingsError: If it is malformed.
  """
  if (
    not isinstance(found, dict)
    or not isinstance(found.get('source'), str)
    or not isinstance(found.get('dimensions'), dict)
    or not found['dimensions']
  ):
    raise errors.SettingsError(f'{name} must hold {_FORM}.')
  dimensions = {
    flag: _dimension(f'{name}: {flag!r}', form)
    for flag, form in found['dimensions'].items()
  }
  return Space(found['source'], dimensions)


def _dimension(name: str, form: Any) -> Dimension:
  keys = set(form) if isinstance(form, dict) else set()
  if keys == {'values'}:
    values = form['values']
    if not isinstance(values, list) or not values:
      raise errors.SettingsError(f'{name} must have a list of values.')
    single = [
      v
      for value in values
      for v in (value.values() if isinstance(value, dict) else [value])
    ]
    if wrong := [v for v in single if not isinstance(v, (str, int, float))]:
      raise errors.SettingsError(
        f'{name} may have numbers, words and mappings of flags as values, got '
        f'{wrong[0]!r:.40}.'
      )
    return Discrete(values)
  for bound, other in (('low', 'high'), ('high', 'low')):
    if keys == {bound}:
      raise errors.SettingsError(
        f'{name} has no bound {other!r}: a log-uniform dimension needs both, '
        f'got {form!r:.60}.'
      )
  if keys != {'low', 'high'}:
    raise errors.SettingsError(
      f'{name} must be {{"low": NUMBER, "high": NUMBER}} or {{"values": '
      f'[VALUE, ...]}}, got {form!r:.60}.'
    )
  low, high = form['low'], form['high']
  numbers = all(isinstance(b, (int, float)) for b in (low, high))
  if not numbers or not 0 < low < high < math.inf:
    raise errors.SettingsError(
      f'{name} must have bounds with 0 < low < high, got {form!r:.60}.'
    )
  return LogUniform(float(low), float(high))


def check(space: Space, method: str) -> None:
  """Raises `SettingsError` if a space holds more than its method's settings.

  A space may name the method's hyperparameters, schedules of its rates, and
  other optimizers that the method accepts. Anything else would change the
  workload, or what a run reads, writes and imports.
  """
  if method not in algorithms.names():
    raise errors.SettingsError(
      f'There is no method {method!r:.60}: known are '
      f'{", ".join(algorithms.names())}; one of your own is named by '
      '--algorithm=MODULE:NAME.'
    )
  pairs = [*_pairs(space)]
  allowed = _allowed(methods.find(method), pairs)
  for flag, value in pairs:
    if flag not in allowed:
      raise errors.SettingsError(
        f"{method}'s space tunes {flag!r:.60}, and may tune only "
        f'{", ".join(sorted(allowed))}.'
      )
    try:
      # Any number of rounds stands for the horizon.
      allowed[flag].parse('100' if value == HORIZON else f'{value}')
    except parameters.ParameterError as e:
      raise errors.SettingsError(f"{method}'s space: {e.told()}") from e


def _pairs(space: Space) -> Iterator[tuple[str, Any]]:
  """Yields every flag that trials may set, with the values it may have."""
  for name, dimension in space.dimensions.items():
    if isinstance(dimension, LogUniform):
      yield from ((name, dimension.low), (name, dimension.high))
      continue
    for value in dimension.values:
      yield from (
        value.items() if isinstance(value, Mapping) else [(name, value)]
      )


def _allowed(
  method: methods.Method, pairs: Iterable[tuple[str, Any]]
) -> dict[str, parameters.Parameter]:
  """Returns the flags that a space of a method may have.

  Args:
    method: The method.
    pairs: The space's flags and values, of which optimizers add their own
      hyperparameters.
  """
  table = flag_table.FlagTable()
  allowed: dict[str, parameters.Parameter] = {}
  for side in optimizers.SIDES:
    accepted = (getattr(method, side), *method.accepted(side))
    choice = f'{side}_optimizer'
    words = {value for flag, value in pairs if flag == choice}
    for name in {getattr(method, side), *words} & {*accepted}:
      chosen = configuration.optimizers_of(method, **{side: name})
      for public, slot in configuration.slots_of(method, chosen).items():
        if slot.component != 'aggregation' and public not in _NOT_TUNED:
          allowed[public] = slot.parameter
    allowed[choice] = dataclasses.replace(
      table.general[choice].parameter, annotation=Literal[accepted]
    )
  taken = {*table.general, *table.task} - {
    f'{side}_optimizer' for side in optimizers.SIDES
  }
  return {name: p for name, p in allowed.items() if name not in taken}


def _log(low: float, high: float) -> LogUniform:
  return LogUniform(low, high)


_AFO = 'Reddi et al., arXiv 2003.00295, Appendix D'
_RATE = f'client rate: the union of the grids of {_AFO}, without its top decade'
_AROUND = 'around the default, as no grid of the paper was read'
# From 1e-3 on small models to 1e2 on autoencoders and tags.
_SGD: Mapping[str, Dimension] = {'client_learning_rate': _log(1e-3, 1e2)}
_ADAM: Mapping[str, Dimension] = {'client_learning_rate': _log(1e-4, 1.0)}
_SERVER: Mapping[str, Dimension] = {'server_learning_rate': _log(1e-3, 10)}
_TAU: Mapping[str, Dimension] = {'server_adaptivity': _log(1e-5, 1e-1)}
_ADAPTIVE = {**_SGD, **_SERVER, **_TAU}
_ADAPTIVE_SOURCE = f'{_RATE}; server rate and tau: {_AFO}'
_BOTH = {
  'client_learning_rate': _log(1e-3, 20),
  'server_learning_rate': _log(1e-3, 20),
  **_TAU,
  'client_adaptivity': _log(1e-4, 1.0),
}
_BOTH_SOURCE = (
  'rates: the grid of step 1 of Lee et al., arXiv 2410.18117, 0.001 to 20; '
  f'server adaptivity: {_AFO}; client adaptivity: a decade more than the best '
  "of Lee et al.'s Table 5"
)
_POLYAK: Mapping[str, Dimension] = {
  'c': Discrete([0.01, 0.1, 0.5, 1.0]),
  'gamma_b': Discrete([1, 5, 10]),
}
_POLYAK_SOURCE = 'c and bound: Mukherjee et al., arXiv 2307.06306, Section 6'


def _with(source: str, **more: Dimension) -> Space:
  """Builds the space of a method of SGD clients with a number of its own."""
  return Space(f'{_RATE}; {source}', {**_SGD, **more})


_TABLE: Mapping[str, Space] = {
  'fedavg': Space(_RATE, _SGD),
  'fedavgm': Space(f'{_RATE}; server rate: {_AFO}', {**_SGD, **_SERVER}),
  **{
    name: Space(_ADAPTIVE_SOURCE, _ADAPTIVE)
    for name in ('fedadagrad', 'fedadam', 'fedyogi', 'fedams')
  },
  'fedexp': _with(
    f'server adaptivity: {_AROUND}, with the 1e-3 and 0.1 of the code inside',
    server_adaptivity=_log(1e-4, 1.0),
  ),
  'fedcams': Space(_ADAPTIVE_SOURCE, _ADAPTIVE),
  'fedhyper': _with(
    f'first server rate: {_AROUND}, within the bounds 0.2 and 5',
    server_learning_rate=_log(0.2, 5.0),
  ),
  'fedef21': _with(
    f'server rate: {_AFO}; ratio: {_AROUND}',
    **_SERVER,
    compression_ratio=Discrete([1 / 64, 1 / 16, 1 / 4]),
  ),
  'scaffold': Space(
    f'{_RATE}; server rate: {_AFO}, as they tune SCAFFOLD',
    {**_SGD, **_SERVER},
  ),
  'fedprox': _with(
    'mu: the candidates of Li et al., arXiv 1812.06127, Section 5',
    proximal_strength=Discrete([0.001, 0.01, 0.1, 1]),
  ),
  'moon': _with(
    'mu: the candidates of Li et al., arXiv 2103.16257, Section 4',
    contrastive_strength=Discrete([0.1, 1, 5, 10]),
  ),
  'mime': _with(
    'momentum: none, the default and one more 9 (Karimireddy et al., arXiv '
    '2008.03606)',
    client_momentum=Discrete([0, 0.9, 0.99]),
  ),
  'mimelite': _with(
    'momentum: none, the default and one more 9 (Karimireddy et al., arXiv '
    '2008.03606)',
    client_momentum=Discrete([0, 0.9, 0.99]),
  ),
  'fednova': _with(
    'momentum: without and with, as in Wang et al., arXiv 2007.07481',
    client_momentum=Discrete([0, 0.9]),
  ),
  'fedcm': _with(
    f'alpha: {_AROUND}', alpha=Discrete([0.01, 0.03, 0.1, 0.3, 1])
  ),
  'feddyn': _with(
    f'alpha: {_AROUND}', proximal_strength=_log(1e-3, 1.0)
  ),
  'fedsam': _with(f'rho: {_AROUND}', rho=_log(1e-3, 1.0)),
  'fedlesam': _with(f'rho: {_AROUND}', rho=_log(1e-3, 1.0)),
  'fadamgc': Space(
    f'client rate: two decades on both sides of 1e-2; adaptivity: {_AROUND}',
    {**_ADAM, 'client_adaptivity': _log(1e-8, 1e-2)},
  ),
  'delta_sgd': Space(
    'around gamma 2, delta 0.1 and first step 0.2 of Kim et al., arXiv '
    '2306.11201, who tune none of them',
    {
      'gamma': _log(0.5, 8.0),
      'delta': _log(0.01, 1.0),
      'eta_0': _log(0.02, 2.0),
    },
  ),
  **{
    name: Space(_POLYAK_SOURCE, _POLYAK)
    for name in ('fedsps', 'feddecsps', 'fedsps_normalized')
  },
  'fedsps_global': Space(
    f"{_POLYAK_SOURCE}, and a decade below it, where this project's default is",
    {**_POLYAK, 'gamma_b': _log(0.1, 10.0)},
  ),
  **{
    name: Space(_BOTH_SOURCE, _BOTH)
    for name in ('direct_joint', 'joint_zero_init', 'fedada2')
  },
  'fedada2_blended': Space(
    f'server rate and tau: {_AFO}; the mixture is the default',
    {**_SERVER, **_TAU},
  ),
  'local_adaalter': Space(
    f'client rate: two decades on both sides of 0.1; adaptivity: {_AROUND}',
    {
      'client_learning_rate': _log(1e-3, 10),
      'client_adaptivity': _log(1e-2, 10),
    },
  ),
  'local_amsgrad': Space(
    f'client rate: two decades on both sides of 1e-2; adaptivity: {_AROUND}',
    {**_ADAM, 'client_adaptivity': _log(1e-7, 1e-2)},
  ),
  'fedmuon': Space(
    f"client rate: the authors' 3e-4 and 3e-2 inside; alpha: {_AROUND}",
    {
      'client_learning_rate': _log(1e-4, 1.0),
      'alpha': Discrete([0.1, 0.5, 0.9]),
    },
  ),
  'fedadamw': Space(
    f'client rate: two decades on both sides of 1e-2; alpha: {_AROUND}',
    {**_ADAM, 'alpha': Discrete([0.1, 0.5, 0.9])},
  ),
  'diloco': Space(
    'server rate and momentum: around the 0.7 and 0.9 of Douillard et al., '
    'arXiv 2311.08105; client rate: two decades on both sides of 1e-2',
    {
      **_ADAM,
      'server_learning_rate': _log(0.1, 2.0),
      'momentum': Discrete([0.6, 0.8, 0.9]),
    },
  ),
  'muloco': Space(
    'server rate and momentum: around the 0.7 and the 0.6, 0.8 and 0.9 of '
    'Therien et al., arXiv 2505.23725, and their code; client rate: around '
    '0.02',
    {
      'client_learning_rate': _log(1e-4, 1.0),
      'server_learning_rate': _log(0.1, 2.0),
      'momentum': Discrete([0.6, 0.8, 0.9]),
    },
  ),
  'bi2clip': _with(
    f'server rate: {_AFO}; clips: decades, as no grid of the paper was read',
    **_SERVER,
    client_clip_upper=_log(1e-3, 10),
    server_clip_upper=_log(1e-4, 1.0),
  ),
  'fedlion': Space(
    'client rate: two decades on both sides of the default 1e-3',
    {'client_learning_rate': _log(1e-5, 1e-1)},
  ),
  'fedper': Space(_RATE, _SGD),
  'fedbn': Space(_RATE, _SGD),
}  # fmt: skip
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
  return _TABLE[name]
