"""Worker processes of a sweep on the machines of a Ray cluster.

A Ray actor reserves the cores and the GPU of a trial and starts a worker
process, the same as in a sweep on one machine. All workers share the sweep's
folder and its study.
"""

import dataclasses
import multiprocessing
import os
import socket
import threading
import time
from typing import Any
from typing import Optional

import ray

from tff_adaptive import errors
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import flags
from tff_adaptive.lab.sweep import worker
from tff_adaptive.runtime.cluster import connection as cluster

_SECONDS_OF_LISTENING = 1.0
_SECONDS_BETWEEN_LOOKS = 5.0
# Kind of the last message, which carries the worker process' exit code.
_ENDED = 'ended'


class _Host:
  """A Ray actor that owns a worker process."""

  def __init__(self, sweep: flags.Sweep, folder: str):
    """Starts the worker process in a folder.

    Raises:
      SettingsError: If this machine cannot see the sweep's folder.
    """
    if os.path.isdir(folder):
      os.chdir(folder)
    if sweeps.read(sweep.folder) is None:
      raise errors.SettingsError(
        f'{socket.gethostname()} cannot access the folder of the sweep, '
        f'{sweep.folder.absolute()}: trials on a cluster need a '
        '--root_output_dir shared by all machines.'
      )
    context = multiprocessing.get_context('spawn')
    self._listening, theirs = context.Pipe(duplex=False)
    self._process = context.Process(target=worker.serve, args=(theirs, sweep))
    self._process.start()
    theirs.close()

  def listen(self) -> list[tuple[str, str, Any]]:
    """Returns new messages of the process, waiting up to a second for one."""
    messages: list[tuple[str, str, Any]] = []
    try:
      while self._listening.poll(0 if messages else _SECONDS_OF_LISTENING):
        messages.append(self._listening.recv())
    except (EOFError, OSError):
      self._process.join()
      messages.append((_ENDED, '', self._process.exitcode))
    return messages

  @ray.method(concurrency_group='control')
  def stop(self) -> None:
    """Asks the process to save its run and exit."""
    self._process.terminate()


@dataclasses.dataclass(frozen=True)
class Share:
  """The resources of the cluster that one trial uses.

  Attributes:
    cpus: Number of cores.
    gpus: Number of GPUs, possibly a fraction.
  """

  cpus: int
  gpus: float

  def fit(self, node: dict[str, Any]) -> int:
    """Returns how many trials fit on a machine."""
    resources = node['Resources']
    count = int(resources.get('CPU', 0) // self.cpus)
    if self.gpus:
      count = min(count, int(resources.get('GPU', 0) // self.gpus))
    return count


class Machines:
  """The machines of a cluster on which a sweep starts worker processes."""

  def __init__(self, sweep: flags.Sweep):
    """Connects to the cluster.

    Raises:
      WorkerFailure: If the cluster does not answer.
    """
    self._sweep = sweep
    self._connected = cluster.connect(sweep.options['ray_address'])
    gpus = sweep.options['gpus_per_trial']
    if gpus is None:
      gpus = any(node['Resources'].get('GPU') for node in cluster.nodes())
    self._share = Share(sweep.options['cpus_per_trial'], float(gpus))
    self._room = (0, 0.0)

  def room(self) -> int:
    """Returns how many trials fit on the machines at once."""
    room, since = self._room
    if not room or time.monotonic() - since > _SECONDS_BETWEEN_LOOKS:
      room = sum(self._share.fit(node) for node in cluster.nodes())
      self._room = (room, time.monotonic())
    return min(room, self._sweep.options['workers'] or room)

  def start(self, connection: Any) -> 'Process':
    """Starts a worker process, as soon as its resources are free.

    Args:
      connection: Receives the messages of the process.
    """
    options: dict[str, Any] = dict(concurrency_groups={'control': 1})
    host = ray.remote(**options)(_Host).options(
      num_cpus=self._share.cpus, num_gpus=self._share.gpus
    )
    return Process(host.remote(self._sweep, os.getcwd()), connection)

  def close(self) -> None:
    """Disconnects from the cluster."""
    if self._connected:
      ray.shutdown()


class Process:
  """A worker process on another machine, like a `multiprocessing.Process`.

  Attributes:
    pid: -1, which is no process on this machine.
    exitcode: The exit code; `None` while the process runs, and if its machine
      is lost.
    lost: The exception with which the process' actor was lost, if it was.
  """

  pid = -1

  def __init__(self, actor: Any, connection: Any):
    self._actor = actor
    self._connection = connection
    self.exitcode: Optional[int] = None
    self.lost: Optional[Exception] = None
    self._thread = threading.Thread(target=self._listen, daemon=True)
    self._thread.start()

  def _listen(self) -> None:
    """Forwards the messages of the process until it ends."""
    try:
      while self.exitcode is None:
        for message in ray.get(self._actor.listen.remote()):
          if message[0] == _ENDED:
            self.exitcode = message[2]
          else:
            self._connection.send(message)
    except (ray.exceptions.RayError, OSError) as e:
      self.lost = e
    self._connection.close()

  def terminate(self) -> None:
    """Asks the process to save its run and exit."""
    self._actor.stop.remote()

  def join(self) -> None:
    """Waits for the process to end."""
    self._thread.join()
    ray.kill(self._actor)

  def check_started(self) -> None:
    """Raises `RunError` if the process could not start."""
    error = self.lost
    if isinstance(error, ray.exceptions.ActorDiedError):
      if error.actor_init_failed:
        message = str(error).strip().splitlines()[-1].strip()
        raise errors.RunError(message.partition(': ')[2] or message)
