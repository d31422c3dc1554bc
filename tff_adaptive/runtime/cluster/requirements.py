"""Checks of the requirements of a Ray cluster, without importing Ray."""

import importlib.util
import re


def require_ray() -> None:
  """Raises `ValueError` unless Ray is installed."""
  if importlib.util.find_spec('ray') is None:
    raise ValueError(
      'Ray is not installed: make ray, or pip install --no-deps'
      ' --ignore-requires-python -r requirements-ray.txt.'
    )


def is_address(text: str) -> bool:
  """Returns whether a text is `auto` or `host:port`."""
  if text == 'auto':
    return True
  found = re.fullmatch(r'(?:\[[\da-fA-F:.]+\]|[^\s:/\[\]]+):(\d{1,5})', text)
  return found is not None and 0 < int(found[1]) < 65536
