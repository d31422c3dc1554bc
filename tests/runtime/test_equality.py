"""The same computation gives the same result in process and in TFF's runtime.

The cases are in `cases.py`. What TFF's runtime cannot run (secure sums,
sequence_sum) is compared with an independent computation in
`test_in_process.py`.
"""

import numpy as np
import pytest
import tensorflow_federated as tff
import tree

from tests import tiers
from tests.runtime import cases
from tff_adaptive import runtime


@pytest.fixture(name='native', scope='module')
def _native():
  context = runtime.create_native_context()
  yield context
  context.close()


@pytest.fixture(name='in_process', scope='module')
def _in_process():
  context = runtime.create_in_process_context(max_concurrent_clients=2)
  yield context
  context.close()


def assert_equal(left, right):
  """Same structure, Python types, dtypes and, up to rounding, values."""
  tree.assert_same_structure(left, right)
  for a, b in zip(tree.flatten(left), tree.flatten(right)):
    assert type(a) is type(b)
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    if a.dtype.kind == 'f':
      np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    else:
      np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
  'case',
  tiers.exhaustive_but(
    [case for case in cases.ALL if case not in cases.LEARNING]
    + [cases.fed_avg_reduce],
    cases.ALL,
    slow=[cases.fed_avg_iterator, cases.fed_prox, cases.fed_sgd],
  ),
  ids=lambda case: case.__name__,
)
def test_in_process_equals_native(case, in_process, native):
  stack = tff.framework.get_context_stack()
  with stack.install(in_process):
    ours = case()
  with stack.install(native):
    theirs = case()
  assert_equal(ours, theirs)
