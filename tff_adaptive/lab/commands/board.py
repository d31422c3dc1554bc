"""`main.py board`: methods under equal conditions.

Importing this module imports no TensorFlow.
"""

import importlib
import importlib.util
import os
import pathlib
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import extensions
from tff_adaptive import parameters
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import verify
from tff_adaptive.lab.board import workloads as workloads_lib
from tff_adaptive.lab.flags import options as options_lib

USAGE = """board [baselines | verify ENTRY.npz] [--flag=value ...]

Tunes methods alike on the board's workloads, repeats what tuning selects on
fresh seeds, and prints their places. Rerun the command to resume; finished and
recorded runs are reused. `board baselines` makes the targets, `board verify`
repeats a random twentieth of an entry."""
_flag = parameters.Parameter
_OF_SWEEPS = ('workers', 'retry_failed')
_NOT_OF_VERIFY = (
  'methods', 'workloads', 'quick', 'space', 'recorded_dir', 'output_dir'
)  # fmt: skip


def build_options() -> options_lib.Options:
  """Builds the flags of `main.py board`."""
  return options_lib.Options(
    _flag(
      'methods',
      str,
      None,
      'Methods to enter, with commas between; all with a search space unless '
      'given.',
    ),
    _flag(
      'workloads',
      str,
      None,
      'Workloads, with commas between, or the groups core (version 2 of the '
      'board), ten, federated and twins (version 1); core unless given.',
    ),
    _flag(
      'quick',
      bool,
      False,
      f'Only {", ".join(workloads_lib.QUICK)}, {entries.QUICK.trials} trials '
      f'and {len(entries.QUICK.seeds)} seeds: a first look.',
    ),
    _flag(
      'algorithm',
      str,
      None,
      'MODULE:NAME of a method of your own: the module that registers it and '
      'the name that it registers (docs/add_a_method.md). Needs space.',
    ),
    _flag(
      'space',
      str,
      None,
      'JSON file with the search space of algorithm (docs/board.md).',
    ),
    _flag(
      'workers',
      parameters.NonNegativeInt,
      None,
      'Number of parallel worker processes; 0 runs everything in this '
      'process. 1 unless given.',
    ),
    _flag(
      'retry_failed', bool, False, 'Repeat runs that failed in an earlier one.'
    ),
    _flag('cache_dir', str, None, "Folder with the federated tasks' files."),
    _flag(
      'root_output_dir',
      str,
      'runs',
      "Folder for the runs' folders, and for what is written unless "
      'output_dir is given.',
    ),
    _flag(
      'recorded_dir',
      str,
      'results/board',
      'Folder with recorded entries to be placed among, and with targets; '
      "without any there, the package's targets are used.",
    ),
    _flag(
      'output_dir',
      str,
      None,
      'Folder for entries, page, tables and pictures; board in '
      'root_output_dir unless given.',
    ),
  )


def main(arguments: Sequence[str]) -> int:
  """Runs `main.py board`; returns the exit code."""
  values, words = build_options().read(arguments)
  root = pathlib.Path(values['root_output_dir']) / 'board'
  output = pathlib.Path(values['output_dir'] or root)
  command = words[0] if words else ''
  if words not in ([], ['baselines']) and (command, len(words)) != (
    'verify',
    2,
  ):
    raise errors.SettingsError(
      'board takes nothing, baselines or verify ENTRY.npz, got '
      f'{" ".join(words)!r}.'
    )
  if command == 'verify':
    for name in _NOT_OF_VERIFY:
      if values[name] != build_options().split([])[0][name]:
        raise errors.SettingsError(
          f'--{name} would be ignored: board verify repeats a random part of '
          'the runs of its entry, as they were made.'
        )
    # The only module that is imported is the one that the user names.
    if values['algorithm'] is not None:
      _import_method(values['algorithm'])
    entry = entries.read(pathlib.Path(words[1]))
    return verify.verify(entry, root, *_options(values))
  submissions = _submissions(values, command == 'baselines')
  chosen = _workloads(values)
  version = workloads_lib.version_of(chosen)
  protocol = entries.QUICK if values['quick'] else entries.PROTOCOLS[version]
  if values['algorithm'] is not None:
    made = runner.Runner(submissions[0], chosen, root, *_options(values))
    made.check(protocol)
  folder = output / entries.FOLDERS[version]
  recorded = pathlib.Path(values['recorded_dir'])
  # Before hours of running: a file that cannot be used is an error at once.
  targets = None
  if command and (output / references.FILE).exists():
    references.read(output / references.FILE)
  if not command:
    path = recorded / references.FILE
    targets = references.read(path if path.exists() else references.FROZEN)
    targets.known([workload.name for workload in chosen])
    if not (recorded / folder.name).exists():
      print(f'No recorded entries in {recorded}: yours is placed alone.')
  found = [
    _enter(
      submission,
      chosen,
      protocol,
      [folder, recorded / folder.name],
      root,
      values,
    )
    for submission in submissions
  ]
  if targets is None:
    references.make(found, output / references.FILE)
    print(f'targets  {output / references.FILE}')
  else:
    _place(found, recorded / folder.name, output, targets, chosen)
  return 0


def _place(
  found: Sequence[entries.Entry],
  recorded: pathlib.Path,
  output: pathlib.Path,
  targets: references.References,
  chosen: Sequence[workloads_lib.Workload],
) -> None:
  """Writes the page of these entries and the recorded ones."""
  # Altair, which other commands should not wait for.
  from tff_adaptive.lab.board import leaderboard  # pylint: disable=g-import-not-at-top
  from tff_adaptive.lab.board import page  # pylint: disable=g-import-not-at-top

  known, complaints = entries.find(recorded)
  for complaint in complaints:
    print(f'Left out: {complaint}', file=sys.stderr)
  named = {entry.name: entry for entry in [*known, *found]}
  names = [workload.name for workload in chosen]
  board = leaderboard.build(list(named.values()), targets, names)
  print(page.write(output, board))


def _options(values: Mapping[str, Any]) -> tuple[dict[str, Any], Any]:
  """Returns the flags of sweeps, and those of runs."""
  cache = values['cache_dir']
  return (
    {name: values[name] for name in _OF_SWEEPS},
    {} if cache is None else {'cache_dir': cache},
  )


def _workloads(values: Mapping[str, Any]) -> list[workloads_lib.Workload]:
  text = values['workloads']
  if values['quick']:
    if text is not None:
      raise errors.SettingsError(
        '--workloads and --quick both choose workloads; give one of them.'
      )
    text = ','.join(workloads_lib.QUICK)
  return workloads_lib.choose(text or 'core')


def _submissions(
  values: Mapping[str, Any], baselines: bool
) -> list[entries.Submission]:
  """Reads which methods are to be entered, with which spaces.

  Raises:
    SettingsError: If one is unknown, or its space is none.
  """
  own, space, names = (values[n] for n in ('algorithm', 'space', 'methods'))
  if (own is None) != (space is None):
    raise errors.SettingsError(
      '--algorithm and --space go together: MODULE:NAME of a method of your '
      'own, and a JSON file with its search space.'
    )
  if own is not None:
    if names is not None or baselines:
      raise errors.SettingsError(
        '--algorithm enters a method of your own alone; leave --methods and '
        'baselines out.'
      )
    method = _import_method(own)
    read = spaces.read(pathlib.Path(space), method)
    return [entries.Submission(method, read)]
  if names is None:
    chosen = spaces.BASELINES if baselines else spaces.METHODS
  else:
    chosen = tuple(names.split(','))
  if baselines and names is not None:
    raise errors.SettingsError(
      f'The baselines are {", ".join(spaces.BASELINES)}; leave --methods out.'
    )
  return [
    entries.Submission(name, spaces.of_method(name))
    for name in dict.fromkeys(chosen)
  ]


def _import_method(place: str) -> str:
  """Imports a method's module in this process and its workers.

  Args:
    place: MODULE:NAME, as given by the user.

  Returns:
    The method's name.

  Raises:
    SettingsError: If there is no such module.
  """
  module, colon, name = place.partition(':')
  if not colon or not module or not name:
    raise errors.SettingsError(
      f'--algorithm must be MODULE:NAME, such as my_module:my_method, got '
      f'{place!r}.'
    )
  sys.path.insert(0, os.getcwd())
  try:
    there = importlib.util.find_spec(module) is not None
  except (ImportError, ValueError):
    there = False
  except Exception as e:  # pylint: disable=broad-exception-caught
    raise errors.SettingsError(
      f'--algorithm={place}: importing {module} fails: {errors.reason(e)}.'
    ) from e
  if not there:
    raise errors.SettingsError(
      f'--algorithm={place}: there is no module {module}, neither in the '
      'current folder nor where Python looks for packages.'
    )
  before = os.environ.get(extensions.VARIABLE)
  os.environ[extensions.VARIABLE] = ','.join(filter(None, [before, module]))
  # Where tables were read before, as in a notebook, they grow by it now.
  algorithms.names()
  if module not in sys.modules:
    importlib.import_module(module)
  return name


def _older(
  submission: entries.Submission,
  protocol: entries.Protocol,
  paths: Sequence[pathlib.Path],
) -> Optional[entries.Entry]:
  """Returns the earlier entry, if there is one.

  Args:
    submission: Method and space.
    protocol: How much it is tuned and repeated.
    paths: Files of the entry, of which the first counts most. One of another
      version, or that was changed, is made again.
  """
  older: Optional[entries.Entry] = None
  for path in reversed([p for p in paths if p.exists()]):
    try:
      found = entries.read(path)
    except errors.SettingsError as e:
      print(f'Left out: {e}', file=sys.stderr)
      continue
    if (found.submission, found.protocol) == (submission, protocol):
      older = found if older is None else found.merged(older)
  return older


def _enter(
  submission: entries.Submission,
  chosen: Sequence[workloads_lib.Workload],
  protocol: entries.Protocol,
  folders: Sequence[pathlib.Path],
  root: pathlib.Path,
  values: Mapping[str, Any],
) -> entries.Entry:
  """Runs the missing workloads; returns and writes the entry.

  With --retry_failed, also those with failed runs.

  Args:
    submission: Method and space.
    chosen: Workloads.
    protocol: How much it is tuned and repeated.
    folders: Where entries are; the first is written to.
    root: The folder of runs.
    values: The flags.

  Raises:
    SettingsError: If files that the runs read are missing or damaged.
  """
  quick = '-quick' if protocol == entries.QUICK else ''
  file = f'{submission.method}{quick}{entries.SUFFIX}'
  older = _older(submission, protocol, [f / file for f in folders])
  done = set() if older is None else set(older.records)
  if older is not None and values['retry_failed']:
    done -= set(older.reasons)
  left = [w for w in chosen if w.name not in done]
  if older is not None and not left:
    # Of code that is not this package's, changes are not seen.
    said = f'{submission.method}: recorded.'
    if values['algorithm'] is not None:
      made_by = f'{folders[0] / file} and {root / submission.label}'
      said += f' To enter changed code, delete {made_by}.'
    print(said)
    return older
  print(f'{submission.method}: {", ".join(w.name for w in left)}', flush=True)
  made = runner.Runner(submission, left, root, *_options(values))
  made.check_files()
  entry = made.enter(protocol)
  if older is not None:
    entry = entry.merged(older)
  entries.write(folders[0] / file, entry)
  print(f'entry    {folders[0] / file}', flush=True)
  return entry
