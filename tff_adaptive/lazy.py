"""TensorFlow, TensorFlow Federated and Altair, imported at their first use.

Modules that describe something (an optimizer, a method, a task) write

  from tff_adaptive.lazy import tf

so that `--help`, lists and errors about flags come without the seconds that
importing TensorFlow takes. What such a module runs on import (base classes,
decorators, defaults) must not touch `tf`.
"""

import importlib
import types
from typing import Any
from typing import TYPE_CHECKING


class Module(types.ModuleType):
  """Stands for a module until one of its attributes is asked for."""

  def __getattr__(self, name: str) -> Any:
    value = getattr(importlib.import_module(self.__name__), name)
    setattr(self, name, value)  # `__getattr__` is called for missing ones only.
    return value


if TYPE_CHECKING:
  import altair as alt
  import tensorflow as tf
  import tensorflow_federated as tff
  import vl_convert
else:
  alt = Module('altair')
  tf = Module('tensorflow')
  tff = Module('tensorflow_federated')
  vl_convert = Module('vl_convert')

__all__ = ['alt', 'tf', 'tff', 'vl_convert']
