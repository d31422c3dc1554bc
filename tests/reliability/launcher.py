"""Starts the program over and over, with TensorFlow imported once.

Run as a script, in a process of its own. For each line of standard input, a
JSON list of the program's arguments, it forks a child that runs them in the
working directory, with its output appended to output.log, and answers with the
child's id, then, once it has ended, with its exit status. Nothing of TensorFlow
is used before the fork, so that the child starts as a program does.
"""

import json
import os
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

from tff_adaptive.lab.commands import command_line
from tff_adaptive.lab.training.loop import centralized  # noqa: F401
from tff_adaptive.lab.training.loop import loop  # noqa: F401


def _child(arguments: list[str]) -> None:
  output = os.open('output.log', os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)
  for stream in (1, 2):
    os.dup2(output, stream)
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  sys.exit(command_line.main(arguments))


def main() -> None:
  print('ready', flush=True)
  for line in sys.stdin:
    pid = os.fork()
    if not pid:
      _child(json.loads(line))
    print(pid, flush=True)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == '__main__':
  main()
