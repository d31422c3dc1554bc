"""Registries of optimizers, methods and tasks, open to other packages.

A module registers its entry when it is imported. The tables import this
package's modules, and other modules that are named

  in the environment:  TFF_ADAPTIVE_EXTENSIONS=my_rules,my_tasks
  or by a package:     an entry point of the group tff_adaptive.extensions

Imports happen when a table is first read. Such modules should not import
TensorFlow but `tff_adaptive.lazy`, which imports it on first use.
"""

import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, Optional, TypeVar

from tff_adaptive import errors

VARIABLE = 'TFF_ADAPTIVE_EXTENSIONS'
GROUP = 'tff_adaptive.extensions'
Row = TypeVar('Row')
_loaded = False


def load() -> None:
  """Imports the extensions' modules, once.

  Raises:
    SettingsError: If a module cannot be imported.
  """
  global _loaded
  if _loaded:
    return
  # Set before the imports, which read the tables too.
  _loaded = True
  named = filter(None, os.environ.get(VARIABLE, '').split(','))
  places = {name.strip(): f'{VARIABLE} names' for name in named}
  for entry in importlib.metadata.entry_points(group=GROUP):
    places.setdefault(entry.value, f'The entry point {entry.name} names')
  for name, who in places.items():
    try:
      importlib.import_module(name)
    except (Exception, SystemExit) as e:
      _loaded = False
      raise errors.SettingsError(
        f'{who} {name!r}, which cannot be imported: {errors.reason(e)}.'
      ) from e


def _place_of(row: Any) -> Any:
  """Returns where the class of an entry is defined, or the entry."""
  kind = getattr(row, 'options', None) or getattr(row, 'description', row)
  if not isinstance(kind, type):
    return row
  return kind.__module__, kind.__qualname__


class Table(Mapping[str, Row], Generic[Row]):
  """A registry of entries by name, the package's own first."""

  def __init__(
    self,
    packages: Iterable[str],
    add_more: Optional[Callable[[Any], None]] = None,
  ):
    """Initializes an empty table.

    Args:
      packages: Packages whose modules, at any depth, add entries when imported.
      add_more: Called with the table before its first read, to add others.
    """
    self._rows: dict[str, Row] = {}
    self._packages = tuple(packages)
    self._add_more = add_more
    self._is_complete = False

  def _load(self) -> None:
    """Imports all modules that add entries, once."""
    if self._is_complete:
      return
    # Set before the imports, which read the tables too.
    self._is_complete = True
    try:
      for package in map(importlib.import_module, self._packages):
        inside = pkgutil.walk_packages(package.__path__, f'{package.__name__}.')
        for module in inside:
          importlib.import_module(module.name)
      load()
      if self._add_more is not None:
        self._add_more(self)
    except Exception:
      self._is_complete = False
      raise

  def add(self, name: str, row: Row) -> None:
    """Adds an entry; replaces that of the same class, defined once more.

    So a notebook's cell may run again, and a module be imported that failed.

    Raises:
      ValueError: If the name is taken, or is not usable in a flag.
    """
    known = name in self._rows
    taken = known and _place_of(self._rows[name]) != _place_of(row)
    if taken or not name.isidentifier():
      raise ValueError(
        f'{name!r} cannot be added: a name consists of letters, digits and '
        f'underscores and must be new; {", ".join(self._rows)} are taken.'
      )
    self._rows[name] = row

  def __getitem__(self, name: str) -> Row:
    self._load()
    return self._rows[name]

  def __iter__(self) -> Iterator[str]:
    self._load()
    return iter(self._rows)

  def __len__(self) -> int:
    self._load()
    return len(self._rows)
