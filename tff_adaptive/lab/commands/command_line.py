"""The command line: commands, their help and their exit codes.

The implementation of `main.py` and of the installed command `tff-adaptive`.
TensorFlow is imported only by commands that compute.
"""

import gc
import importlib.metadata
import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Optional, TextIO

# Hides TensorFlow's log messages at startup; errors are raised regardless.
os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# Several processes, such as a sweep's, may share a GPU.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')

from tff_adaptive import errors
from tff_adaptive import parameters
from tff_adaptive.lab.commands import board
from tff_adaptive.lab.commands import compare
from tff_adaptive.lab.commands import costs
from tff_adaptive.lab.commands import export
from tff_adaptive.lab.commands import list as listing
from tff_adaptive.lab.commands import report
from tff_adaptive.lab.commands import sweep
from tff_adaptive.lab.commands import train
from tff_adaptive.lab.flags import options
from tff_adaptive.lab.flags import parsing as flags
from tff_adaptive.lab.training.loop import stopping
from tff_adaptive.runtime import failures

_COMMANDS = {
  'train': 'runs or resumes an experiment (the default command)',
  'sweep': 'runs or resumes a sweep of experiments',
  'report': 'DIR: writes an HTML page with figures and tables of runs',
  'board': 'tunes methods alike and compares their costs of reaching targets',
  'compare': 'RUN...: compares results of runs',
  'costs': 'measures traffic, memory and gradient evaluations per method',
  'export': "RUN DIR: exports a run's model for use without TFF",
  'list': 'lists tasks, algorithms, optimizers and presets',
  'help': '[COMMAND]: shows this help, or the flags of a command',
}
# Commands with flags of their own.
MAINS = {
  'sweep': sweep,
  'board': board,
  'report': report,
  'compare': compare,
  'costs': costs,
  'export': export,
}
# Those that have the flags of a run, too.
_WITH_RUNS = ('sweep', 'costs')
# Commands that compute nothing and need no TFF.
_WITHOUT_TFF = ('report', 'compare', 'list')
_TFF = '0.87.0'


def _help(command: str, arguments: Sequence[str], full: bool) -> str:
  if command in MAINS:
    module = MAINS[command]
    lines = [f'usage: python main.py {module.USAGE.rstrip()}', '']
    lines.append(module.build_options().help())
  else:
    lines = ['usage: python main.py [COMMAND] [--flag=value ...]\n']
    lines += [f'  {name:<8} {text}' for name, text in _COMMANDS.items()]
    lines.append('\nhelp COMMAND shows the flags of a command.\n')
  if command not in MAINS or command in _WITH_RUNS:
    table = flags.Flags()
    named = flags.tasks_named(arguments)
    if full or command not in MAINS:
      lines += ['', table.help(full)]
    lines += map(table.help_of_task, named)
  return '\n'.join(lines)


def _check_tff() -> None:
  """Raises `SettingsError` unless the required version of TFF is installed."""
  try:
    found = importlib.metadata.version('tensorflow-federated')
  except importlib.metadata.PackageNotFoundError:
    found = 'none'
  if found != _TFF:
    raise errors.SettingsError(
      f'tensorflow-federated {_TFF} is required, {found} is installed; '
      'requirements.txt pins compatible versions: pip install --no-deps '
      '--ignore-requires-python -r requirements.txt.'
    )


def main(arguments: Sequence[str]) -> int:
  """Runs a command; returns the exit code."""
  command = 'train'
  if arguments and not arguments[0].startswith('-'):
    command, *arguments = arguments
  try:
    if sys.flags.optimize > 1:
      raise errors.SettingsError(
        'python -OO removes docstrings, which Keras and the help need: start '
        'with python or python -O.'
      )
    if command == 'help':
      # Equivalent to COMMAND --help; `help --task=...` is about training.
      named = arguments and not arguments[0].startswith('-')
      command, *arguments = arguments if named else ['train', *arguments]
      arguments = [*arguments, '--help']
    if command not in _COMMANDS:
      raise errors.SettingsError(
        f'The command must be one of {", ".join(_COMMANDS)}, got {command!r}'
        f'{parameters.suggestion(command, _COMMANDS)}.'
      )
    full = bool({'--helpfull', '--help=full'} & {*arguments})
    if full or {'--help', '-h', '-help', '--helpshort'} & {*arguments}:
      print(_help(command, arguments, full))
      return 0
    if command not in _WITHOUT_TFF:
      _check_tff()
    return {'train': train, 'list': listing, **MAINS}[command].main(arguments)
  except errors.SettingsError as e:
    print(e, file=sys.stderr)
    return 2
  except parameters.ParameterError as e:
    print(options.refusal(e), file=sys.stderr)
    return 2
  except (errors.RunError, failures.RuntimeFailure) as e:
    print(e, file=sys.stderr)
    return 1
  except stopping.Stopped as e:
    return 128 + e.signal_number
  except SystemExit as e:
    print(errors.of_exit(e), file=sys.stderr)
    return 1
  except KeyboardInterrupt:
    when = ' before training started' if command == 'train' else ''
    print(f'Interrupted{when}.', file=sys.stderr)
    return 128 + signal.SIGINT


class _Output:
  """Standard output, whose full disk does not end a run.

  Attributes:
    error: The last error of writing, if any.
  """

  def __init__(self, stream: TextIO):
    self._stream = stream
    self.error: Optional[OSError] = None

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def write(self, text: str) -> int:
    self._try(self._stream.write, text)
    return len(text)

  def flush(self) -> None:
    self._try(self._stream.flush)

  def _try(self, function: Callable[..., Any], *arguments: Any) -> None:
    try:
      function(*arguments)
    except BrokenPipeError:
      raise
    except OSError as e:
      self.error = e


def run() -> None:
  """Runs the installed command."""
  # Importing TensorFlow and tracing make a million objects that stay.
  gc.set_threshold(20_000, 20, 20)
  if sys.stdout is None:  # A shell's `>&-`.
    sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), 'w')
  output = _Output(sys.stdout)
  sys.stdout = output
  try:
    code = main(sys.argv[1:])
    output.flush()
  except BrokenPipeError:  # The reader, such as `head`, has closed the pipe.
    code = 128 + signal.SIGPIPE
  if output.error is not None:
    print(
      f'Standard output cannot be written: {output.error.strerror}.',
      file=sys.stderr,
    )
    code = code or 1
  if code == 128 + signal.SIGPIPE or output.error is not None:
    # Python flushes once more when it ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
  sys.exit(code)
