"""The flags of `main.py sweep` and the runs that they define.

Imports no TensorFlow, so that invalid flags are reported at once.
"""

import dataclasses
import hashlib
import importlib.util
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Optional

import tasks
from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.flags import options as options_lib
from tff_adaptive.lab.flags import parsing as flags_lib
from tff_adaptive.lab.flags import runtime_flags
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import papers
from tff_adaptive.lab.sweep.blocks import Block

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
    Literal['grid', 'random', 'tpe', 'gp', 'halving', 'bayesian'],
    'grid',
    'Search over configurations. grid: all of them. random: --trials random '
    'ones. tpe, gp: --trials of them, proposed by a tree-structured Parzen '
    'estimator or a Gaussian process (which needs PyTorch) from the results '
    'so far. halving is short for grid with --pruner=halving, bayesian for '
    'tpe.',
  ),
  _flag(
    'pruner',
    Literal['none', 'halving'],
    'none',
    'Early stopping of runs. halving: asynchronous successive halving, which '
    'stops all but the best runs at a growing number of rounds.',
  ),
  _flag(
    'trials',
    parameters.Count,
    None,
    'Number of configurations that --search=random, tpe or gp tries; by '
    'default 20.',
  ),
  _flag(
    'halving_factor',
    parameters.Annotated[int, parameters.Range(low=2)],
    None,
    'With --pruner=halving, one in this many runs continues; by default 3.',
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
    'By default 1; on a Ray cluster, as many as fit.',
  ),
  _flag(
    'ray_address',
    str,
    None,
    'Run the workers on the machines of a Ray cluster: auto, or host:port of '
    'its head. All machines must share --root_output_dir.',
  ),
  _flag(
    'cpus_per_trial',
    parameters.Count,
    1,
    'Number of cores per run on a cluster.',
  ),
  _flag(
    'gpus_per_trial',
    parameters.NonNegative,
    None,
    'Number of GPUs per run on a cluster, such as 0.5 for two runs on one '
    'GPU; by default 1, if the cluster has GPUs.',
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
# Number of seeds on which --tune repeats the best configuration by default.
_REPEATS = 5


def build_options() -> options_lib.Options:
  """Declares the flags that `main.py sweep` adds to those of a run."""
  return options_lib.Options(*_FLAGS, repeated=[_AXIS])


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The settings of a sweep.

  Attributes:
    folder: The sweep's folder.
    points: The runs.
    dry_run: Whether to list the runs instead of running them.
    options: Values of the flags of `build_options`.
    tuned_on: The seed that configurations are selected on, before the best of
      each method is repeated on other seeds; `None` if all seeds are equal.
  """

  folder: pathlib.Path
  points: Sequence[grids.Point]
  dry_run: bool
  options: Mapping[str, Any]
  tuned_on: Optional[int] = None

  @property
  def select(self) -> str:
    """The name of the rule that selects configurations."""
    return self.options['select'] or scores.default_rule(
      point.identity for point in self.points
    )

  @property
  def repeats(self) -> list[int]:
    """The seeds on which the best configurations are repeated."""
    seeds = dict.fromkeys(point.identity['seed'] for point in self.points)
    return [seed for seed in seeds if self.tuned_on not in (None, seed)]

  @property
  def in_processes(self) -> bool:
    """Whether runs have their own processes."""
    return self.options['workers'] != 0

  @property
  def sampler(self) -> str:
    """The sampler of configurations: 'grid', 'random', 'tpe' or 'gp'."""
    return _read_search(self.options)[0]

  @property
  def pruner(self) -> str:
    """The pruner of runs: 'none' or 'halving'."""
    return _read_search(self.options)[1]

  def log_of(self, name: str) -> pathlib.Path:
    """Returns the log file of a run."""
    return self.folder / 'logs' / f'{name}.log'


def parse(arguments: Sequence[str]) -> Sweep:
  """Parses a command line.

  Raises:
    SettingsError: If a flag is not accepted; the message is one sentence.
  """
  options, rest = build_options().split(arguments)
  _check_search(options)
  axes = _read_axes(options)
  parser = flags_lib.Flags()
  parser.know(*axes.shared.get('task', ()))
  given = parser.given(rest)
  seeds = _read_seeds(options, axes, given)
  if seeds:
    axes = dataclasses.replace(axes, shared={**axes.shared, 'seed': seeds})
    given.pop('seed', None)
  blocks = grids.with_axes(
    _choose_blocks(options['grid'], axes, given), axes, given
  )
  shared = _parse_shared(options['grid'], blocks[0], given)
  of_runs = {k: v for k, v in given.items() if k not in _OF_THE_SWEEP}
  points = grids.points(of_runs, blocks, '')
  _check_lengths(options, points)
  _check_cluster(options, points)
  name = shared.settings.experiment_name or default_name(points)
  folder = pathlib.Path(shared.settings.root_output_dir) / name
  return Sweep(
    folder,
    [_below(folder, p) for p in points],
    shared.dry_run,
    options,
    tuned_on=int(seeds[0]) if seeds else None,
  )


def _read_seeds(
  options: Mapping[str, Any], axes: grids.Axes, given: Mapping[str, str]
) -> list[str]:
  """Parses the seed to tune on and those to repeat on; empty without --tune.

  Raises:
    SettingsError: If they are not seeds, repeat a seed or conflict with an
      axis.
  """
  if not options['tune'] and options['repeat_best'] is None:
    return []
  for flag in axes.flags():
    if flag in runs.SEEDS:
      raise errors.SettingsError(
        f'--axis={flag} and --tune cannot be combined: configurations are '
        'tuned on --seed, and the best are repeated on the seeds of '
        '--repeat_best.'
      )
  first = given.get('seed', '0')
  if not first.isdecimal():
    raise errors.SettingsError(f'--seed must be at least 0, got {first!r}.')
  if options['repeat_best'] is None:
    return [first, *(f'{int(first) + i}' for i in range(1, 1 + _REPEATS))]
  seeds = [text.strip() for text in options['repeat_best'].split(',')]
  wrong = [s for s in seeds if not (s.isascii() and s.isdecimal())]
  if wrong:
    raise errors.SettingsError(
      '--repeat_best must be comma-separated seeds, such as 1,2,3, got '
      f'{options["repeat_best"]!r}.'
    )
  every = [str(int(s)) for s in (first, *seeds)]
  if len(set(every)) < len(every):
    raise errors.SettingsError(
      f'--repeat_best={options["repeat_best"]} must be distinct seeds other '
      f'than --seed={first}, on which configurations are selected.'
    )
  return every


def _read_search(options: Mapping[str, Any]) -> tuple[str, str]:
  """Returns the sampler and the pruner of --search and --pruner."""
  if options['search'] == 'halving':
    return 'grid', 'halving'
  sampler = 'tpe' if options['search'] == 'bayesian' else options['search']
  return sampler, options['pruner']


def _check_search(options: Mapping[str, Any]) -> None:
  sampler, pruner = _read_search(options)
  ignored = []
  if sampler == 'grid':
    ignored.append(('trials', f'--search={options["search"]}'))
  if pruner == 'none':
    ignored.append(('halving_factor', '--pruner=none'))
  for flag, reason in ignored:
    if options[flag] is not None:
      raise errors.SettingsError(
        f'--{flag}={options[flag]} would be ignored: {reason}.'
      )
  if sampler == 'gp' and importlib.util.find_spec('torch') is None:
    raise errors.SettingsError(
      '--search=gp needs PyTorch, which is not among the requirements of '
      'tff-adaptive: pip install torch, or use --search=tpe.'
    )


def _check_lengths(
  options: Mapping[str, Any], points: Sequence[grids.Point]
) -> None:
  totals = sorted({p.total_rounds for p in points})
  if _read_search(options)[1] == 'halving' and len(totals) > 1:
    raise errors.SettingsError(
      '--pruner=halving compares runs after equal rounds, but --total_rounds '
      f'is {", ".join(map(str, totals))}.'
    )


def _check_cluster(
  options: Mapping[str, Any], points: Sequence[grids.Point]
) -> None:
  address = options['ray_address']
  if address is None:
    if options['gpus_per_trial'] is not None or options['cpus_per_trial'] != 1:
      raise errors.SettingsError(
        '--cpus_per_trial and --gpus_per_trial would be ignored without '
        '--ray_address.'
      )
    return
  try:
    runtime_flags.check_ray(address)
  except parameters.ParameterError as e:
    raise options_lib.refusal(e) from e
  if options['workers'] == 0:
    raise errors.SettingsError(
      '--workers=0 runs everything in this process, and --ray_address on a '
      'cluster: give one of them.'
    )
  if any(point.identity['runtime'] == 'ray' for point in points):
    raise errors.SettingsError(
      '--ray_address of a sweep runs each trial on one machine, and '
      '--runtime=ray one trial on all of them: give one of them.'
    )


def _is_file(grid: str) -> bool:
  """Returns whether --grid names a file of axes rather than a paper's grid."""
  return grid.endswith('.json')


def _read_axes(options: Mapping[str, Any]) -> grids.Axes:
  """Parses the axes of --axis and of the file of --grid.

  Raises:
    SettingsError: If an axis is malformed or not allowed.
  """
  axes = grids.parse_axes(options['axis'])
  grid = options['grid']
  if grid is not None and _is_file(grid):
    filed = grids.read_axes(pathlib.Path(grid))
    methods = dict.fromkeys([*filed.own, *axes.own])
    axes = grids.Axes(
      {**filed.shared, **axes.shared},
      {m: {**filed.own.get(m, {}), **axes.own.get(m, {})} for m in methods},
    )
  for flag in axes.flags():
    if flag in _OF_THE_SWEEP:
      raise errors.SettingsError(f'--{flag} cannot be an axis of a sweep.')
  for method, own in axes.own.items():
    if 'algorithm' in own:
      raise errors.SettingsError(
        f'--algorithm cannot be an axis of {method}, which is itself an '
        'algorithm.'
      )
  return axes


def _choose_blocks(
  grid: Optional[str], axes: grids.Axes, given: Mapping[str, str]
) -> list[Block]:
  """Returns the blocks of a paper's grid, or an empty block for the axes."""
  if grid is not None and not _is_file(grid):
    return papers.load(grid, given.get('algorithm'))
  if not axes.flags() and not axes.own:
    raise errors.SettingsError(
      'A sweep needs --axis=FLAG=V1,V2,... (one or more) or --grid=NAME.'
    )
  return [Block()]


def _parse_shared(
  grid: Optional[str], block: Block, given: Mapping[str, str]
) -> flags_lib.Parsed:
  """Parses the flags that all points share, using one point as an example.

  Which flags are accepted may depend on an axis.
  """
  if grid is not None and not _is_file(grid):
    given = {k: v for k, v in given.items() if k in _OF_THE_SWEEP}
    return grids.Parser(given).parse({})
  flags = block.points()[0]
  axes = [axis for axis in block.axes if axis not in block.own]
  return grids.understand(grids.Parser(given), flags, axes)[0]


def _below(folder: pathlib.Path, point: grids.Point) -> grids.Point:
  """Moves a point's results into the sweep's folder."""
  return dataclasses.replace(point, root=str(folder / 'runs'))


def default_name(points: Sequence[grids.Point]) -> str:
  """Builds a name that identifies the sweep's settings."""
  text = json.dumps([p.identity for p in points], sort_keys=True)
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'sweep-{tasks.short(points[0].identity["task"])}-{digest}'


def _left_out(points: Sequence[grids.Point]) -> dict[str, list[str]]:
  """Returns, by axis, the methods that do not use it."""
  found: dict[str, list[str]] = {}
  for point in points:
    for flag in point.left_out:
      names = found.setdefault(flag, [])
      if point.algorithm not in names:
        names.append(point.algorithm)
  return found


def describe(sweep: Sweep) -> str:
  """Lists the points, for --dry_run."""
  points = sweep.points
  if sweep.tuned_on is not None:
    points = [p for p in points if p.identity['seed'] == sweep.tuned_on]
  lines = [f'{len(points)} runs, results in {sweep.folder}']
  lines += [f'  {p.name}' for p in points]
  if sweep.tuned_on is not None:
    lines.append(
      f"and each method's best of seed {sweep.tuned_on} again on seeds "
      + ', '.join(map(str, sweep.repeats))
    )
  for flag, names in _left_out(sweep.points).items():
    lines.append(
      f'--{flag} is no axis of {", ".join(names)}, which '
      f'{"does" if len(names) == 1 else "do"} not use it'
    )
  total = sum(p.total_rounds for p in points)
  also = '' if sweep.tuned_on is None else ', not counting the repeated runs'
  lines.append(f'{total:,} rounds in all{also}')
  return '\n'.join(lines)
