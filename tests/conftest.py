"""Fixtures that all tests share."""

import functools
import gc
import importlib.util
import os
import pathlib
import signal
import subprocess
import tempfile
from typing import Any

import pytest

from tests import tiers

# Newer GPUs compute products of float32 in 19 bits; transcriptions do not.
os.environ.setdefault('NVIDIA_TF32_OVERRIDE', '0')

_CHECKOUT = pathlib.Path(__file__).resolve().parents[1]


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  # As in a background job of a shell. TFF ends its worker by SIGINT, and waits
  # forever for one that has inherited that it is ignored.
  signal.signal(signal.SIGINT, signal.default_int_handler)


# Folders whose files take seconds; those of the others take minutes.
_BRIEF = ('board', 'flags', 'optimizers', 'report', 'results', 'tasks')


def pytest_addoption(parser):
  """Adds the option of `make test-all SHARE=1/4`."""
  parser.addoption('--share', help='run a share of the test files, as in 1/4')


def pytest_collection_modifyitems(config, items):
  """Puts brief files last, so that workers end at nearly the same time."""
  tests = pathlib.Path(__file__).parent
  share = config.getoption('share')
  if share:
    items[:] = [
      item
      for item in items
      if tiers.in_share(item.path.relative_to(tests).as_posix(), share)
    ]
  items.sort(key=lambda i: i.path.relative_to(tests).parts[0] in _BRIEF)


def pytest_collection_finish():
  """Keeps the garbage collector from all that is imported.

  TensorFlow has a million objects, and tracing makes many more: looking through
  the former again and again takes a tenth of the tests' time.
  """
  gc.collect()
  gc.freeze()
  gc.set_threshold(20_000, 20, 20)


def pytest_runtest_setup(item):
  """Skips tests of what this installation does without."""
  parameters = getattr(item, 'callspec', None)
  # Others than text, such as tensors, may not be comparable.
  values = [
    value
    for value in (parameters.params.values() if parameters else ())
    if isinstance(value, (str, list))
  ]
  if (
    item.get_closest_marker('native')
    or 'native' in item.fixturenames
    or any(value in ('native', ['--runtime=native']) for value in values)
  ) and not _has_worker():
    pytest.skip("needs TFF's worker program, which `make native` installs")
  flags = [f for value in values if isinstance(value, list) for f in value]
  if (
    item.get_closest_marker('ray')
    or 'ray_nodes' in item.fixturenames
    or any(str(f).startswith(('--runtime=ray', '--ray_')) for f in flags)
  ) and importlib.util.find_spec('ray') is None:
    pytest.skip('needs Ray, which `make ray` installs')


@functools.cache
def _has_worker():
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top
  from tff_adaptive.runtime import tff_names  # pylint: disable=g-import-not-at-top

  try:
    tff_names.worker_binary_path()
  except runtime.RuntimeFailure:
    return False
  return True


# That of `in_process_context`, once a test has asked for it.
_contexts: list[Any] = []


@pytest.fixture(scope='session')
def in_process_context():
  """Makes this project's own runtime the one that computations run in."""
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

  _contexts.append(runtime.set_in_process_context())
  yield _contexts[-1]
  _contexts.clear()


@pytest.fixture(autouse=True)
def same_context():
  """Lets no test leave another runtime to those after it."""
  yield
  if _contexts:
    from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

    runtime.set_default_context(_contexts[-1])


@pytest.fixture(scope='session')
def ray_nodes():
  """A Ray cluster of two machines with a core each, both of them this one."""
  from tests import ray_nodes as nodes  # pylint: disable=g-import-not-at-top

  with nodes.started() as cluster:
    yield cluster


@pytest.fixture
def pictures():
  """Lets `undrawn` runs draw their pictures."""


@pytest.fixture
def undrawn(monkeypatch, request):
  """Makes runs draw no pictures, which takes as long as training small ones."""
  if 'pictures' in request.fixturenames:
    return
  # pylint: disable=g-import-not-at-top
  from tasks import figures as task_figures
  from tff_adaptive.lab.recording.figures import curves

  def write(rows, path, title):
    del rows, title
    path.write_bytes(b'')

  monkeypatch.setattr(curves, 'draw_curves', write)
  monkeypatch.setattr(curves, 'draw_step_sizes', lambda *_: None)
  monkeypatch.setattr(task_figures, 'draw_partition', lambda *_, **__: None)


@pytest.fixture(scope='session')
def real_data() -> pathlib.Path:
  """A folder with real data files, laid out as `cache_dir` expects them.

  TFF_ADAPTIVE_TEST_DATA names it; without that, packed files in shared/data
  beside the checkout are unpacked once into the system's temporary folder.
  Tests that need real data are skipped where there is neither.
  """
  named = os.environ.get('TFF_ADAPTIVE_TEST_DATA')
  if named:
    folder = pathlib.Path(named)
    if not folder.is_dir():
      pytest.fail(f'TFF_ADAPTIVE_TEST_DATA names no folder: {folder}')
    return folder
  packed = _CHECKOUT.parent / 'shared' / 'data'
  if not (packed / 'unpack.py').is_file():
    pytest.skip(
      'no real data: set TFF_ADAPTIVE_TEST_DATA, or put the packed files into'
      f' {packed}'
    )
  return _unpack(packed)


def _unpack(packed: pathlib.Path) -> pathlib.Path:
  user = os.getuid() if hasattr(os, 'getuid') else 0
  folder = pathlib.Path(tempfile.gettempdir()) / f'tff_adaptive_data_{user}'
  done = folder / 'complete'
  stamp = str(sorted((p.name, p.stat().st_size) for p in packed.iterdir()))
  if not done.is_file() or done.read_text(encoding='utf-8') != stamp:
    spec = importlib.util.spec_from_file_location(
      'unpack', packed / 'unpack.py'
    )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.unpack(str(folder), source=str(packed))
    done.write_text(stamp, encoding='utf-8')
  return folder


@pytest.fixture(name='small_disk')
def small_disk_fixture(tmp_path):
  """A file system of one megabyte."""
  folder = tmp_path / 'disk'
  folder.mkdir()
  mount = ['mount', '-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', str(folder)]
  if os.getuid() or subprocess.run(mount, check=False).returncode:
    pytest.skip('only root may mount a file system')
  yield folder
  subprocess.run(['umount', str(folder)], check=True)
