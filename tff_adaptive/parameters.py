"""Hyperparameters: one home for their names, defaults, ranges and help.

A builder declares its hyperparameters once, in its signature:

  @parameters.checked
  def build_yogi(*, learning_rate: parameters.Positive = 0.01, ...):

`checked` holds every call to the annotated ranges. `read_signature` reads the
same signature out of the source file without importing it, so that command-line
flags, `--help` and the check of a flag's value cost no import of TensorFlow,
and no default is ever written twice.
"""

import ast
import dataclasses
import functools
import inspect
import math
import pathlib
import re
import textwrap
import types
import typing
from collections.abc import Callable
from collections.abc import Mapping
from typing import Annotated
from typing import Any
from typing import Literal
from typing import Optional
from typing import Union


@dataclasses.dataclass(frozen=True)
class Range:
  """An interval of real numbers, as the annotation of a hyperparameter.

  Attributes:
    low: Smallest value, or `None` for no lower end.
    high: Largest value, or `None` for no upper end.
    open_low: Whether `low` itself is outside.
    open_high: Whether `high` itself is outside.
  """

  low: Optional[float] = None
  high: Optional[float] = None
  open_low: bool = False
  open_high: bool = False

  def __contains__(self, value: float) -> bool:
    if self.low is not None:
      if value < self.low or (self.open_low and value == self.low):
        return False
    if self.high is not None:
      if value > self.high or (self.open_high and value == self.high):
        return False
    return True

  def __str__(self) -> str:
    ends = []
    if self.low is not None:
      ends.append(f'{"above" if self.open_low else "at least"} {self.low:g}')
    if self.high is not None:
      ends.append(f'{"below" if self.open_high else "at most"} {self.high:g}')
    return ' and '.join(ends) or 'any finite number'


Positive = Annotated[float, Range(low=0, open_low=True)]
NonNegative = Annotated[float, Range(low=0)]
Fraction = Annotated[float, Range(low=0, high=1, open_high=True)]
Probability = Annotated[float, Range(low=0, high=1)]
Count = Annotated[int, Range(low=1)]
NonNegativeInt = Annotated[int, Range(low=0)]

REQUIRED = object()


class ParameterError(ValueError):
  """A hyperparameter has a value that it does not accept."""


@dataclasses.dataclass(frozen=True)
class Parameter:
  """One hyperparameter of a builder.

  Attributes:
    name: As the builder spells it.
    annotation: Its type annotation.
    default: The default, or `REQUIRED`.
    help: What the builder's docstring says of it, on one line.
  """

  name: str
  annotation: Any
  default: Any = REQUIRED
  help: str = ''

  @property
  def required(self) -> bool:
    return self.default is REQUIRED

  @property
  def optional(self) -> bool:
    return _split(self.annotation).optional

  @property
  def kind(self) -> type:
    """The Python type of its values: float, int, bool or str."""
    return _split(self.annotation).kind

  @property
  def choices(self) -> Optional[tuple[str, ...]]:
    """The accepted words, where these are all that is accepted."""
    return _split(self.annotation).choices

  @property
  def accepted(self) -> str:
    """What is accepted, in words."""
    split = _split(self.annotation)
    if split.choices is not None:
      words = 'one of ' + ', '.join(repr(c) for c in split.choices)
    elif split.kind is bool:
      words = 'True or False'
    elif split.kind is str:
      words = 'a string'
    elif split.kind in (int, float):
      noun = 'a whole number' if split.kind is int else 'a number'
      words = noun if split.range is None else f'{noun} {split.range}'
    else:
      words = f'a {split.kind.__name__}'
    return words + (' or None' if split.optional else '')

  def check(self, value: Any, name: Optional[str] = None) -> Any:
    """Returns `value`, with a whole number as float where a float is meant.

    Args:
      value: The value to check.
      name: How the message names the hyperparameter; its own name unless given.

    Raises:
      ParameterError: If the value is not accepted.
    """
    split = _split(self.annotation)
    message = f'{name or f"`{self.name}`"} must be {self.accepted}'
    if value is None and split.optional:
      return None
    if split.choices is not None:
      if value not in split.choices:
        raise ParameterError(f'{message}, got {value!r}.')
      return value
    if split.kind is float and _is_number(value):
      value = float(value)
    elif split.kind is int and _is_number(value) and value == int(value):
      value = int(value)
    elif not isinstance(value, split.kind) or (
      isinstance(value, bool) and split.kind is not bool
    ):
      raise ParameterError(f'{message}, got {value!r}.')
    if split.kind in (int, float):
      if not math.isfinite(value) or (
        split.range is not None and value not in split.range
      ):
        raise ParameterError(f'{message}, got {value!r}.')
    return value

  def parse(self, text: str, name: Optional[str] = None) -> Any:
    """Reads a value from a word of the command line and checks it."""
    split = _split(self.annotation)
    value: Any = text
    if split.optional and text.lower() in ('none', ''):
      value = None
    elif split.kind is bool:
      value = {'true': True, '1': True, 'false': False, '0': False}.get(
        text.lower(), text
      )
    elif split.kind in (int, float):
      try:
        value = float(text)
      except ValueError:
        value = text
    return self.check(value, name)


@dataclasses.dataclass(frozen=True)
class _Split:
  kind: type
  range: Optional[Range]
  choices: Optional[tuple[str, ...]]
  optional: bool


def _split(annotation: Any) -> _Split:
  """Takes an annotation apart."""
  optional = False
  if typing.get_origin(annotation) in (Union, types.UnionType):
    members = [a for a in typing.get_args(annotation) if a is not type(None)]
    optional = len(members) < len(typing.get_args(annotation))
    if len(members) != 1:
      return _Split(object, None, None, optional)
    annotation = members[0]
  if typing.get_origin(annotation) is Literal:
    choices = typing.get_args(annotation)
    return _Split(type(choices[0]), None, choices, optional)
  if typing.get_origin(annotation) is Annotated:
    kind, *extra = typing.get_args(annotation)
    ranges = [e for e in extra if isinstance(e, Range)]
    return _Split(kind, ranges[0] if ranges else None, None, optional)
  kind = typing.get_origin(annotation) or annotation
  return _Split(
    kind if isinstance(kind, type) else object, None, None, optional
  )


def _is_number(value: Any) -> bool:
  if isinstance(value, bool):
    return False
  try:
    return math.isfinite(value)
  except (TypeError, OverflowError):
    return False


def checked(builder: Callable[..., Any]) -> Callable[..., Any]:
  """Holds every call of `builder` to the ranges in its signature.

  Only keyword-only arguments are checked: the positional ones are essentials
  (a model, say) that the builder checks itself.
  """
  keywords = {
    p.name: Parameter(
      p.name,
      p.annotation,
      REQUIRED if p.default is inspect.Parameter.empty else p.default,
    )
    for p in inspect.signature(builder).parameters.values()
    if p.kind is inspect.Parameter.KEYWORD_ONLY
    and p.annotation is not inspect.Parameter.empty
  }

  @functools.wraps(builder)
  def build(*args: Any, **kwargs: Any) -> Any:
    for name, value in kwargs.items():
      if name in keywords:
        kwargs[name] = keywords[name].check(value)
    return builder(*args, **kwargs)

  return build


@functools.cache
def read_signature(
  path: Union[str, pathlib.Path], function: str
) -> Mapping[str, Parameter]:
  """The keyword-only parameters of a function, without importing its module.

  Annotations may use `parameters`, `Literal`, `Optional` and Python's own
  types; defaults are literals. That is all that a hyperparameter needs, and it
  is what keeps this readable without importing TensorFlow.

  Args:
    path: The Python file.
    function: The function's name, defined at the top of that file.

  Returns:
    The parameters by name, in the order of the signature.

  Raises:
    LookupError: If the file defines no such function.
  """
  source = pathlib.Path(path).read_text(encoding='utf-8')
  for node in ast.parse(source).body:
    if isinstance(node, ast.FunctionDef) and node.name == function:
      break
  else:
    raise LookupError(f'{path} defines no function {function}.')
  names = dict(
    parameters=types.SimpleNamespace(**globals()),
    Literal=Literal,
    Optional=Optional,
    Any=Any,
    Sequence=typing.Sequence,
  )
  helps = argument_help(ast.get_docstring(node) or '')
  result = {}
  for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults):
    annotation = Any
    if argument.annotation is not None:
      try:
        # The expression is this project's own source, not a user's text.
        annotation = eval(ast.unparse(argument.annotation), names)  # pylint: disable=eval-used
      except NameError:
        annotation = Any
    result[argument.arg] = Parameter(
      argument.arg,
      annotation,
      REQUIRED if default is None else ast.literal_eval(default),
      helps.get(argument.arg, ''),
    )
  return types.MappingProxyType(result)


def argument_help(docstring: str) -> dict[str, str]:
  """The `Args:` section of a docstring: each argument's text on one line."""
  match = re.search(
    r'^Args:\n(.*?)(?=^\S|\Z)', docstring, re.MULTILINE | re.DOTALL
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
