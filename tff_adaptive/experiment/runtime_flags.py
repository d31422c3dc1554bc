"""Flags that say what runs the computations, and what they come to."""

import re
from collections.abc import Mapping
from typing import Any
from typing import Literal

from tff_adaptive import parameters
from tff_adaptive.experiment import errors
from tff_adaptive.runtime import arguments

# The execution contexts, the default first.
RUNTIMES = ('in_process', 'native', 'remote')
# What sets which argument of which execution context.
_ARGUMENTS = {
  'max_concurrent_clients': (
    'max_concurrent_clients',
    ('in_process', 'native'),
  ),
  'devices': ('devices', ('in_process',)),
  'worker_memory_mib': ('memory_limit', ('native',)),
  'worker_retries': ('retries', ('native', 'remote')),
  'worker_timeout': ('worker_timeout', ('native', 'remote')),
  'worker_addresses': ('addresses', ('remote',)),
  'worker_certificate': ('worker_certificate', ('remote',)),
  'trainer_certificate': ('trainer_certificate', ('remote',)),
  'trainer_private_key': ('trainer_private_key', ('remote',)),
}
# Those that only the full help shows.
RARE = tuple(
  name
  for name in _ARGUMENTS
  if name not in ('max_concurrent_clients', 'worker_addresses')
)


def flags() -> list[parameters.Parameter]:
  """The flags; `None` as a default leaves it to the context."""
  flag = parameters.Parameter
  return [
    flag(
      'runtime',
      Literal['in_process', 'native', 'remote'],
      RUNTIMES[0],
      "What runs the computations: TensorFlow in this process, TFF's own "
      'worker beside it, or workers on other machines.',
    ),
    flag(
      'max_concurrent_clients',
      parameters.Count,
      None,
      'Clients that are trained at once; the runtime decides unless given. '
      'It changes no result.',
    ),
    flag(
      'devices',
      str,
      None,
      'Devices that the in-process runtime spreads clients over, such as '
      'GPU:0,GPU:1; all GPUs unless given, or else the CPU.',
    ),
    flag(
      'worker_addresses',
      str,
      None,
      'Workers of the remote runtime: host:port, several with commas between; '
      '`main.py worker` starts one.',
    ),
    flag(
      'worker_retries',
      parameters.NonNegativeInt,
      None,
      'How often a round that lost a worker is run again, on the others or, '
      'with the native runtime, on a new one; once unless given.',
    ),
    flag(
      'worker_timeout',
      parameters.Positive,
      None,
      'Seconds without a sign of life after which a worker is lost; 60 unless '
      'given.',
    ),
    flag(
      'worker_memory_mib',
      parameters.Count,
      None,
      "Memory above which the native runtime's worker is replaced between "
      'rounds, in MiB; half of the machine unless given.',
    ),
    flag(
      'worker_certificate',
      str,
      None,
      "File with the remote workers' certificates, or of those that signed "
      'them (PEM); turns TLS on.',
    ),
    flag(
      'trainer_certificate',
      str,
      None,
      'File with the certificate to show to remote workers that ask.',
    ),
    flag('trainer_private_key', str, None, 'File with its key.'),
  ]


def options(values: Mapping[str, Any]) -> dict[str, Any]:
  """The arguments of the chosen execution context.

  Args:
    values: Of the flags, by name.

  Raises:
    SettingsError: If one would be ignored, or cannot be.
  """
  chosen = values['runtime']
  result: dict[str, Any] = {}
  for flag, (argument, takers) in _ARGUMENTS.items():
    value = values[flag]
    if value is None:
      continue
    if chosen not in takers:
      raise errors.SettingsError(
        f'--{flag}={value} would be ignored: --runtime={chosen}.'
      )
    result[argument] = value
  if 'memory_limit' in result:
    result['memory_limit'] *= 2**20
  if 'devices' in result:
    result['devices'] = result['devices'].split(',')
  if chosen == 'remote':
    addresses = result.get('addresses', '')
    result['addresses'] = addresses.split(',')
    try:
      arguments.check_addresses(result['addresses'])
    except ValueError as e:
      raise errors.SettingsError(
        '--runtime=remote needs --worker_addresses, host:port of each worker '
        f'with commas between and none twice, got {addresses!r}.'
      ) from e
    try:
      arguments.check_remote_credentials(
        values['worker_certificate'],
        values['trainer_certificate'],
        values['trainer_private_key'],
      )
    except ValueError as e:
      raise errors.SettingsError(flagged(str(e))) from e
  return result


def flagged(message: str) -> str:
  """A message about arguments of a runtime, said of flags."""
  return re.sub(r'`(\w+)`', r'--\1', message)
