"""A supervisor that ends its command when its parent process has ended.

Started as a script, in a session of its own:

  python supervisor.py PARENT_PID COMMAND [ARGUMENT ...]

Standard input is the read end of a pipe of which only the parent holds the
write end. However the parent ends (normally, by an exception, SIGTERM or
SIGKILL), the kernel closes that end and the read returns. A child that the
parent forked without exec may hold the write end open, so the parent's pid is
polled too. `prctl(PR_SET_PDEATHSIG)` on the command alone would not suffice: it
follows the *thread* that started the command. Here it covers the case that the
supervisor itself is killed.

Uses only the standard library and imports nothing of this package: the
supervisor must start quickly and outlive an interpreter in any state.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import types

_PR_SET_PDEATHSIG = 1
_POLL_SECONDS = 0.5
_GRACE_SECONDS = 2.0


def _die_with_supervisor() -> None:
  # Runs between fork and exec in this single-threaded process.
  ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end(process: 'subprocess.Popen[bytes]') -> None:
  """Ends the command: first SIGTERM, then SIGKILL."""
  process.terminate()
  try:
    process.wait(timeout=_GRACE_SECONDS)
  except subprocess.TimeoutExpired:
    process.kill()
    process.wait()


def main(arguments: 'list[str]') -> int:
  """Runs the command and returns its exit code, 128 + N after signal N."""
  parent = int(arguments[0])
  # The parent handles Ctrl-C: it may still need the worker for a checkpoint,
  # and its end ends the worker anyway.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  signal.signal(signal.SIGHUP, signal.SIG_IGN)

  def interrupted(signum: int, frame: 'types.FrameType | None') -> None:
    raise SystemExit(128 + signum)

  signal.signal(signal.SIGTERM, interrupted)
  # Notices the command's end at once, not at the next poll.
  wake_read, wake_write = os.pipe()
  os.set_blocking(wake_write, False)
  signal.set_wakeup_fd(wake_write)
  signal.signal(signal.SIGCHLD, lambda signum, frame: None)
  process = subprocess.Popen(
    arguments[1:],
    stdin=subprocess.DEVNULL,
    stdout=2,
    preexec_fn=_die_with_supervisor,
  )
  try:
    os.write(1, b'%d\n' % process.pid)
    while process.poll() is None:
      readable, _, _ = select.select([0, wake_read], [], [], _POLL_SECONDS)
      if wake_read in readable:
        os.read(wake_read, 64)
      if 0 in readable and not os.read(0, 1):
        break
      if os.getppid() != parent:
        break
  finally:
    _end(process)
  code = process.returncode
  return code if code >= 0 else 128 - code


if __name__ == '__main__':
  sys.exit(main(sys.argv[1:]))
