"""What tests of the runtimes share."""

import pytest
import tensorflow_federated as tff

from tff_adaptive import runtime


@pytest.fixture(name='context')
def _context():
  context = runtime.create_in_process_context(max_concurrent_clients=4)
  with tff.framework.get_context_stack().install(context):
    yield context
  context.close()
