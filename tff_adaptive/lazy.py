"""Lazy imports of TensorFlow, TensorFlow Federated, pandas and Altair.

Modules that describe an optimizer, a method or a task write

  from tff_adaptive.lazy import tf

so that `--help`, lists and errors about flags do not wait seconds for the
import of TensorFlow. Code that runs on import (base classes, decorators,
defaults) must not use `tf`.
"""

import importlib
import types
from typing import Any, TYPE_CHECKING


class Module(types.ModuleType):
  """A module that is imported on first access to an attribute."""

  def __getattr__(self, name: str) -> Any:
    value = getattr(importlib.import_module(self.__name__), name)
    # Cached: `__getattr__` is called for missing attributes only.
    setattr(self, name, value)
    return value


if TYPE_CHECKING:
  import altair as alt
  import pandas
  import tensorflow as tf
  import tensorflow_federated as tff
  import vl_convert
else:
  alt = Module('altair')
  pandas = Module('pandas')
  tf = Module('tensorflow')
  tff = Module('tensorflow_federated')
  vl_convert = Module('vl_convert')

__all__ = ['alt', 'pandas', 'tf', 'tff', 'vl_convert']
