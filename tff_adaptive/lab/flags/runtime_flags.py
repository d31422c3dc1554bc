"""Flags that choose and configure the runtime.

A flag for an argument of an execution context is derived from the context's
factory: its signature determines which contexts take the argument, and its
docstring the help.
"""

import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import runtime
from tff_adaptive.runtime.cluster import requirements

# The execution contexts, the default first.
_CONTEXTS: Mapping[str, Callable[..., Any]] = {
  'in_process': runtime.create_in_process_context,
  'native': runtime.create_native_context,
  'ray': runtime.create_ray_context,
}
RUNTIMES = tuple(_CONTEXTS)
RUNTIME = parameters.Parameter(
  'runtime',
  Literal.__getitem__(RUNTIMES),
  RUNTIMES[0],
  "Runtime that executes computations: TensorFlow in this process, TFF's own "
  'worker process, or a Ray cluster.',
)
# Accepted values of flags, where the runtime's annotation is less specific.
_ACCEPTED = {
  'cpus_per_actor': parameters.Count,
  'devices': str,
  'max_concurrent_clients': parameters.Count,
  'memory_limit': parameters.Count,
  'retries': parameters.NonNegativeInt,
  'worker_timeout': parameters.Positive,
}


@functools.cache
def flags_of(
  function: Callable[..., Any],
) -> Mapping[str, parameters.Parameter]:
  """Derives flags from the arguments of a function of the runtime.

  Args:
    function: A function with annotations and an `Args:` section.

  Returns:
    The flags by name, in the order of the signature. The default is `None` for
    required arguments and for arguments that may be `None`.
  """
  helps = parameters.argument_help(inspect.getdoc(function) or '')
  flags = {}
  for argument in inspect.signature(function).parameters.values():
    annotation = argument.annotation
    if typing.get_origin(annotation) is types.UnionType:
      annotation, _ = typing.get_args(annotation)  # The other one is None.
    text = helps[argument.name]
    if typing.get_origin(annotation) is Sequence:
      text += ' Several are separated by commas.'
    required = argument.default is inspect.Parameter.empty
    flags[argument.name] = parameters.Parameter(
      argument.name,
      _ACCEPTED.get(argument.name, annotation),
      None if required else argument.default,
      text,
    )
  return types.MappingProxyType(flags)


@dataclasses.dataclass(frozen=True)
class _Setting:
  """A flag that sets an argument of execution contexts.

  Attributes:
    argument: The name of the argument.
    flag: The name of the flag; that of the argument if empty.
    help: The help of the flag; that of the argument if empty.
  """

  argument: str
  flag: str = ''
  help: str = ''

  @property
  def name(self) -> str:
    """The flag's name."""
    return self.flag or self.argument

  @property
  def takers(self) -> list[str]:
    """The contexts that take the argument."""
    return [
      name
      for name, create in _CONTEXTS.items()
      if self.argument in flags_of(create)
    ]

  def parameter(self) -> parameters.Parameter:
    """Declares the flag; its default leaves the argument to the context."""
    derived = flags_of(_CONTEXTS[self.takers[0]])[self.argument]
    text = self.help or derived.help
    if derived.default is not None:
      text += f' Default: {derived.default}.'
    return dataclasses.replace(derived, name=self.name, default=None, help=text)


_SETTINGS = (
  _Setting(
    'max_concurrent_clients',
    help=(
      'Maximum number of clients trained at once; results do not depend on '
      'it. By default chosen by the runtime.'
    ),
  ),
  _Setting('devices'),
  _Setting(
    'address',
    'ray_address',
    "host:port of a Ray cluster's head; auto finds one on this machine.",
  ),
  _Setting('cpus_per_actor'),
  _Setting(
    'retries',
    'worker_retries',
    'Number of retries of a round that lost a worker: native restarts the '
    'worker; on a Ray cluster, the remaining actors repeat the lost share.',
  ),
  _Setting(
    'worker_timeout',
    help='Seconds without a heartbeat after which a worker counts as lost.',
  ),
  _Setting(
    'memory_limit',
    'worker_memory_mib',
    'Memory in MiB above which the worker of the native runtime is restarted '
    "between rounds; by default half of the machine's.",
  ),
)


def flags() -> list[parameters.Parameter]:
  """Declares the flags."""
  return [RUNTIME, *(s.parameter() for s in _SETTINGS)]


def device_names(text: Optional[str]) -> Optional[list[str]]:
  """Splits the value of --devices; `None` if it is not given."""
  return None if text is None else text.split(',')


def options(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the arguments of the chosen execution context.

  Args:
    values: Values of the flags, by name.

  Raises:
    ParameterError: If a flag would be ignored, or is not accepted.
  """
  chosen = values['runtime']
  result: dict[str, Any] = {}
  for setting in _SETTINGS:
    name = setting.name
    if values[name] is None:
      continue
    if chosen not in setting.takers:
      raise parameters.ParameterError(
        name,
        '{}={given} would be ignored: {runtime}={chosen}.',
        given=values[name],
        chosen=chosen,
      )
    result[setting.argument] = values[name]
  if 'memory_limit' in result:
    result['memory_limit'] *= 2**20
  if 'devices' in result:
    result['devices'] = device_names(result['devices'])
  if chosen == 'ray':
    check_ray(result.get('address', 'auto'))
  return result


def check_ray(address: str) -> None:
  """Raises `ParameterError` if Ray is missing or the address is invalid."""
  try:
    requirements.require_ray()
  except ValueError as e:
    raise parameters.ParameterError('ray_address', str(e)) from e
  if not requirements.is_address(address):
    raise parameters.ParameterError(
      'ray_address',
      "{} must be auto or host:port of a Ray cluster's head, such as "
      '10.0.0.2:6379, got {given!r}.',
      given=address,
    )
