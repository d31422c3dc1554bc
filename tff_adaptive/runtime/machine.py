"""This machine's cores, memory and processes, on Linux and macOS."""

import functools
import os
import pathlib
import platform
from collections.abc import Iterable

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
