"""A Ray cluster of two machines, both of which are this one."""

import contextlib
import itertools
import os
import shutil
import tempfile

import pytest

from tff_adaptive.runtime import machine

_REASON = 'needs Ray, which `make ray` installs'
ray = pytest.importorskip('ray', reason=_REASON)
cluster_utils = pytest.importorskip('ray.cluster_utils', reason=_REASON)
ray_utils = pytest.importorskip('ray._common.utils', reason=_REASON)

# Sockets lie in Ray's folder, and their paths must be short.
_FOLDERS = '/tmp'
_NODE = dict(
  num_cpus=1, object_store_memory=200 * 2**20, include_dashboard=False
)


class Nodes:
  """A cluster of machines with one core each.

  Attributes:
    address: `host:port` of its head.
  """

  def __init__(self, folder, cores_of_head, own_cores, **environment):
    os.environ.setdefault('RAY_USAGE_STATS_ENABLED', '0')
    # Ray notes the address there, on a machine where it never ran as well.
    os.makedirs(ray_utils.get_default_ray_temp_dir(), exist_ok=True)
    # A machine a core, if they are to be machines of their own.
    self._free = itertools.cycle(machine.cores()) if own_cores else None
    with self._on_own_cores(cores_of_head):
      self._cluster = cluster_utils.Cluster(
        initialize_head=True,
        head_node_args={**_NODE, 'temp_dir': folder, 'num_cpus': cores_of_head},
      )
    self.address = self._cluster.address
    self._others = []
    self.add(**environment)

  def add(self, **environment):
    """Adds a machine, with variables of its own in its environment."""
    with self._on_own_cores(1):
      self._others.append(
        self._cluster.add_node(**_NODE, env_vars=environment or None)
      )

  @contextlib.contextmanager
  def _on_own_cores(self, count):
    """Processes started in this block compute on the next cores only."""
    before = machine.cores()
    if self._free is not None:
      machine.use_cores({*itertools.islice(self._free, count)})
    try:
      yield
    finally:
      machine.use_cores(before)

  def kill(self):
    """Ends the machine that was added last, as if its power failed."""
    self._cluster.remove_node(self._others.pop(), allow_graceful=False)

  def close(self):
    ray.shutdown()  # The connection that a context may have left.
    self._cluster.shutdown()


@contextlib.contextmanager
def started(cores_of_head=1, own_cores=False, **environment):
  """Starts a cluster until the block ends.

  Args:
    cores_of_head: Those of the first machine.
    own_cores: Whether each machine computes on cores of its own, as machines
      do; else on all of this one's.
    **environment: Variables of the second machine's environment.
  """
  folder = tempfile.mkdtemp(prefix='r', dir=_FOLDERS)
  nodes = Nodes(folder, cores_of_head, own_cores, **environment)
  try:
    yield nodes
  finally:
    nodes.close()
    shutil.rmtree(folder, ignore_errors=True)
