"""The flags of `main.py sweep`, and the runs that they ask for.

Imports no TensorFlow, so that bad flags are reported at once.
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
from tff_adaptive.flags import options as options_lib
from tff_adaptive.flags import parsing as flags_lib
from tff_adaptive.flags import runtime_flags
from tff_adaptive.report import scores
from tff_adaptive.sweep import grids
from tff_adaptive.sweep import papers
from tff_adaptive.sweep.blocks import Block

_flag = parameters.Parameter
_FLAGS = (
  _flag(
    'grid',
    str,
    None,
    "A paper's grid, PAPER/TASK or PAPER/TASK/METHOD, such as "
    'reddi2021/emnist_character; an --axis replaces its axis of that name.',
  ),
  _flag(
    'select',
    Literal.__getitem__(tuple(scores.RULES)),
    scores.DEFAULT,
    'Which configuration is best: '
    + '; '.join(f'{r.name}: {r.help}' for r in scores.RULES.values())
    + '.',
  ),
  _flag(
    'search',
    Literal['grid', 'random', 'tpe', 'gp', 'halving', 'bayesian'],
    'grid',
    'Which configurations are run. grid: all. random: --trials of them. tpe, '
    'gp: --trials of them, each where a tree-structured Parzen estimator, or a '
    'Gaussian process (which needs PyTorch), expects most of those that were '
    'tried before. halving is short for grid with --pruner=halving, bayesian '
    'for tpe.',
  ),
  _flag(
    'pruner',
    Literal['none', 'halving'],
    'none',
    'Which runs are given up on the way. halving: after a few rounds all but '
    'the best part of those that came as far, after more rounds again, and so '
    'forth (asynchronous successive halving).',
  ),
  _flag(
    'trials',
    parameters.Count,
    None,
    'Configurations that --search=random, tpe or gp tries; 20 unless given.',
  ),
  _flag(
    'halving_factor',
    parameters.Annotated[int, parameters.Range(low=2)],
    None,
    'One in so many runs goes on with --pruner=halving; 3 unless given.',
  ),
  _flag(
    'storage',
    str,
    None,
    "Where the sweep's state is, for several machines to share one sweep: a "
    'URL of a database, such as postgresql://user@host/name or '
    'sqlite:////folder/file, or journal:FILE for a file in a shared folder. '
    "A file in the sweep's folder unless given.",
  ),
  _flag(
    'workers',
    parameters.NonNegativeInt,
    None,
    'Processes that run at once, each one run after the other; 0 runs them '
    'in this process. 1 unless given; on a Ray cluster as many as there is '
    'room for.',
  ),
  _flag(
    'ray_address',
    str,
    None,
    'Runs the processes on the machines of a Ray cluster: auto, or host:port '
    'of its head. All of them must share --root_output_dir.',
  ),
  _flag('cpus_per_trial', parameters.Count, 1, 'Cores of a run on a cluster.'),
  _flag(
    'gpus_per_trial',
    parameters.NonNegative,
    None,
    'GPUs of a run on a cluster, such as 0.5 for two on one; 1 unless given '
    'where there are any.',
  ),
  _flag(
    'runs_per_process',
    parameters.Count,
    40,
    'Runs after which a process is replaced by a fresh one, which bounds '
    'its memory.',
  ),
  _flag(
    'divergence_factor',
    parameters.NonNegative,
    10.0,
    'A run is given up when its training loss is for 3 rounds more than this '
    'many times the loss of the untrained model, or is not finite; 0 for '
    'only the latter.',
  ),
  _flag(
    'retry_failed',
    bool,
    False,
    'Run those again that failed; what diverged is not tried again.',
  ),
)
_AXIS = _flag(
  'axis',
  str,
  parameters.REQUIRED,
  'FLAG=V1,V2,...: the values of a flag to try. Given several times, '
  'all combinations are run; seed=0,1,2 repeats them.',
)
# Flags of a run that say something of the sweep as a whole.
_OF_THE_SWEEP = ('experiment_name', 'root_output_dir', 'dry_run')


def build_options() -> options_lib.Options:
  """Declares the flags of `main.py sweep` beside those of a run."""
  return options_lib.Options(*_FLAGS, repeated=[_AXIS])


@dataclasses.dataclass(frozen=True)
class Sweep:
  """The settings of a sweep: what to run.

  Attributes:
    folder: Where everything is.
    points: The runs.
    dry_run: Whether to list them instead.
    options: Values of `build_options`.
  """

  folder: pathlib.Path
  points: Sequence[grids.Point]
  dry_run: bool
  options: Mapping[str, Any]

  @property
  def in_processes(self) -> bool:
    """Whether runs have processes of their own."""
    return self.options['workers'] != 0

  @property
  def sampler(self) -> str:
    """The choice of the next configuration: 'grid', 'random', 'tpe' or 'gp'."""
    return _read_search(self.options)[0]

  @property
  def pruner(self) -> str:
    """The rule by which runs are given up on the way: 'none' or 'halving'."""
    return _read_search(self.options)[1]

  def log_of(self, name: str) -> pathlib.Path:
    """Returns the file that gets a run's output."""
    return self.folder / 'logs' / f'{name}.log'


def parse(arguments: Sequence[str]) -> Sweep:
  """Reads a command line.

  Raises:
    SettingsError: In one sentence, what is wrong.
  """
  options, rest = build_options().split(arguments)
  _check_search(options)
  axes = _read_axes(options['axis'])
  parser = flags_lib.Flags()
  parser.know(*axes.get('task', ()))
  told = parser.given(rest)
  blocks = _choose_blocks(options['grid'], axes, told)
  shared = _parse_shared(options['grid'], axes, told)
  of_runs = {k: v for k, v in told.items() if k not in _OF_THE_SWEEP}
  points = grids.points(of_runs, grids.with_axes(blocks, axes), '')
  _check_lengths(options, points)
  _check_cluster(options, points)
  name = shared.settings.experiment_name or default_name(points)
  folder = pathlib.Path(shared.settings.root_output_dir) / name
  return Sweep(
    folder, [_below(folder, p) for p in points], shared.dry_run, options
  )


def _read_search(options: Mapping[str, Any]) -> tuple[str, str]:
  """Reads which sampler and pruner --search and --pruner ask for."""
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
      "--search=gp needs PyTorch, which is none of this program's own "
      'requirements: pip install torch, or take --search=tpe.'
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
      '--workers=0 runs everything in this process, and --ray_address on '
      'other machines: give one of them.'
    )
  if any(point.identity['runtime'] == 'ray' for point in points):
    raise errors.SettingsError(
      '--ray_address of a sweep runs each trial on one machine, and '
      '--runtime=ray one trial on all of them: give one of them.'
    )


def _read_axes(texts: Sequence[str]) -> dict[str, Sequence[str]]:
  """Reads the values of each --axis, by flag."""
  axes: dict[str, Sequence[str]] = {}
  for text in texts:
    flag, values = grids.parse_axis(text)
    if flag in axes:
      raise errors.SettingsError(f'--axis={flag} is given twice.')
    axes[flag] = values
  for flag in axes:
    if flag in _OF_THE_SWEEP:
      raise errors.SettingsError(f'--{flag} cannot be an axis of a sweep.')
  return axes


def _choose_blocks(
  grid: Optional[str], axes: Mapping[str, Any], told: Mapping[str, str]
) -> list[Block]:
  """Chooses the blocks of a paper's grid, or an empty one for the axes."""
  if grid is not None:
    return papers.load(grid, told.get('algorithm'))
  if not axes:
    raise errors.SettingsError(
      'A sweep needs --axis=FLAG=V1,V2,... (one or more) or --grid=NAME.'
    )
  return [Block()]


def _parse_shared(
  grid: Optional[str],
  axes: Mapping[str, Sequence[str]],
  told: Mapping[str, str],
) -> flags_lib.Parsed:
  """Reads what all points share.

  Also finds what is wrong with the flags that they share. A point stands for
  all: what is accepted may depend on an axis.
  """
  if grid is not None:
    told = {k: v for k, v in told.items() if k in _OF_THE_SWEEP}
    return grids.Parser(told).parse({})
  flags = {flag: values[0] for flag, values in axes.items()}
  return grids.understand(grids.Parser(told), flags, flags)[0]


def _below(folder: pathlib.Path, point: grids.Point) -> grids.Point:
  """Puts a point's results among the runs of a sweep's folder."""
  return dataclasses.replace(point, root=str(folder / 'runs'))


def default_name(points: Sequence[grids.Point]) -> str:
  """Makes a name that tells the sweep's settings apart."""
  text = json.dumps([p.identity for p in points], sort_keys=True)
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'sweep-{tasks.short(points[0].identity["task"])}-{digest}'


def _left_out(points: Sequence[grids.Point]) -> dict[str, list[str]]:
  """Names the methods that do not use an axis, by axis."""
  found: dict[str, list[str]] = {}
  for point in points:
    for flag in point.left_out:
      names = found.setdefault(flag, [])
      if point.algorithm not in names:
        names.append(point.algorithm)
  return found


def describe(sweep: Sweep) -> str:
  """Lists the points, for --dry_run."""
  lines = [f'{len(sweep.points)} runs, results in {sweep.folder}']
  lines += [f'  {p.name}' for p in sweep.points]
  for flag, names in _left_out(sweep.points).items():
    lines.append(
      f'--{flag} is no axis of {", ".join(names)}, which '
      f'{"has" if len(names) == 1 else "have"} no use for it'
    )
  total = sum(p.total_rounds for p in sweep.points)
  lines.append(f'{total:,} rounds in all')
  return '\n'.join(lines)
