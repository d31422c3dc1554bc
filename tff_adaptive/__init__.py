"""Adaptive federated optimization on TensorFlow Federated.

Importing this package imports neither TensorFlow nor TensorFlow Federated; its
subpackages (`tff_adaptive.algorithms`, `tff_adaptive.optimizers`,
`tff_adaptive.runtime`, ...) do so on first use.
"""

import importlib
from typing import Any

__version__ = '0.1.0'

_PARTS = frozenset(
  {
    'adapters',
    'algorithms',
    'extensions',
    'lab',
    'models',
    'training',
    'privacy',
    'recording',
    'optimizers',
    'parameters',
    'processes',
    'runtime',
    'structures',
  }
)


def __getattr__(name: str) -> Any:
  if name in _PARTS:
    return importlib.import_module(f'{__name__}.{name}')
  raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
