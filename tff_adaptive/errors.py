"""Errors of a run that users can resolve."""

import re
import traceback


class RunError(Exception):
  """Raised if a run cannot start or continue; the message is one sentence.

  Names and values quoted in the message may have any characters: line breaks
  and unprintable characters are escaped.
  """

  def __init__(self, message: str = ''):
    super().__init__(
      ''.join(
        c if c.isprintable() else c.encode('unicode_escape').decode('ascii')
        for c in message
      )
    )


class SettingsError(RunError):
  """Raised for flags that are not accepted."""


class DamagedError(RunError):
  """Raised if a file's content is not what was written to it."""


def of_exit(error: SystemExit) -> RunError:
  """Converts the `SystemExit` of user code in a run to an error.

  Args:
    error: The exception of `sys.exit` or `exit` in a task, a model or a
      recorder. Unconverted it would end the program silently, as if successful.
  """
  places = [
    f', line {number} of {frame.f_code.co_filename}'
    for frame, number in traceback.walk_tb(error.__traceback__)
    if '_sitebuiltins' not in frame.f_code.co_filename
  ]
  return RunError(
    'User code asked Python to exit (SystemExit: '
    f'{error}){places[-1] if places else ""}; raise an error there, or return.'
  )


def reason(error: BaseException) -> str:
  """Formats an exception as one line, without a full stop."""
  text = getattr(error, 'message', None) or str(error)
  lines = text.strip().splitlines() or [type(error).__name__]
  if lines[0].startswith('Graph execution error'):
    # The graph's location comes first, and the message near the end.
    places = re.compile(r'.*\[\{\{node|\s*(\[\[.*)?$')
    lines = [line for line in lines if not places.match(line)][-1:]
  # TensorFlow adds the graph location before and after the message.
  told = re.sub(r'^\{\{.*?\}\}\s*|\s*\[(Op:|\[\{\{).*$', '', lines[0])
  # An assertion may have an empty message before its values.
  told = re.sub(r'^assertion failed: \[(?:\] \[)?(.*)\]$', r'\1', told)
  return told.rstrip('.')
