"""DiLoCo and MuLoCo against NumPy, clients coming and going."""

import numpy as np
import pytest

from tests.processes import linear
from tff_adaptive import algorithms

pytestmark = pytest.mark.usefixtures('in_process_context')

# A client that is new, one that comes back after a round and one at once.
COHORTS = [(0, 1), (1, 2), (0, 1, 2)]
RATE, DECAY, EPSILON = 0.05, 0.1, 1e-8


def adamw(w, batches, box, rate=RATE, decay=DECAY, beta_1=0.9, beta_2=0.999):
  """`box` holds m, v and the steps that a client has taken."""
  m, v, k = box
  for batch in batches:
    k += 1
    g = linear.gradient(w, batch)
    m = beta_1 * m + (1 - beta_1) * g
    v = beta_2 * v + (1 - beta_2) * g**2
    step = (m / (1 - beta_1**k)) / (np.sqrt(v / (1 - beta_2**k)) + EPSILON)
    w = w - rate * (step + decay * w)
  box[:] = m, v, k
  return w


def muon(w, batches, box, rate=RATE, decay=DECAY, mu=0.95):
  """Of a matrix of one weight, whose scale is 1."""
  (momentum,) = box
  for batch in batches:
    momentum = mu * momentum + linear.gradient(w, batch)
    x = momentum / (abs(momentum) + 1e-7)
    for _ in range(5):
      x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    w = w - rate * (x + decay * w)
  box[:] = (momentum,)
  return w


def path(local, first, kept, mu, eta=0.7):
  """`kept` is what of a client's box goes on to its next round."""
  w, u, boxes, result = linear.START, 0.0, {}, []
  for cohort in COHORTS:
    ends, sizes = [], []
    for i in cohort:
      box = list(first)
      for place in kept:
        box[place] = boxes.get(i, first)[place]
      ends.append(local(w, linear.CLIENTS[i], box))
      boxes[i] = box
      sizes.append(linear.num_examples(linear.CLIENTS[i]))
    delta = np.average(ends, weights=sizes) - w
    u = mu * u + delta
    w = w + eta * (mu * u + delta)
    result.append(w)
  return result


def run(process):
  state, memories, weights = process.initialize(), {}, []
  for cohort in COHORTS:
    output = process.next(
      state,
      [memories.get(i, process.initialize_client_state()) for i in cohort],
      linear.datasets([linear.CLIENTS[i] for i in cohort]),
    )
    state = output.state
    memories.update(zip(cohort, output.client_states))
    weights.append(linear.weight_of(process, state))
  return weights


def differ(one, other):
  return np.abs(np.array(one) - np.array(other)).max() > 1e-3


def test_diloco():
  process = algorithms.build(
    'diloco', linear.model_fn, client_learning_rate=RATE
  )
  expected = path(adamw, (0.0, 0.0, 0), (0, 1, 2), 0.9)
  np.testing.assert_allclose(run(process), expected, rtol=1e-4)
  # Moments kept and the count of steps restarted; nothing kept.
  assert differ(expected, path(adamw, (0.0, 0.0, 0), (0, 1), 0.9))
  fresh = path(adamw, (0.0, 0.0, 0), (), 0.9)
  assert differ(expected, fresh)
  assert expected[0] == fresh[0]


def test_muloco():
  process = algorithms.build(
    'muloco', linear.model_fn, client_learning_rate=0.4, weight_decay=DECAY
  )

  def local(w, batches, box):
    # A rate at which gradients change their sign before momenta do.
    return muon(w, batches, box, rate=0.4)

  expected = path(local, (0.0,), (0,), 0.6)
  np.testing.assert_allclose(run(process), expected, rtol=1e-4)
  assert differ(expected, path(local, (0.0,), (), 0.6))
  assert differ(expected, path(local, (0.0,), (0,), 0.9))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'name, local, first, mu',
  [('diloco', adamw, (0.0, 0.0, 0), 0.9), ('muloco', muon, (0.0,), 0.6)],
)
def test_fresh_clients_keep_nothing(name, local, first, mu):
  process = algorithms.build(
    name,
    linear.model_fn,
    client_learning_rate=RATE,
    weight_decay=DECAY,
    client_state='fresh',
  )
  assert not algorithms.is_stateful(process)
  state, weights = process.initialize(), []
  for cohort in COHORTS:
    batches = linear.datasets([linear.CLIENTS[i] for i in cohort])
    state = process.next(state, batches).state
    weights.append(linear.weight_of(process, state))
  np.testing.assert_allclose(weights, path(local, first, (), mu), rtol=1e-4)


@pytest.mark.exhaustive
def test_a_client_that_is_left_out_keeps_its_moments():
  process = algorithms.build('diloco', linear.model_fn)
  memory = process.initialize_client_state()
  output = process.next(
    process.initialize(),
    [memory, memory],
    linear.datasets([linear.CLIENTS[0], [([float('nan')], [1.0])]]),
  )
  assert [int(m['step']) for m in output.client_states] == [3, 0]


@pytest.mark.exhaustive
def test_the_rate_is_not_kept():
  """A schedule's rate reaches a client that kept its moments."""
  process = algorithms.build(
    'diloco',
    linear.model_fn,
    client_learning_rate=RATE,
    client_lr_schedule='exp_decay',
    client_lr_decay_steps=1,
    client_lr_decay_rate=0.5,
  )
  state, memory = process.initialize(), process.initialize_client_state()
  box, w, u = [0.0, 0.0, 0], linear.START, 0.0
  for r in range(3):
    output = process.next(state, [memory], linear.datasets(linear.CLIENTS[:1]))
    state, memory = output.state, output.client_states[0]
    delta = adamw(w, linear.CLIENTS[0], box, rate=RATE * 0.5**r) - w
    u = 0.9 * u + delta
    w = w + 0.7 * (0.9 * u + delta)
  np.testing.assert_allclose(linear.weight_of(process, state), w, rtol=1e-4)
