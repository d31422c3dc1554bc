"""FedCAMS against NumPy, and the bytes that its clients send."""

import numpy as np
import pytest
import tensorflow as tf

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive.lab.training import traffic
from tff_adaptive.processes import encodings

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ETA, EPSILON, BETA_1, BETA_2 = 0.2, 0.1, 0.01, 0.8, 0.7
ROUNDS = [(0, 1), (0, 2), (1, 2), (0, 1)]
SETTINGS = dict(
  client_learning_rate=RATE,
  server_learning_rate=ETA,
  server_adaptivity=EPSILON,
  beta_1=BETA_1,
  beta_2=BETA_2,
)


def sign(u):
  return np.sign(u) * np.abs(u).sum() / len(u)


def top(ratio):
  def keep(u):
    k = max(int(ratio * len(u)), 1)
    kept = np.zeros_like(u)
    largest = np.argsort(-np.abs(u))[:k]
    kept[largest] = u[largest]
    return kept

  return keep


def of_variables(compress):
  """Each variable compressed for itself, as a stray line of the code does."""

  def both(u):
    return np.concatenate([compress(part.ravel()) for part in dense.parts(u)])

  return both


def fedcams(compress, rounds=ROUNDS, feedback=True):
  x, own, path = dense.START, {}, []
  m, v, v_max = np.zeros(8), np.zeros(8), np.zeros(8)
  for cohort in rounds:
    sent = []
    for i in cohort:
      due = dense.sgd(x, dense.CLIENTS[i], RATE) - x
      if feedback:
        due = due + own.get(i, np.zeros(8))
      sent.append(compress(due))
      own[i] = due - sent[-1]
    mean = dense.average(sent, cohort)
    m = BETA_1 * m + (1 - BETA_1) * mean
    v = BETA_2 * v + (1 - BETA_2) * mean**2
    v_max = np.maximum(np.maximum(v_max, v), EPSILON)
    x = x + ETA * m / np.sqrt(v_max)
    path.append(x)
  return path, own


@pytest.fixture(name='by_sign', scope='module')
def by_sign_fixture(in_process_context):
  del in_process_context
  return algorithms.build('fedcams', dense.model(), **SETTINGS)


@pytest.fixture(name='by_top', scope='module')
def by_top_fixture(in_process_context):
  del in_process_context
  return algorithms.build(
    'fedcams',
    dense.model(),
    compressor='topk',
    compression_ratio=0.4,
    **SETTINGS,
  )


@pytest.mark.parametrize(
  'compressor, compress',
  [
    pytest.param('by_sign', sign, marks=pytest.mark.exhaustive),
    ('by_top', top(0.4)),
  ],
)
def test_rounds(compressor, compress, request):
  process = request.getfixturevalue(compressor)
  assert algorithms.is_stateful(process)
  path, _, memories = dense.run(process, ROUNDS)
  expected, own = fedcams(compress)
  dense.close(path, expected)
  for i, memory in memories.items():
    error = np.concatenate([np.ravel(t) for t in memory['error']])
    dense.close(error, own[i], rtol=1e-3)


def test_inputs_tell_fedcams_from_its_neighbours():
  for compress in (sign, top(0.4)):
    path, _ = fedcams(compress)
    assert dense.differ(path, fedcams(compress, feedback=False)[0])
    assert dense.differ(path, fedcams(of_variables(compress))[0])
    assert dense.differ(path, fedcams(lambda u: u)[0])


@pytest.mark.exhaustive
def test_bytes(by_sign, by_top):
  dense_form = algorithms.build('fedams', dense.model(), **SETTINGS)
  whole = traffic.of_round(dense_form.next)
  assert traffic.of_round(by_top.next).down == whole.down
  # Three entries and where they are; two bytes of signs and a number.
  up = whole.up - 8 * 4
  assert traffic.of_round(by_top.next).up == up + 2 * 3 * 4
  assert traffic.of_round(by_sign.next).up == up + 2 + 4


VECTORS = [
  [0.5, -2.0, 0.0, 0.25, 0.0, -0.125, 3.0],
  [0.0] * 5,
  [1e-30, -1.0],
  [-4.0],
]


@pytest.mark.parametrize('vector', VECTORS)
@pytest.mark.parametrize('encoding', [encodings.Signs(), encodings.TopK(0.5)])
def test_the_short_form_says_all_of_what_was_compressed(encoding, vector):
  compressed = encoding.compress(tf.constant(vector))
  for times in (1.0, 3.0):  # Clients weigh what they send.
    encoded = encoding.encode(times * compressed)
    again = encoding.decode(encoded, len(vector))
    np.testing.assert_array_equal(again, times * compressed)


def test_compressors():
  vector = np.array(VECTORS[0], np.float32)
  np.testing.assert_allclose(encodings.Signs().compress(vector), sign(vector))
  for ratio in (0.01, 0.3, 1.0):
    found = encodings.TopK(ratio).compress(tf.constant(vector))
    np.testing.assert_array_equal(found, top(ratio)(vector))


def test_vectors_of_several_tensors():
  tensors = (tf.reshape(tf.range(6.0), [2, 3]), tf.constant(7.0, tf.float64))
  vector = encodings.joined(tensors)
  assert vector.dtype == tf.float64 and vector.shape == [7]
  for one, other in zip(tensors, encodings.split(vector, tensors), strict=True):
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


def test_bad_clients_keep_their_error(by_sign):
  dense.keeps(by_sign, 'error')


def test_what_is_refused():
  with pytest.raises(parameters.ParameterError, match='would be ignored'):
    algorithms.check('fedcams', compression_ratio=0.1)
  with pytest.raises(
    parameters.ParameterError, match='error of their own compress'
  ):
    algorithms.check('fedcams', aggregator='compression')
  with pytest.raises(
    parameters.ParameterError, match=r'leave .aggregator. out'
  ):
    algorithms.check('fedef21', aggregator='median')
  # A secure sum clips as well.
  for name in ('fedcams', 'fedef21', 'fedexp'):
    with pytest.raises(
      parameters.ParameterError, match=r'leave .aggregator. out'
    ):
      algorithms.check(name, aggregator='secure')


@pytest.mark.slow
@pytest.mark.parametrize('aggregator', ['mean', 'secure'])
def test_other_aggregators_take_what_is_compressed(aggregator):
  settings = dict(
    aggregator=aggregator,
    dp_clip_norm=1e3,
    dp_noise_multiplier=0.0,
    dp_clients_per_round=2,
  )
  process = algorithms.build(
    'fedcams', dense.model(), **SETTINGS, client_weighting='uniform', **settings
  )
  path, _, _ = dense.run(process, [(0, 1)] * 3)
  x = algorithms.build(
    'fedcams', dense.model(), **SETTINGS, client_weighting='uniform'
  )
  np.testing.assert_allclose(
    path, dense.run(x, [(0, 1)] * 3)[0], rtol=1e-3, atol=1e-5
  )
