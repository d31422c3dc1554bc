"""Tables of optimizers, methods and tasks, which other packages can add to.

A row is added by the module that it is about, when that module is imported. The
tables import the modules of this package; those of others are imported if they
are named

  in the environment:  TFF_ADAPTIVE_EXTENSIONS=my_rules,my_tasks
  or by a package:     an entry point of the group tff_adaptive.extensions

Both happen when a table is first looked at. Such modules should import no
TensorFlow; `tff_adaptive.lazy` imports it when it is first used.
"""

import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from typing import Any
from typing import Generic
from typing import Optional
from typing import TypeVar

from tff_adaptive import errors

VARIABLE = 'TFF_ADAPTIVE_EXTENSIONS'
GROUP = 'tff_adaptive.extensions'
Row = TypeVar('Row')
_loaded = False


def load() -> None:
  """Imports what adds rows, once.

  Raises:
    SettingsError: If it cannot be imported.
  """
  global _loaded
  if _loaded:
    return
  # Before the imports: they look at the tables, too.
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


class Table(Mapping[str, Row], Generic[Row]):
  """Rows by name, the package's own first."""

  def __init__(
    self,
    packages: Iterable[str],
    add_more: Optional[Callable[[Any], None]] = None,
  ):
    """Initializes an empty table.

    Args:
      packages: Packages whose modules, at any depth, add rows when they are
        imported.
      add_more: Called with the table to add others, before it is first read.
    """
    self._rows: dict[str, Row] = {}
    self._packages = tuple(packages)
    self._add_more = add_more
    self._is_complete = False

  def _load(self) -> None:
    """Imports whatever adds rows, once."""
    if self._is_complete:
      return
    # Before the imports: they look at the tables, too.
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
    """Adds a row.

    Raises:
      ValueError: If the name is taken, or could be no flag.
    """
    if name in self._rows or not name.isidentifier():
      raise ValueError(
        f'{name!r} cannot be added: a name is made of letters, digits and '
        f'underscores, and {", ".join(self._rows)} are taken.'
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
