"""Settings of the C library's allocator."""

import ctypes
import os
import platform

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
