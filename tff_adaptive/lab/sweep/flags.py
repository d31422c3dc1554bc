"""The flags of `main.py sweep` and the runs that they define.

Imports no TensorFlow, so that invalid flags are reported at once.
"""

import dataclasses
import functools
import hashlib
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Optional

import tasks
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.flags import parsing as flags_lib
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import grids

# Configurations that a search tries by default.
_TRIALS = 20
_flag = parameters.Parameter
_FLAGS = (
  _flag(
    'grid',
    str,
    None,
    "A paper's grid, PAPER/TASK or PAPER/TASK/METHOD, such as "
    'reddi2021/emnist_character; or a file NAME.json with axes per method, '
    '{"fedadam": {"server_learning_rate": [0.01, 0.1]}}, "*" for all of them. '
    'An --axis replaces its axis of that name.',
  ),
  _flag(
    'select',
    Literal.__getitem__(tuple(scores.RULES)),
    None,
    'Rule that selects the best configuration: '
    + '; '.join(f'{r.name}: {r.help}' for r in scores.RULES.values())
    + f'. Unless given, {scores.DEFAULTS}.',
  ),
  _flag(
    'tune',
    bool,
    False,
    'Tune on one seed, --seed, then repeat the best configuration of each '
    'method on the seeds of --repeat_best, from which results are computed.',
  ),
  _flag(
    'repeat_best',
    str,
    None,
    'Evaluation seeds of --tune, such as 1,2,3; by default the five after '
    '--seed. Implies --tune.',
  ),
  _flag(
    'search',
    Literal['grid', 'random', 'tpe', 'qmc'],
    'grid',
    'Search over configurations, by a sampler of Optuna. grid: all of them. '
    'random, tpe, qmc: --trials of them, drawn at random, by a tree-structured '
    'Parzen estimator of the results so far, or from a Sobol sequence; an axis '
    'may then be a range, such as client_learning_rate=0.001..1.',
  ),
  _flag(
    'pruner',
    Literal['none', 'halving', 'median'],
    'none',
    'Early stopping of runs, by a pruner of Optuna. halving: asynchronous '
    'successive halving, which stops all but the best third after a ninth and '
    'after a third of the rounds. median: stops runs that are worse than the '
    'median at the same round.',
  ),
  _flag(
    'trials',
    parameters.Count,
    None,
    'Number of configurations that --search=random, tpe or qmc tries; by '
    f'default {_TRIALS}.',
  ),
  _flag(
    'storage',
    str,
    None,
    "Storage of the sweep's state, with which several machines can share a "
    'sweep: the URL of a database, such as postgresql://user@host/name or '
    'sqlite:////folder/file, or journal:FILE for a file in a shared folder. '
    "By default a file in the sweep's folder.",
  ),
  _flag(
    'workers',
    parameters.NonNegativeInt,
    None,
    'Number of parallel worker processes; 0 runs everything in this process. '
    'By default 1.',
  ),
  _flag(
    'runs_per_process',
    parameters.Count,
    40,
    'Number of runs after which a worker process is restarted, to bound its '
    'memory.',
  ),
  _flag(
    'divergence_factor',
    parameters.NonNegative,
    10.0,
    'A run has diverged if its training loss exceeds this multiple of the '
    "untrained model's loss for 3 rounds, or is not finite; with 0, only if "
    'it is not finite.',
  ),
  _flag(
    'keep_checkpoints',
    bool,
    True,
    'Keep checkpoints and client states of runs that are over. Models are '
    'exported from them, and longer runs start from them; client states may '
    'take a GB a run.',
  ),
  _flag(
    'retry_failed',
    bool,
    False,
    'Repeat failed runs; diverged ones are not repeated.',
  ),
)
_AXIS = _flag(
  'axis',
  str,
  parameters.REQUIRED,
  'FLAG=V1,V2,...: values of a flag to try. Repeatable; all combinations are '
  'run, and seed=0,1,2 repeats them. METHOD:FLAG=V1,V2,... replaces the axis '
  'of that flag for one method.',
)
# Flags of a run that apply to the sweep as a whole.
_OF_THE_SWEEP = ('experiment_name', 'root_output_dir', 'dry_run')
# Number of seeds of --tune by default: one to tune on, and five to repeat on.
_SEEDS = 6


def build_options() -> options_lib.Options:
  """Declares the flags that `main.py sweep` adds to those of a run."""
  return options_lib.Options(*_FLAGS, repeated=[_AXIS])


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The settings of a sweep.

  Attributes:
    folder: The sweep's folder.
    points: The runs of a grid; none for a search.
    dry_run: Whether to list the runs instead of running them.
    options: Values of the flags of `build_options`.
    tuned_on: The seed that configurations are selected on, before the best of
      each method is repeated on other seeds; `None` if all seeds are equal.
    space: What a search draws from.
    select: The name of the rule that selects configurations.
    axes: The flags that are axes.
  """

  folder: pathlib.Path
  points: Sequence[grids.Point]
  dry_run: bool
  options: Mapping[str, Any]
  tuned_on: Optional[int] = None
  space: Optional[grids.Space] = None
  select: str = scores.DEFAULT
  axes: Sequence[str] = ()

  @property
  def trials(self) -> int:
    """Number of configurations that a search tries."""
    return self.options['trials'] or _TRIALS

  @functools.cached_property
  def configurations(self) -> dict[grids.Configuration, list[grids.Point]]:
    """The points of each configuration of a grid, one a seed."""
    found: dict[grids.Configuration, list[grids.Point]] = {}
    for point in self.points:
      found.setdefault(grids.configuration(point.flags), []).append(point)
    return found

  @property
  def learns(self) -> bool:
    """Whether results decide which runs come next."""
    return (
      self.tuned_on is not None
      or self.space is not None
      or self.options['pruner'] != 'none'
    )

  def log_of(self, name: str) -> pathlib.Path:
    """Returns the log file of a run."""
    return self.folder / 'logs' / f'{name}.log'


def parse(arguments: Sequence[str]) -> Sweep:
  """Parses a command line.

  Raises:
    SettingsError: If a flag is not accepted; the message is one sentence.
  """
  options, rest = build_options().split(arguments)
  searches = options['search'] != 'grid'
  if options['trials'] is not None and not searches:
    raise errors.SettingsError(
      f'--trials={options["trials"]} would be ignored: --search=grid.'
    )
  axes = _read_axes(options)
  shared_axes = axes.get(grids.ALL, {})
  parser = flags_lib.Flags()
  parser.know(*shared_axes.get('task', ()))
  given = parser.given(rest)
  seeds = _read_seeds(options, axes, given)
  if seeds:
    axes = {**axes, grids.ALL: {**shared_axes, 'seed': seeds}}
    given.pop('seed', None)
  blocks = grids.with_axes(
    _choose_blocks(options['grid'], axes, given), axes, given
  )
  ranges = [
    flag
    for block in blocks
    for flag, values in block.axes.items()
    if grids.range_of(values)
  ]
  if ranges and not searches:
    raise errors.SettingsError(
      f'--axis={ranges[0]} is a range, of which --search=random, tpe or qmc '
      'draw values; a grid needs a list of values.'
    )
  if options['search'] == 'qmc' and len(blocks) > 1:
    raise errors.SettingsError(
      f'--search=qmc fills one space of axes evenly, and these are '
      f'{len(blocks)}; --search=random or tpe takes them.'
    )
  of_sweep = {k: given.pop(k) for k in _OF_THE_SWEEP if k in given}
  shared = grids.Parser(of_sweep).parse({})
  space = grids.Space(blocks, grids.Parser(given))
  points = space.points(samples=searches)
  totals = sorted({p.total_rounds for p in points})
  if options['pruner'] != 'none' and len(totals) > 1:
    raise errors.SettingsError(
      f'--pruner={options["pruner"]} compares runs after equal rounds, but '
      f'--total_rounds is {", ".join(map(str, totals))}.'
    )
  name = shared.settings.experiment_name or default_name(
    points, options['search']
  )
  folder = pathlib.Path(shared.settings.root_output_dir) / name
  root = str(folder / 'runs')
  space = dataclasses.replace(
    space,
    root=root,
    whole=[flag for flag in ranges if space.parser.is_whole(flag)],
  )
  return Sweep(
    folder,
    [] if searches else [dataclasses.replace(p, root=root) for p in points],
    shared.dry_run,
    options,
    tuned_on=int(seeds[0]) if seeds else None,
    space=space if searches else None,
    select=options['select'] or scores.default_rule(p.identity for p in points),
    axes=sorted({axis for block in space.blocks for axis in block.axes}),
  )


def _read_seeds(
  options: Mapping[str, Any], axes: grids.Axes, given: Mapping[str, str]
) -> list[str]:
  """Returns the seed to tune on and those to repeat on; empty without --tune.

  Raises:
    SettingsError: If they conflict with an axis.
  """
  if not options['tune'] and options['repeat_best'] is None:
    return []
  for flag in runs.SEEDS:
    if any(flag in of_method for of_method in axes.values()):
      raise errors.SettingsError(
        f'--axis={flag} and --tune cannot be combined: configurations are '
        'tuned on --seed, and the best are repeated on the seeds of '
        '--repeat_best.'
      )
  first = given.get('seed', '0')
  if options['repeat_best'] is not None:
    return [first, *options['repeat_best'].split(',')]
  begin = grids.Parser({'seed': first}).parse({}).settings.seed
  return [f'{begin + i}' for i in range(_SEEDS)]


def _read_axes(options: Mapping[str, Any]) -> grids.Axes:
  """Parses the axes of --axis and of the file of --grid.

  Raises:
    SettingsError: If an axis is malformed or not allowed.
  """
  axes = grids.parse_axes(options['axis'])
  grid = options['grid']
  if grid is not None and grid.endswith('.json'):
    filed = grids.read_axes(pathlib.Path(grid))
    axes = {
      method: {**filed.get(method, {}), **axes.get(method, {})}
      for method in {**filed, **axes}
    }
  for method, of_method in axes.items():
    for flag in of_method:
      if flag in _OF_THE_SWEEP or (flag == 'algorithm' and method != grids.ALL):
        raise errors.SettingsError(
          f'--{flag} cannot be an axis of a sweep'
          + ('.' if method == grids.ALL else f' for one method, {method}.')
        )
  return axes


def _choose_blocks(
  grid: Optional[str], axes: grids.Axes, given: Mapping[str, str]
) -> list[grids.Block]:
  """Returns the blocks of a paper's grid, or an empty block for the axes."""
  if grid is not None and not grid.endswith('.json'):
    return grids.of_paper(grid, given.get('algorithm'))
  if not axes:
    raise errors.SettingsError(
      'A sweep needs --axis=FLAG=V1,V2,... (one or more) or --grid=NAME.'
    )
  return [grids.Block()]


def default_name(points: Sequence[grids.Point], search: str) -> str:
  """Builds a name that identifies the sweep's settings and its search."""
  text = json.dumps([p.identity for p in points], sort_keys=True)
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  kind = '' if search == 'grid' else f'{search}-'
  return f'sweep-{tasks.short(points[0].identity["task"])}-{kind}{digest}'


def describe(sweep: Sweep) -> str:
  """Lists the points, for --dry_run."""
  if sweep.space is not None:
    lines = [f'{sweep.trials} configurations, results in {sweep.folder}']
    for block in sweep.space.blocks:
      lines += [f'  {k}: {v}' for k, v in block.fixed.items()]
      lines += [f'  {k}: {", ".join(v)}' for k, v in block.axes.items()]
    return '\n'.join(lines)
  points = [
    p for p in sweep.points if sweep.tuned_on in (None, p.identity['seed'])
  ]
  total = sum(p.total_rounds for p in points)
  lines = [
    f'{len(points)} runs, {total:,} rounds in all, results in {sweep.folder}',
    *(f'  {p.name}' for p in points),
  ]
  if sweep.tuned_on is not None:
    seeds = dict.fromkeys(f'{p.identity["seed"]}' for p in sweep.points)
    lines.append(
      f"and each method's best of seed {sweep.tuned_on} again on seeds "
      + ', '.join([*seeds][1:])
    )
  return '\n'.join(lines)
