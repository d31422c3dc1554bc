"""Programs in processes of their own: what they print, and how they end."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
MAIN = ROOT / 'main.py'


def environment(**variables):
  """Returns this process's environment with changes; None removes one."""
  changed = {**os.environ, **variables}
  return {name: str(v) for name, v in changed.items() if v is not None}


def run(*words, code=0, cwd=None, timeout=None, **variables):
  """Runs Python with its output in pipes, and asserts how it ends.

  Args:
    *words: Those of the command line after the interpreter.
    code: The exit status, or None for any.
    cwd: The current folder.
    timeout: Seconds after which it is killed and an error is raised.
    **variables: Of its environment, see `environment`.

  Returns:
    A `subprocess.CompletedProcess` whose `stdout` and `stderr` are text.
  """
  done = subprocess.run(
    [sys.executable, *map(str, words)],
    cwd=cwd,
    env=environment(**variables),
    stdin=subprocess.DEVNULL,
    capture_output=True,
    text=True,
    timeout=timeout,
    check=False,
  )
  said = f'{done.returncode}\n{done.stdout}\n{done.stderr}'
  assert code in (None, done.returncode), said
  return done


def start(log, *words, cwd=None, errors=None, **variables):
  """Starts Python, whose output is appended to a file.

  Unlike a pipe, no worker that outlives the program keeps a file open.

  Args:
    log: The file.
    *words: Those of the command line after the interpreter.
    cwd: The current folder; that of the file by default.
    errors: A file for its errors; the same by default.
    **variables: Of its environment, see `environment`.
  """
  with (
    open(log, 'a', encoding='utf-8') as out,
    open(errors or log, 'a', encoding='utf-8') as other,
  ):
    return subprocess.Popen(
      [sys.executable, *map(str, words)],
      cwd=cwd or log.parent,
      env=environment(**variables),
      stdout=out,
      stderr=other,
    )


def logged(log, *words, code=0, timeout=300, **more):
  """Like `run`, with the output of `start`; returns what this run appended."""
  before = log.stat().st_size if log.exists() else 0
  with start(log, *words, **more) as process:
    try:
      found = process.wait(timeout)
    except BaseException:  # As `subprocess.run` does.
      process.kill()
      raise
  text = log.read_bytes()[before:].decode('utf-8')
  assert code in (None, found), f'{found}\n{text}'
  return text
