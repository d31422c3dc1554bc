"""What remote contexts and workers refuse before they start anything."""

import pytest

from tff_adaptive import runtime


@pytest.mark.parametrize(
  'addresses',
  [[], 'localhost:1', ['localhost'], ['localhost:x'], ['a:1', 'a:1']],
)
def test_malformed_addresses_are_refused(addresses):
  with pytest.raises(ValueError, match='address'):
    runtime.create_remote_context(addresses)


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'engine': 'fast'}, 'in_process'),
    ({'engine': 'native'}, '0.0.0.0'),
    ({'certificate': 'file'}, 'private_key'),
    ({'trainer_certificate': 'file'}, 'certificate'),
  ],
)
def test_worker_arguments_are_checked(arguments, message):
  with pytest.raises(ValueError, match=message):
    runtime.serve_worker(0, **arguments)
