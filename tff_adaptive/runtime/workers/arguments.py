"""Checks of arguments that need neither TensorFlow nor gRPC."""

import ipaddress
import re
from collections.abc import Sequence

_ANY_INTERFACE = frozenset({'0.0.0.0', '::', '[::]', ''})


def check_addresses(addresses: Sequence[str]) -> None:
  """Raises `ValueError` unless all are `host:port`, and none is there twice."""
  if isinstance(addresses, str) or not addresses:
    raise ValueError(
      f'`addresses` must be a list of host:port, got {addresses!r}.'
    )
  for address in addresses:
    host, _, port = address.rpartition(':')
    if (
      not re.fullmatch(r'\[[\da-fA-F:.]+\]|[^\s:\[\]]+', host)
      or not re.fullmatch(r'\d{1,5}', port)
      or not 0 < int(port) < 65536
    ):
      raise ValueError(
        f'A worker address is host:port, for example 10.0.0.2:8000, got'
        f' {address!r}.'
      )
  if len(set(addresses)) < len(addresses):
    raise ValueError(f'`addresses` names a worker twice: {list(addresses)}.')


def check_interface(
  bind_address: str, *, engine: str, encrypted: bool, insecure: bool
) -> None:
  """Raises `ValueError` unless `serve_worker` may listen on an interface.

  Args:
    bind_address: The interface.
    engine: The worker's engine; 'native' listens on every interface.
    encrypted: Whether the worker has a certificate.
    insecure: Whether other machines may connect without one.
  """
  if engine == 'native' and bind_address not in _ANY_INTERFACE:
    raise ValueError(
      "TFF's own worker listens on every interface: with `engine`='native',"
      f" give `bind_address`='0.0.0.0' to accept that, got {bind_address!r}."
    )
  if not encrypted and not insecure and not _is_loopback(bind_address):
    raise ValueError(
      f'`bind_address`={bind_address!r} lets other machines run any TensorFlow'
      ' code here: give `certificate` and `private_key` (and'
      ' `trainer_certificate` to serve its owner only), or `insecure` if you'
      ' trust everyone who can reach the port.'
    )


def _is_loopback(bind_address: str) -> bool:
  """Returns whether nothing but this machine can reach the interface."""
  try:
    return ipaddress.ip_address(bind_address.strip('[]')).is_loopback
  except ValueError:
    return bind_address == 'localhost'


def check_remote_credentials(
  worker_certificate: str | None,
  trainer_certificate: str | None,
  trainer_private_key: str | None,
) -> None:
  """Raises `ValueError` unless `create_remote_context` can use the files."""
  if (trainer_certificate is None) != (trainer_private_key is None):
    raise ValueError(
      '`trainer_certificate` and `trainer_private_key` go together: give both'
      ' or neither.'
    )
  if worker_certificate is None and trainer_certificate is not None:
    raise ValueError('`trainer_certificate` needs `worker_certificate` too.')
  _check_pem_files(
    worker_certificate=worker_certificate,
    trainer_certificate=trainer_certificate,
    trainer_private_key=trainer_private_key,
  )


def check_worker_credentials(
  certificate: str | None,
  private_key: str | None,
  trainer_certificate: str | None,
) -> None:
  """Raises `ValueError` unless `serve_worker` can use the files."""
  if (certificate is None) != (private_key is None):
    raise ValueError(
      '`certificate` and `private_key` go together: give both or neither.'
    )
  if trainer_certificate is not None and certificate is None:
    raise ValueError(
      '`trainer_certificate` needs `certificate` and `private_key` too.'
    )
  _check_pem_files(
    certificate=certificate,
    private_key=private_key,
    trainer_certificate=trainer_certificate,
  )


def _check_pem_files(**paths: str | None) -> None:
  """Reads the files that are given, by the names of the arguments."""
  for argument, path in paths.items():
    if path is not None:
      read_pem(path, argument)


def read_pem(path: str, argument: str) -> bytes:
  """Reads a file with certificates or a private key.

  Args:
    path: The file.
    argument: Name of the argument, for messages; a private key's ends in "key".

  Raises:
    ValueError: If it cannot be read, or is something else.
  """
  try:
    with open(path, 'rb') as file:
      text = file.read()
  except OSError as e:
    raise ValueError(
      f'`{argument}`: {path!r} cannot be read: {e.strerror or e}.'
    ) from e
  wanted = b'PRIVATE KEY-----' if argument.endswith('key') else b'CERTIFICATE--'
  if b'-----BEGIN ' not in text or wanted not in text:
    what = 'private key' if argument.endswith('key') else 'certificate'
    raise ValueError(
      f'`{argument}`: {path!r} holds no {what} in PEM format, which starts with'
      ' -----BEGIN.'
    )
  return text
