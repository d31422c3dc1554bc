"""The flags of `main.py sweep`, and the runs that they ask for.

Imports no TensorFlow, so that bad flags are told at once.
"""

import dataclasses
import hashlib
import json
import pathlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.flags import options as options_lib
from tff_adaptive.flags import parsing as flags_lib
from tff_adaptive.report import selection
from tff_adaptive.sweep import grids

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
    Literal.__getitem__(tuple(selection.RULES)),
    selection.DEFAULT,
    'Which configuration is best: '
    + '; '.join(f'{r.name}: {r.help}' for r in selection.RULES.values())
    + '.',
  ),
  _flag(
    'search',
    Literal['grid', 'halving', 'bayesian'],
    'grid',
    'grid runs every point. halving runs all for a few rounds, then the best '
    'part for more, and so forth. bayesian tries --trials configurations, '
    'each where a Gaussian process over those before expects most.',
  ),
  _flag(
    'trials',
    parameters.Count,
    None,
    'Configurations that --search=bayesian tries; 20 unless given.',
  ),
  _flag(
    'halving_factor',
    parameters.Annotated[int, parameters.Range(low=2)],
    None,
    'One in so many configurations goes on with --search=halving; 3 unless '
    'given.',
  ),
  _flag(
    'workers',
    parameters.NonNegativeInt,
    1,
    'Processes that run at once, each one run after the other; 0 runs them '
    'in this process.',
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
  """The flags of `main.py sweep` beside those of a run."""
  return options_lib.Options(*_FLAGS, repeated=[_AXIS])


@dataclasses.dataclass(frozen=True)
class Sweep:
  """What to run.

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


def parse(arguments: Sequence[str]) -> Sweep:
  """Reads a command line.

  Raises:
    SettingsError: In one sentence, what is wrong.
  """
  options, rest = build_options().split(arguments)
  _check_search(options)
  axes = _read_axes(options['axis'])
  told = flags_lib.Flags().given(rest)
  blocks = _choose_blocks(options['grid'], axes, told)
  shared = _parse_shared(options['grid'], axes, told)
  of_runs = {k: v for k, v in told.items() if k not in _OF_THE_SWEEP}
  points = grids.points(of_runs, grids.with_axes(blocks, axes), '')
  _check_lengths(options, points)
  name = shared.settings.experiment_name or default_name(points)
  folder = pathlib.Path(shared.settings.root_output_dir) / name
  return Sweep(
    folder, [_below(folder, p) for p in points], shared.dry_run, options
  )


def _check_search(options: Mapping[str, Any]) -> None:
  for flag, needed in (('trials', 'bayesian'), ('halving_factor', 'halving')):
    if options[flag] is not None and options['search'] != needed:
      raise errors.SettingsError(
        f'--{flag}={options[flag]} would be ignored: --search='
        f'{options["search"]}.'
      )


def _check_lengths(
  options: Mapping[str, Any], points: Sequence[grids.Point]
) -> None:
  totals = sorted({p.settings.total_rounds for p in points})
  if options['search'] == 'halving' and len(totals) > 1:
    raise errors.SettingsError(
      '--search=halving compares runs after equal rounds, but --total_rounds '
      f'is {", ".join(map(str, totals))}.'
    )


def _read_axes(texts: Sequence[str]) -> dict[str, Sequence[str]]:
  """The values of each --axis, by flag."""
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
) -> list[grids.Block]:
  """The blocks of a paper's grid, or an empty one for the axes."""
  if grid is not None:
    return grids.load(grid, told.get('algorithm'))
  if not axes:
    raise errors.SettingsError(
      'A sweep needs --axis=FLAG=V1,V2,... (one or more) or --grid=NAME.'
    )
  return [grids.Block()]


def _parse_shared(
  grid: Optional[str],
  axes: Mapping[str, Sequence[str]],
  told: Mapping[str, str],
) -> flags_lib.Parsed:
  """What all points share.

  Also finds what is wrong with the flags that they share. A point stands for
  all: what is accepted may depend on an axis.
  """
  if grid is not None:
    flags = {k: v for k, v in told.items() if k in _OF_THE_SWEEP}
  else:
    flags = {**told, **{flag: values[0] for flag, values in axes.items()}}
  return flags_lib.Flags().parse(flags_lib.words(flags))


def _below(folder: pathlib.Path, point: grids.Point) -> grids.Point:
  """The point with its results among the runs of a sweep's folder."""
  settings = dataclasses.replace(
    point.settings, root_output_dir=str(folder / 'runs')
  )
  return dataclasses.replace(point, settings=settings)


def default_name(points: Sequence[grids.Point]) -> str:
  """A name that tells the sweep's settings apart."""
  text = json.dumps([p.settings.identity for p in points], sort_keys=True)
  digest = hashlib.blake2b(text.encode('utf-8'), digest_size=4).hexdigest()
  return f'sweep-{points[0].settings.task}-{digest}'


def describe(sweep: Sweep) -> str:
  """The points, for --dry_run."""
  lines = [f'{len(sweep.points)} runs, results in {sweep.folder}']
  lines += [f'  {p.name}' for p in sweep.points]
  total = sum(p.settings.total_rounds for p in sweep.points)
  lines.append(f'{total:,} rounds in all')
  return '\n'.join(lines)
