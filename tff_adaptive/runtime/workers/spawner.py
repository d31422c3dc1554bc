"""A process with TensorFlow imported that forks one for each connection.

Started as a module, with the arguments of `ExecutorService` and of the engine
as JSON, by `relay.Spawner`, which holds the other end of standard input: a
socket of whole messages. Each message makes it fork a process and comes with a
socket that is the new process's lifeline. The process says on it how it began;
when the other end is closed, however that comes about, this process kills it.

What a process computes cannot always be interrupted from inside, but it can be
killed from here. For that, this process only waits and forks: it never uses
TensorFlow, which would not survive a fork.
"""

import ctypes
import json
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections.abc import Mapping
from typing import Any
from typing import NoReturn

READY = b'ready'
SERVING = b'serving '
SOCKET_NAME = 's'
# The messages: fork a process that serves, or one that only starts an engine.
SERVE, TRY = b'serve', b'try'
MAX_MESSAGE = 65536
_PR_SET_PDEATHSIG = 1


def main(settings: Mapping[str, Any]) -> int:
  """Forks processes until nobody holds the other end of standard input."""
  # TensorFlow's and NumPy's imports start threads, which wait for work and hold
  # no lock in the meantime.
  warnings.filterwarnings('ignore', 'This process .* is multi-threaded')
  control = socket.socket(fileno=os.dup(0))
  os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
  os.dup2(2, 1)  # Standard output is the worker's, for one line.
  # Imports TensorFlow, for all that are forked.
  from tff_adaptive.runtime.workers import server  # noqa: F401

  own = os.getpid()
  wake_read, wake_write = os.pipe()
  os.set_blocking(wake_write, False)
  signal.set_wakeup_fd(wake_write)
  signal.signal(signal.SIGCHLD, lambda signum, frame: None)
  children: dict[int, tuple[socket.socket, int]] = {}
  poll = select.poll()
  poll.register(control, select.POLLIN)
  poll.register(wake_read, select.POLLIN)
  control.send(READY)
  while True:
    # A new process last: its lifeline may get the number of one that has ended.
    events = sorted(poll.poll(), key=lambda event: event[0] == control.fileno())
    for file, _ in events:
      if file == wake_read:
        os.read(wake_read, 64)
        for known, (_, pid) in list(children.items()):
          if os.waitpid(pid, os.WNOHANG)[0]:
            _forget(poll, children, known)
      elif file in children:
        _kill(children[file][1])
        _forget(poll, children, file)
      elif file == control.fileno():
        message, files, _, _ = socket.recv_fds(control, MAX_MESSAGE, 1)
        if not message:
          for _, pid in children.values():
            _kill(pid)
          return 0
        lifeline = socket.socket(fileno=files[0])
        pid = os.fork()
        if not pid:
          signal.set_wakeup_fd(-1)
          signal.signal(signal.SIGCHLD, signal.SIG_DFL)
          for other in (control, *(other for other, _ in children.values())):
            other.close()
          _run(own, lifeline, message, settings)
        children[files[0]] = (lifeline, pid)
        # Its end, or an error, is told without being asked for.
        poll.register(lifeline, 0)


def _forget(
  poll: select.poll, children: dict[int, tuple[socket.socket, int]], file: int
) -> None:
  """Drops a process that has ended."""
  poll.unregister(file)
  lifeline, _ = children.pop(file)
  lifeline.close()


def _kill(pid: int) -> None:
  """Ends a process that may have ended already, and waits for it."""
  # Nobody else can have the id: it is ours until we have waited for it.
  os.kill(pid, signal.SIGKILL)
  os.waitpid(pid, 0)


def _run(
  parent: int,
  lifeline: socket.socket,
  message: bytes,
  settings: Mapping[str, Any],
) -> NoReturn:
  """Serves one connection, in a process of its own, until it is killed."""
  ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
  if os.getppid() != parent:
    os._exit(1)  # It ended before that.
  # One connection's TensorFlow must leave room on a GPU for the others'.
  os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
  try:
    said, server = _start(message, settings)
  except (ValueError, RuntimeError) as e:
    said, server = str(e).encode()[:MAX_MESSAGE], None
  lifeline.send(said)
  if server is not None:
    threading.Event().wait()
  os._exit(0)


def _start(message: bytes, settings: Mapping[str, Any]) -> tuple[bytes, Any]:
  """Starts an engine, and a server if the message asks for one."""
  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime.engine import engine as engine_lib
  from tff_adaptive.runtime.engine import resources
  from tff_adaptive.runtime.workers import server

  resources.set_threads_per_operation(1)
  engine = engine_lib.Engine(**settings['engine'])
  if message == TRY:
    return READY, None
  service = server.ExecutorService(
    engine, end_process=lambda: os._exit(1), **settings['service']
  )
  # Removed by the other side, once it is connected. The path by the folder's
  # descriptor is short enough for a socket wherever the folder is.
  folder = tempfile.mkdtemp(prefix='tff_adaptive_')
  place = os.open(folder, os.O_DIRECTORY)
  running, _ = server.start_server(
    service, f'unix:/proc/self/fd/{place}/{SOCKET_NAME}'
  )
  return SERVING + os.fsencode(folder), running  # Ends with its last reference.


if __name__ == '__main__':
  sys.exit(main(json.loads(sys.argv[1])))
