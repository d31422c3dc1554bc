"""This machine's cores, memory, allocator and processes."""

import ctypes
import functools
import itertools
import os
import pathlib
import platform
from collections.abc import Iterable, Sequence

import psutil

_PROC = pathlib.Path('/proc')


def cores() -> list[int]:
  """Returns the numbers of the cores that this process may use."""
  process = psutil.Process()
  if hasattr(process, 'cpu_affinity'):  # Not on macOS.
    return sorted(process.cpu_affinity())
  return list(range(os.cpu_count() or 1))


def use_cores(chosen: Iterable[int]) -> None:
  """Keeps the threads that this thread starts to some cores, if possible."""
  process = psutil.Process()
  if hasattr(process, 'cpu_affinity'):
    process.cpu_affinity(list(chosen))


def available_memory() -> int:
  """Returns the available memory in bytes."""
  return int(psutil.virtual_memory().available)


def processor() -> str:
  """Returns the name of the processor, or its kind where it has none."""
  try:
    text = (_PROC / 'cpuinfo').read_text('utf-8')
  except OSError:
    text = ''
  names = (line.partition(':') for line in text.splitlines())
  return next(
    (name.strip() for key, _, name in names if key.strip() == 'model name'),
    platform.machine(),
  )


@functools.cache
def boot() -> str:
  """Returns an identifier of the machine, boot and process namespace."""
  if not _PROC.exists():
    return f'{platform.node()}/{psutil.boot_time():.0f}'
  identifier = (_PROC / 'sys/kernel/random/boot_id').read_text('utf-8')
  return f'{identifier.strip()}/{(_PROC / "self/ns/pid").stat().st_ino}'


# Parameters of glibc's `mallopt`.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_LARGE_BYTES = 64 << 20
_KEPT_BYTES = 512 << 20


def keep_freed_memory() -> None:
  """Lets the allocator keep freed memory for the next step of a client.

  By default glibc returns the memory of a large tensor to the system as soon as
  it is freed, and the next step's tensors cause a page fault for every 4 KiB: a
  sixth of a round of a model with 5 million weights. Tensors of more than 64
  MiB, and free memory of more than 512 MiB at the end of the heap, are returned
  as before. Has no effect with another C library, or if the environment sets
  the allocator.
  """
  if platform.libc_ver()[0] != 'glibc' or any(
    name == 'GLIBC_TUNABLES' or name.startswith('MALLOC_')
    for name in os.environ
  ):
    return
  mallopt = ctypes.CDLL(None).mallopt
  mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
  mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
  mallopt(_TOP_PAD, _LARGE_BYTES)


def shares(chosen: Sequence[int], count: int) -> list[list[int]]:
  """Divides cores among processes, which share them if there are too few."""
  if count >= len(chosen):
    return [[chosen[k % len(chosen)]] for k in range(count)]
  bounds = [len(chosen) * k // count for k in range(count + 1)]
  return [list(chosen[a:b]) for a, b in itertools.pairwise(bounds)]
