"""Descriptions of hyperparameters: types, ranges, defaults and help.

Classes with hyperparameters derive from `Described`, a frozen dataclass whose
fields are documented where they are declared.

  class Yogi(Described):
    learning_rate: Positive = 0.01
    \"\"\"Server step, in units of x per round.\"\"\"

`Yogi(learning_rate=-1)` raises a `ParameterError`, and `parameters_of(Yogi)`
returns the source of flags, `--help` and tables of the documentation.
"""

import ast
import contextlib
import dataclasses
import difflib
import functools
import inspect
import itertools
import math
import re
import string
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Optional, Union


@dataclasses.dataclass(frozen=True)
class Range:
  """An interval of real numbers, as the annotation of a hyperparameter.

  Attributes:
    low: Smallest value, or `None` for no lower end.
    high: Largest value, or `None` for no upper end.
    open_low: Whether `low` itself is excluded.
    open_high: Whether `high` itself is excluded.
  """

  low: Optional[float] = None
  high: Optional[float] = None
  open_low: bool = False
  open_high: bool = False

  def __contains__(self, value: float) -> bool:
    return (
      self.low is None
      or value > self.low
      or (value == self.low and not self.open_low)
    ) and (
      self.high is None
      or value < self.high
      or (value == self.high and not self.open_high)
    )

  def __str__(self) -> str:
    ends = (
      (self.low, 'above' if self.open_low else 'at least'),
      (self.high, 'below' if self.open_high else 'at most'),
    )
    return (
      ' and '.join(f'{words} {end:g}' for end, words in ends if end is not None)
      or 'any finite number'
    )


Positive = Annotated[float, Range(low=0, open_low=True)]
NonNegative = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1, open_high=True)]
Share = Annotated[float, Range(low=0, high=1, open_low=True, open_high=True)]
Ratio = Annotated[float, Range(low=0, high=1, open_low=True)]
Probability = Annotated[float, Range(low=0, high=1)]
Count = Annotated[int, Range(low=1)]
CountOrAll = Annotated[int, Range(low=-1)]
NonNegativeInt = Annotated[int, Range(low=0)]
Seed32 = Annotated[int, Range(low=0, high=2**32 - 1)]

# A class, so that its identity survives pickling.
REQUIRED = inspect.Parameter.empty


class ParameterError(ValueError):
  """Raised if a hyperparameter has a value that it does not accept.

  It keeps the names in its message apart, so that each caller can show the
  names that it uses itself: keywords or flags.
  """

  def __init__(self, parameter: str, problem: str, **values: Any):
    """Takes the parts of the message.

    Args:
      parameter: Name of the hyperparameter at the check.
      problem: One sentence as a format string: `{}` is that name, and `{other}`
        the name of hyperparameter `other` unless in `values`.
      **values: Other values of the format string.
    """
    super().__init__(parameter, problem)
    self._parameter, self._problem, self._values = parameter, problem, values
    fields = [field or '' for _, field, *_ in string.Formatter().parse(problem)]
    names = dict.fromkeys([parameter, *(f.partition('.')[0] for f in fields)])
    self._called = {n: n for n in names if n and n not in values}

  @property
  def parameter(self) -> str:
    """Name of the hyperparameter, as used by the caller."""
    return self._called[self._parameter]

  @property
  def names(self) -> list[str]:
    """Names of all hyperparameters in the message, `parameter` first."""
    return list(self._called.values())

  def renamed(self, rename: Callable[[str], str]) -> 'ParameterError':
    """Returns the error with the caller's names of hyperparameters."""
    error = type(self)(self._parameter, self._problem, **self._values)
    error._called = {n: rename(called) for n, called in self._called.items()}
    return error

  def told(self, spell: Callable[[str], str] = '`{}`'.format) -> str:
    """Formats the message, spelling each name as the caller writes it."""
    shown = {name: spell(called) for name, called in self._called.items()}
    return string.Formatter().vformat(
      self._problem, [shown[self._parameter]], {**shown, **self._values}
    )

  def __str__(self) -> str:
    return self.told()


class UnusedError(ParameterError):
  """Raised if a hyperparameter was given that is not used."""


def suggestion(given: Any, known: Iterable[str]) -> str:
  """Returns a hint for the error message about a misspelt name.

  Args:
    given: The misspelt name.
    known: Valid names.
  """
  close = difflib.get_close_matches(str(given)[:80], list(known), n=2)
  return f' (did you mean {" or ".join(close)}?)' if close else ''


@contextlib.contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
  """Renames hyperparameters in `ParameterError`s raised in the context."""
  try:
    yield
  except ParameterError as e:
    raise e.renamed(lambda name: names.get(name, name)) from e


@dataclasses.dataclass(frozen=True)
class Parameter:
  """One hyperparameter of a builder.

  Attributes:
    name: Keyword of the builder.
    annotation: Type annotation.
    default: Default value, or `REQUIRED`.
    help: Help text on one line.
    kind: Python type of its values: float, int, bool or str.
    range: Range of accepted numbers; by default all finite ones.
    choices: The accepted words, or `None` if any are.
    optional: Whether `None` is accepted.
  """

  name: str
  annotation: Any
  default: Any = REQUIRED
  help: str = ''
  kind: type = dataclasses.field(init=False)
  range: Optional[Range] = dataclasses.field(init=False)
  choices: Optional[tuple[str, ...]] = dataclasses.field(init=False)
  optional: bool = dataclasses.field(init=False)

  def __post_init__(self) -> None:
    for name, value in _take_apart(self.annotation).items():
      object.__setattr__(self, name, value)

  @property
  def required(self) -> bool:
    return self.default is REQUIRED

  def named(self, name: str, **changes: Any) -> 'Parameter':
    """Returns a copy with another name.

    Args:
      name: The name.
      **changes: New values of `default` or `help`.
    """
    # `dataclasses.replace` would parse the annotation again for each of the
    # thousands of copies in a table of flags.
    made = object.__new__(type(self))
    vars(made).update(vars(self), **changes, name=name)
    return made

  @property
  def accepted(self) -> str:
    """Description of the accepted values."""
    if self.choices is not None:
      words = 'one of ' + ', '.join(repr(c) for c in self.choices)
    elif self.kind in (int, float):
      words = 'a whole number' if self.kind is int else 'a number'
      words += '' if self.range is None else f' {self.range}'
    else:
      known = {bool: 'True or False', str: 'a string'}
      words = known.get(self.kind, f'a {self.kind.__name__}')
    return words + (' or None' if self.optional else '')

  def check(self, value: Any) -> Any:
    """Checks a value and returns it, numbers converted to `kind`.

    Raises:
      ParameterError: If the value is not accepted.
    """
    meant = value
    if self.kind in (int, float) and _is_number(value):
      meant = self.kind(value)
    if not self._accepts(value, meant):
      raise ParameterError(
        self.name,
        '{} must be {accepted}, got {value!r}{hint}.',
        accepted=self.accepted,
        value=value,
        hint=suggestion(value, self.choices or ()),
      )
    return meant

  def _accepts(self, value: Any, meant: Any) -> bool:
    if value is None:
      return self.optional or self.kind is object
    if self.choices is not None:
      return value in self.choices
    if self.kind not in (int, float):
      return isinstance(value, self.kind)
    return (
      _is_number(value)
      and meant == value
      and (self.range is None or meant in self.range)
    )

  def read(self, text: str) -> Any:
    """Converts a command-line word to a value, without checking it.

    A word that cannot be converted is returned as it is, for `check` to reject.
    """
    word = text.lower()
    if self.kind not in (bool, int, float):
      return text
    if self.optional and word in ('none', ''):
      return None
    if self.kind is bool:
      words = {'true': True, '1': True, 'false': False, '0': False}
      return words.get(word, text)
    for kind in dict.fromkeys([self.kind, float]):
      with contextlib.suppress(ValueError):
        return kind(text)
    return text

  def parse(self, text: str) -> Any:
    """Converts a command-line word to a value and checks it."""
    return self.check(self.read(text))


def _take_apart(annotation: Any) -> dict[str, Any]:
  """Converts a type annotation to attributes of `Parameter`."""
  found: dict[str, Any] = {
    'kind': object,
    'range': None,
    'choices': None,
    'optional': False,
  }
  if typing.get_origin(annotation) in (Union, types.UnionType):
    members = [a for a in typing.get_args(annotation) if a is not type(None)]
    found['optional'] = len(members) < len(typing.get_args(annotation))
    annotation = members[0] if len(members) == 1 else object
  if typing.get_origin(annotation) is Literal:
    return {**found, 'kind': str, 'choices': typing.get_args(annotation)}
  if typing.get_origin(annotation) is Annotated:
    annotation, *extra = typing.get_args(annotation)
    found['range'] = next((e for e in extra if isinstance(e, Range)), None)
  kind = typing.get_origin(annotation) or annotation
  if isinstance(kind, type) and kind is not Any:
    found['kind'] = kind
  return found


def _is_number(value: Any) -> bool:
  if isinstance(value, bool):
    return False
  try:
    return math.isfinite(value)
  except (TypeError, OverflowError):
    return False


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Described:
  """Base of classes whose fields are hyperparameters.

  Subclasses become frozen, keyword-only dataclasses without a decorator. A
  string below a field is its help; inherited fields keep the help of the class
  that declares them. Fields with a leading underscore are not hyperparameters.

  Attributes:
    later: Names of fields that earlier runs lack. At their defaults they are no
      part of a run's identity, so that these runs can be resumed.

  Raises:
    ParameterError: If a value is out of range, or values are inconsistent.
  """

  later: ClassVar[frozenset[str]] = frozenset()

  def __init_subclass__(cls, **kwargs: Any):
    super().__init_subclass__(**kwargs)
    dataclasses.dataclass(frozen=True, kw_only=True)(cls)

  def __post_init__(self) -> None:
    for name, parameter in parameters_of(type(self)).items():
      object.__setattr__(self, name, parameter.check(getattr(self, name)))
    self.check()

  def check(self) -> None:
    """Raises `ParameterError` for inconsistent values."""


def parameters_of(described: Any) -> Mapping[str, Parameter]:
  """Returns the hyperparameters of a `Described` class by name.

  The learning rate comes first, then the class' own, then inherited ones.
  """
  return _parameters_of(described)


@functools.cache
def _parameters_of(described: Any) -> Mapping[str, Parameter]:
  fields = {f.name: f for f in dataclasses.fields(described)}
  types_of = _types_of(described)
  helps = _helps_of(described)
  names = dict.fromkeys(
    name
    for owner in described.__mro__
    for name in vars(owner).get('__annotations__', ())
    if name in fields and not name.startswith('_')
  )
  return types.MappingProxyType(
    {
      name: Parameter(
        name,
        types_of[name],
        REQUIRED
        if fields[name].default is dataclasses.MISSING
        else fields[name].default,
        helps.get(name, ''),
      )
      for name in sorted(names, key=lambda name: name != 'learning_rate')
    }
  )


def _types_of(described: type) -> dict[str, Any]:
  """Evaluates the annotations of a dataclass' fields, and no others.

  Those of class variables may refer to modules that only type checkers import.
  """
  names = {field.name for field in dataclasses.fields(described)}
  found: dict[str, Any] = {}
  for owner in reversed(described.__mro__):
    own = vars(owner).get('__annotations__', {})
    annotated = types.SimpleNamespace(
      __annotations__={n: a for n, a in own.items() if n in names}
    )
    found |= typing.get_type_hints(
      annotated, vars(sys.modules[owner.__module__]), include_extras=True
    )
  return found


def _helps_of(described: type) -> dict[str, str]:
  """Collects the strings below a class' fields, including inherited ones."""
  helps: dict[str, str] = {}
  for owner in reversed(described.__mro__):
    if owner is not object:
      helps |= _helps_in(owner.__module__).get(owner.__name__, {})
  return helps


@functools.cache
def _helps_in(module: str) -> Mapping[str, dict[str, str]]:
  """Collects the strings below fields in a module, by class and field.

  Python keeps no such strings, so they are read from the source; there are none
  without it, as in a REPL.
  """
  try:
    tree = ast.parse(inspect.getsource(sys.modules[module]))
  except (OSError, TypeError):
    return {}
  helps: dict[str, dict[str, str]] = {}
  for node in _classes(tree):
    own = helps.setdefault(node.name, {})
    for field, text in itertools.pairwise(node.body):
      if (
        isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
      ):
        own[field.target.id] = ' '.join(text.value.value.split())
  return helps


def _classes(node: ast.AST) -> Iterator[ast.ClassDef]:
  """Finds classes wherever they are; expressions can hold none."""
  for child in ast.iter_child_nodes(node):
    if isinstance(child, ast.ClassDef):
      yield child
    if not isinstance(child, ast.expr):
      yield from _classes(child)


def argument_help(docstring: str) -> dict[str, str]:
  """Parses the `Args:` section of a docstring to texts by argument."""
  match = re.search(
    r'^Args:\n(.*?)(?=^\S|\Z)',
    docstring,
    re.MULTILINE | re.DOTALL,
  )
  if match is None:
    return {}
  helps: dict[str, str] = {}
  current: list[str] = []
  for line in textwrap.dedent(match.group(1)).splitlines():
    start = re.match(r'([a-z_][\w, ]*): (.*)', line)
    if start:
      current = [name.strip() for name in start.group(1).split(',')]
      for name in current:
        helps[name] = start.group(2).strip()
    elif line.strip():
      for name in current:
        helps[name] += ' ' + line.strip()
  return helps
