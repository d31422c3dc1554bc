"""Flags that say what runs the computations, and what they come to."""

import dataclasses
import inspect
from collections.abc import Mapping
from typing import Any
from typing import Literal
from typing import Optional

from tff_adaptive import parameters
from tff_adaptive import runtime
from tff_adaptive.runtime import arguments

# The execution contexts, the default first.
RUNTIMES = ('in_process', 'native', 'remote')
_flag = parameters.Parameter
RUNTIME = _flag(
  'runtime',
  Literal['in_process', 'native', 'remote'],
  RUNTIMES[0],
  "What runs the computations: TensorFlow in this process, TFF's own "
  'worker beside it, or workers on other machines.',
)
MAX_CONCURRENT_CLIENTS = _flag(
  'max_concurrent_clients',
  parameters.Count,
  None,
  'Clients that are trained at once; the runtime decides unless given. '
  'It changes no result.',
)
DEVICES = _flag(
  'devices',
  str,
  None,
  'Devices that the in-process runtime spreads clients over, such as '
  'GPU:0,GPU:1; all GPUs unless given, or else the CPU.',
)


@dataclasses.dataclass(frozen=True)
class _Setting:
  """A flag that sets an argument of execution contexts.

  Attributes:
    flag: The flag; `None` as its default leaves it to the context.
    takers: The contexts that have the argument.
    argument: Its name.
    rare: Whether only the full help shows the flag.
  """

  flag: parameters.Parameter
  takers: tuple[str, ...]
  argument: str
  rare: bool = True


_SETTINGS = (
  _Setting(
    MAX_CONCURRENT_CLIENTS,
    ('in_process', 'native'),
    'max_concurrent_clients',
    rare=False,
  ),
  _Setting(DEVICES, ('in_process',), 'devices'),
  _Setting(
    _flag(
      'worker_addresses',
      str,
      None,
      'Workers of the remote runtime: host:port, several with commas between; '
      '`main.py worker` starts one.',
    ),
    ('remote',),
    'addresses',
    rare=False,
  ),
  _Setting(
    _flag(
      'worker_retries',
      parameters.NonNegativeInt,
      None,
      'How often a round that lost a worker is run again, on the others or, '
      'with the native runtime, on a new one.',
    ),
    ('native', 'remote'),
    'retries',
  ),
  _Setting(
    _flag(
      'worker_timeout',
      parameters.Positive,
      None,
      'Seconds without a sign of life after which a worker is lost.',
    ),
    ('native', 'remote'),
    'worker_timeout',
  ),
  _Setting(
    _flag(
      'worker_memory_mib',
      parameters.Count,
      None,
      "Memory above which the native runtime's worker is replaced between "
      'rounds, in MiB; half of the machine unless given.',
    ),
    ('native',),
    'memory_limit',
  ),
  _Setting(
    _flag(
      'worker_certificate',
      str,
      None,
      "File with the remote workers' certificates, or of those that signed "
      'them (PEM); turns TLS on.',
    ),
    ('remote',),
    'worker_certificate',
  ),
  _Setting(
    _flag(
      'trainer_certificate',
      str,
      None,
      'File with the certificate to show to remote workers that ask.',
    ),
    ('remote',),
    'trainer_certificate',
  ),
  _Setting(
    _flag('trainer_private_key', str, None, 'File with its key.'),
    ('remote',),
    'trainer_private_key',
  ),
)
# Those that only the full help shows.
RARE = tuple(s.flag.name for s in _SETTINGS if s.rare)


def flags() -> list[parameters.Parameter]:
  """The flags, their help with the contexts' own defaults."""
  return [RUNTIME, *map(_with_default, _SETTINGS)]


def _with_default(setting: _Setting) -> parameters.Parameter:
  create = getattr(runtime, f'create_{setting.takers[0]}_context')
  default = inspect.signature(create).parameters[setting.argument].default
  if default in (None, inspect.Parameter.empty):
    return setting.flag
  text = f'{setting.flag.help} Default: {default:g}.'
  return dataclasses.replace(setting.flag, help=text)


def device_names(text: Optional[str]) -> Optional[list[str]]:
  """The devices that --devices names; `None` if it is not given."""
  return None if text is None else text.split(',')


def options(values: Mapping[str, Any]) -> dict[str, Any]:
  """The arguments of the chosen execution context.

  Args:
    values: Of the flags, by name.

  Raises:
    ParameterError: If one would be ignored, or cannot be.
  """
  chosen = values['runtime']
  result: dict[str, Any] = {}
  for setting in _SETTINGS:
    name = setting.flag.name
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
  if chosen == 'remote':
    addresses = result.get('addresses', '')
    result['addresses'] = addresses.split(',')
    try:
      arguments.check_addresses(result['addresses'])
    except ValueError as e:
      raise parameters.ParameterError(
        'worker_addresses',
        '{runtime}=remote needs {}, host:port of each worker with commas '
        'between and none twice, got {given!r}.',
        given=addresses,
      ) from e
    try:
      arguments.check_remote_credentials(
        values['worker_certificate'],
        values['trainer_certificate'],
        values['trainer_private_key'],
      )
    except ValueError as e:
      raise of_runtime(e) from e
  return result


def of_runtime(error: ValueError) -> parameters.ParameterError:
  """What a runtime says of its arguments, which it quotes `so`."""
  parts = str(error).replace('{', '{{').replace('}', '}}').split('`')
  problem = ''.join(
    f'{{{part}}}' if place % 2 else part for place, part in enumerate(parts)
  )
  return parameters.ParameterError(parts[1], problem)
