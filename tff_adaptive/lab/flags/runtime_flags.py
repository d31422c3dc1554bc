"""Flags that choose and configure the runtime."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Optional

from tff_adaptive import parameters
from tff_adaptive import runtime as runtime_lib
from tff_adaptive.runtime.cluster import requirements

# The execution contexts, the default first.
_CONTEXTS: Mapping[str, Callable[..., Any]] = {
  'in_process': runtime_lib.create_in_process_context,
  'native': runtime_lib.create_native_context,
  'ray': runtime_lib.create_ray_context,
}
RUNTIMES = tuple(_CONTEXTS)


class RuntimeFlags(parameters.Described):
  """The runtime and arguments of its execution context."""

  runtime: Literal['in_process', 'native', 'ray'] = 'in_process'
  """Runtime that executes computations: TensorFlow in this process, TFF's own
  worker process, or a Ray cluster.
  """

  max_concurrent_clients: Optional[parameters.Count] = None
  """Maximum number of clients trained at once; results do not depend on it. By
  default chosen by the runtime.
  """

  devices: Optional[str] = None
  """Devices over which the in-process runtime spreads clients, such as GPU:0
  and GPU:1; by default all GPUs, or the CPU without any. Several are separated
  by commas.
  """

  ray_address: Optional[str] = None
  """host:port of a Ray cluster's head; by default a cluster that runs on this
  machine or that RAY_ADDRESS names, or one started for the run.
  """

  cpus_per_actor: Optional[parameters.Count] = None
  """Cores of each actor; by default all of its machine's, or an equal share of
  them per GPU.
  """

  worker_retries: Optional[parameters.NonNegativeInt] = None
  """Number of retries of a round that lost actors of a Ray cluster: the
  remaining actors repeat the lost share. By default 1.
  """


# Arguments of execution contexts, by flag.
_ARGUMENTS = {
  'max_concurrent_clients': 'max_concurrent_clients',
  'devices': 'devices',
  'vectorize_clients': 'vectorize_clients',
  'jit_compile': 'jit_compile',
  'matmul_precision': 'matmul_precision',
  'ray_address': 'address',
  'cpus_per_actor': 'cpus_per_actor',
  'worker_retries': 'retries',
}


def takers(name: str) -> Sequence[str]:
  """Returns the runtimes that use a flag; all for flags of other things."""
  argument = _ARGUMENTS.get(name)
  return [
    runtime
    for runtime, create in _CONTEXTS.items()
    if argument is None or argument in inspect.signature(create).parameters
  ]


def options(values: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the arguments of the chosen execution context.

  Args:
    values: Values of the flags, by name.

  Raises:
    ParameterError: If Ray is missing or its address is invalid.
  """
  result = {
    argument: values[flag]
    for flag, argument in _ARGUMENTS.items()
    if values[flag] is not None
  }
  if 'devices' in result:
    result['devices'] = result['devices'].split(',')
  if values['runtime'] == 'ray':
    address = result.get('address', 'auto')
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
  return result
