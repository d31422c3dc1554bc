"""The papers' update rules in NumPy, for the tests to follow step by step.

Written from the papers' pseudo-code, in double precision. Server rules map a
list of mean client updates Delta to the path of x; client rules map what they
see of the batches to the path of x. All start from x = `START`.
"""

import numpy as np

START = np.array([1.0, -2.0, 0.5])


def server_path(deltas, step):
  """Applies `step(t, delta) -> change of x`, t counting from 1."""
  x, path = START.copy(), []
  for t, delta in enumerate(deltas, start=1):
    x = x + step(t, np.asarray(delta, np.float64))
    path.append(x.copy())
  return path


def fedavgm(deltas, eta, momentum):
  m = np.zeros(3)

  def step(_, delta):
    nonlocal m
    m = momentum * m + delta
    return eta * m

  return server_path(deltas, step)


def fedopt(
  deltas,
  eta,
  beta_1,
  beta_2,
  tau,
  rule,
  *,
  v_start,
  squares='delta',
  corrects=False,
  root=lambda v, tau: np.sqrt(v) + tau,
):
  """Algorithm 2 of Adaptive Federated Optimization.

  `rule(v, s2, beta_2)`; `squares` says what s2 is the square of; `root` makes
  the denominator.
  """
  m, v = np.zeros(3), np.full(3, v_start)

  def step(t, delta):
    nonlocal m, v
    m = beta_1 * m + (1 - beta_1) * delta
    v = rule(v, (delta if squares == 'delta' else m) ** 2, beta_2)
    change = eta * m / root(v, tau)
    if corrects:
      change *= np.sqrt(1 - beta_2**t) / (1 - beta_1**t)
    return change

  return server_path(deltas, step)


def adagrad_rule(v, s2, _):
  return v + s2


def adam_rule(v, s2, beta_2):
  return beta_2 * v + (1 - beta_2) * s2


def yogi_rule(v, s2, beta_2):
  return v - (1 - beta_2) * s2 * np.sign(v - s2)


def fedams(deltas, eta, beta_1, beta_2, eps, variant):
  """FedAMS (max with eps), FedAMSGrad (eps added), and the authors' code."""
  m, v = np.zeros(3), np.zeros(3)
  v_hat = np.full(3, eps if variant == 'reference' else 0.0)

  def step(t, delta):
    nonlocal m, v, v_hat
    m = beta_1 * m + (1 - beta_1) * delta
    v = beta_2 * v + (1 - beta_2) * delta**2
    if variant == 'paper':
      v_hat = np.maximum(np.maximum(v_hat, v), eps)
      return eta * m / np.sqrt(v_hat)
    v_hat = np.maximum(v_hat, v)
    if variant == 'amsgrad':
      return eta * m / (np.sqrt(v_hat) + eps)
    corrected = np.sqrt(v_hat) / np.sqrt(1 - beta_2**t)
    return eta / (1 - beta_1**t) * m / corrected

  return server_path(deltas, step)


def client_path(gradients, step):
  """Applies `step(k, x, g) -> x`, k counting from 0, g = gradients(k, x)."""
  x, path = START.copy(), []
  for k in range(len(gradients)):
    x = step(k, x, np.asarray(gradients[k](x), np.float64))
    path.append(x.copy())
  return path


def delta_sgd(gradients, gamma, delta, eta_0, theta_0, batch):
  """Delta-SGD's Algorithm 1; `gradients[k](x)` differentiates batch k at x."""
  x = START.copy()
  x_before = g_before = None
  eta, theta, path, etas = eta_0, theta_0, [], []
  for k, gradient in enumerate(gradients):
    g = gradient(x)
    if k > 0:
      other = g_before if batch == 'successive' else gradient(x_before)
      change = np.linalg.norm(g - other)
      first = np.inf
      if change > 0:
        first = gamma * np.linalg.norm(x - x_before) / (2 * change)
      new = min(first, np.sqrt(1 + delta * theta) * eta)
      theta, eta = new / eta, new
    x_before, g_before = x, g
    x = x - eta * g
    path.append(x.copy())
    etas.append(eta)
  return path, etas


def polyak(
  losses,
  gradients,
  c,
  gamma_b,
  lower_bound,
  sizes=None,
  grows='bound',
  examples=None,
):
  """FedSPS' client; `sizes` (batch sizes) turns the growing bound on.

  It grows from the last bound, or, as smooth_iter of the official SPS code has
  it, from the last 'step'. `examples` is m_i, what is iterated unless given.
  """
  x, path, gammas = START.copy(), [], []
  bound = gamma_b if sizes is None or grows == 'step' else 1.0
  for k, (loss, gradient) in enumerate(zip(losses, gradients)):
    g = gradient(x)
    if sizes is not None and k > 0:
      if grows == 'step':
        bound = next((s for s in reversed(gammas) if s > 0), gamma_b)
      bound *= 2 ** (sizes[k] / (examples or sum(sizes)))
    gap = max(loss(x) - lower_bound, 0.0)
    squared = np.sum(g**2)
    gamma = bound if squared == 0 else min(gap / (c * squared), bound)
    x = x - gamma * g
    path.append(x.copy())
    gammas.append(gamma)
  return path, gammas


def client_adagrad(gradients, eta, eps, z, v_start=0.0):
  v = np.full(3, v_start)

  def step(k, x, g):
    nonlocal v
    if k % z == 0:
      v = v + g**2
    return x - eta * g / (np.sqrt(v) + eps)

  return client_path(gradients, step)


def client_adam(gradients, eta, beta_1, beta_2, eps, z, v_start=0.0):
  m, v = np.zeros(3), np.full(3, v_start)

  def step(k, x, g):
    nonlocal m, v
    m = beta_1 * m + (1 - beta_1) * g
    if k % z == 0:
      v = beta_2 * v + (1 - beta_2) * g**2
    m_hat = m / (1 - beta_1 ** (k + 1))
    v_hat = v / (1 - beta_2 ** (k // z + 1))
    return x - eta * m_hat / (np.sqrt(v_hat) + eps)

  return client_path(gradients, step)


def slices(shape):
  """The co-dimension-1 slices of a tensor, as lists of flat positions."""
  positions = np.arange(int(np.prod(shape))).reshape(shape)
  if len(shape) < 2:
    return [[p] for p in positions.ravel()]
  return [
    np.take(positions, index, axis=axis).ravel().tolist()
    for axis, size in enumerate(shape)
    for index in range(size)
  ]


def sm3(
  gradients, shape, eta, eps, z, form, beta_1=None, beta_2=None, start=0.0
):
  """SM3 on one tensor: Algorithms 3 and 4 with mu stored, v read off it.

  `gradients` are arrays of `shape`; returns the path of x from 0. beta_2 makes
  it SM3-Adam.
  """
  cover = slices(shape)
  size = int(np.prod(shape))
  mu = np.full(len(cover), start)
  x, m, path = np.zeros(size), np.zeros(size), []

  def smallest():
    return np.array(
      [
        min(mu[r] for r, members in enumerate(cover) if j in members)
        for j in range(size)
      ]
    )

  for k, gradient in enumerate(gradients):
    g = np.asarray(gradient, np.float64).ravel()
    keep, add = (1, 1) if beta_2 is None else (beta_2, 1 - beta_2)
    if k % z == 0:
      if form == 'II':
        v = keep * smallest() + add * g**2
        mu = np.array([max(v[j] for j in members) for members in cover])
      else:
        largest = np.array(
          [max(g[j] ** 2 for j in members) for members in cover]
        )
        mu = keep * mu + add * largest
        v = smallest()
    else:
      v = smallest()
    m = g if beta_1 is None else beta_1 * m + (1 - beta_1) * g
    x = x - eta * m / (np.sqrt(v) + eps)
    path.append(x.reshape(shape))
  return path
