"""Quadratics: many ill-conditioned ones, and two of one minimum.

`quadratics` has a minimizer for each client. Client i has
f_i(x) = sum_j lambda_j (x_j - b_ij)^2 / 2 in d dimensions, with
curvatures lambda from 1 down to 1 / condition, log-spaced, and b_i normal. The
mean over clients has its minimum at the mean of b_i. Gradients may have noise
drawn in every local step: normal, or Student's with few degrees of freedom,
whose variance is infinite for up to 2.

`quadratic` is Example 1 of Mukherjee et al., arXiv 2307.06306. Client
steep has f(x) = a x^2 / 2, client flat f(x) = x^2 / 2. Both have the
minimum 0 at x = 0. With each client's own Polyak step sizes O(log(1 / epsilon))
rounds suffice for any a. A common step size must be below 4 / (1 + a), or
rounds diverge, so it must be tuned to a. (The paper claims that it needs O(a
log(1 / epsilon)) rounds; in one dimension this is not so: the common step 2 /
(1 + a) converges at once.)

With `axes='own'` each client's parabola has an axis of its own: f(x, y) = a x^2
/ 2 and f(x, y) = y^2 / 2. There the paper's claim holds: own steps still take
the same number of rounds for any a, while a common step must be below 4 / a, so
that y shrinks by a factor of more than 1 - 2 / a in every round.

Gradients may have noise. With a = 1 and heavy tails at the steep client the
problem is that of FedAda2 (Lee et al., arXiv 2410.18117), Propositions 2, 9 and
10.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks.lazy import builders
from tasks.lazy import client_data
from tasks.lazy import parabola
from tasks.lazy import preprocessing
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@registry.task(
  'quadratics',
  summary='Badly conditioned quadratics with optima of their own.',
  model='50 weights',
  clients='20 (--quadratics_num_clients)',
  test_is_problem=True,
)
class Quadratics(shared.Options):
  """Minimizers and noise [batch, 2 d]; labels [batch, 1] of 0.

  The loss on test data is the suboptimality of the mean of all f_i.
  """

  num_clients: parameters.Count = 20
  """Number of clients."""

  dimensions: parameters.Count = 50
  """d, the number of weights."""

  condition: parameters.Positive = 100.0
  """Largest curvature over the smallest; the largest is 1."""

  spread: parameters.NonNegative = 1.0
  """Standard deviation of the clients' optima along each axis."""

  start: float = 3.0
  """Initial value of the weights."""

  noise: parameters.NonNegative = 0.0
  """Scale of the noise on each coordinate of an example's gradient."""

  noise_law: Literal['gaussian', 'student_t'] = 'gaussian'
  """Law of the noise; 'student_t' has 2 degrees of freedom."""

  examples_per_client: parameters.Count = 10
  """Number of examples per client; they differ only in their noise."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    d, n, clients = self.dimensions, self.examples_per_client, self.num_clients
    rng = np.random.default_rng([self.seed, 0x40AD5])
    optima = rng.normal(0, self.spread, [clients, d])
    features = np.concatenate(
      [np.repeat(optima, n, axis=0), np.full([clients * n, d], self.noise)], 1
    )
    best = np.concatenate([optima.mean(axis=0), np.zeros(d)])[np.newaxis]
    curvature = self.condition ** -np.linspace(0, 1, d)
    return builders.task(
      train_data=client_data.ArrayClientData(
        dict(
          features=features.astype(np.float32),
          label=np.zeros([clients * n, 1], np.float32),
        ),
        partition.in_order([n] * clients),
      ),
      test_data=tf.data.Dataset.from_tensor_slices(
        dict(
          features=best.astype(np.float32), label=np.zeros([1, 1], np.float32)
        )
      ),
      train_preprocess_fn=preprocessing.build_train(
        batch_size=self.batch_size or 1,
        shuffle_buffer=n,
        epochs=self.epochs,
        max_elements=self.max_elements,
        map_fn=None if self.noise else _to_model,
        augment_fn=_WITH_NOISE[self.noise_law] if self.noise else None,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=1, map_fn=_to_model
      ),
      build_model=lambda: tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer((2 * d,)),
          parabola.Bowl(self.start, curvature),
        ]
      ),
      loss=parabola.Value,
      metrics=[parabola.Distance],
    )


def _to_model(batch: Any) -> Any:
  return batch['features'], batch['label']


def _with_noise(batch: Any, seed: Any, law: str) -> Any:
  """Adds noise: normal, or Student's, which is normal / sqrt(exponential)."""
  noise = tf.random.stateless_normal(
    tf.shape(batch['features']) // [1, 2], preprocessing.fold_in(seed, 0)
  )
  if law == 'student_t':
    uniform = tf.random.stateless_uniform(
      tf.shape(noise), preprocessing.fold_in(seed, 1)
    )
    # Half of a chi-square variate with 2 degrees of freedom.
    half = -tf.math.log1p(-uniform)
    noise /= tf.sqrt(tf.maximum(half, 1e-30))
  optima, scale = tf.split(batch['features'], 2, axis=1)
  return tf.concat([optima, scale * noise], axis=1), batch['label']


# Made once, so that the recipes of runs that differ in seeds are equal.
_WITH_NOISE = {
  law: functools.partial(_with_noise, law=law)
  for law in ('gaussian', 'student_t')
}


@registry.task(
  'quadratic',
  summary='Two parabolas of one weight, the second a times as steep.',
  model='1 weight',
  clients='2',
  num_clients=2,
  test_is_problem=True,
)
class Quadratic(shared.Options):
  """Curvatures and noise; labels [batch, 1] of 0.

  Features are float32 [batch, 2 d], with d = 1 axis, or 2 for `axes='own'`: the
  curvatures along the axes, then the noise along them.
  """

  a: parameters.Positive = 2.0
  """Curvature of the steep client; the flat one's is 1."""

  axes: Literal['shared', 'own'] = 'shared'
  """Whether both parabolas lie along the same axis or along separate axes."""

  start: float = 10.0
  """Initial value of the weights."""

  noise: parameters.NonNegative = 0.0
  """Scale of the gradient noise of each example, its standard deviation if the
  law has one. The paper's figure has 10.
  """

  noise_law: Literal['balanced', 'gaussian', 'student_t', 'cauchy'] = 'balanced'
  """'balanced' for Gaussian noise that belongs to an example and adds up to 0
  over all examples of a client. The others are drawn anew for every local step:
  'gaussian' (Figure 1); 'student_t', with 2 degrees of freedom at the steep
  client and 3 at the flat one (FedAda2's Propositions 2 and 9); 'cauchy',
  Cauchy at the steep client and Gaussian at the flat one (Proposition 10)."""

  examples_per_client: parameters.Count = 1
  """Number of examples per client, and thus local steps per round at batch size
  1.
  """

  def create(self) -> tff.simulation.baselines.BaselineTask:
    n = self.examples_per_client
    fresh = self.noise_law != 'balanced'
    drawn = np.random.default_rng([self.seed, 0x40AD]).normal(size=[2, n])
    drawn = self.noise * (drawn - drawn.mean(axis=1, keepdims=True))
    # Curvatures and noise, [clients, axes].
    along = np.ones([2, 1]) if self.axes == 'shared' else np.eye(2)
    curvature = np.repeat([[self.a], [1.0]] * along, n, axis=0)
    # Scales of the noise, which is drawn anew for each batch.
    added = np.full_like(drawn, self.noise) if fresh else drawn
    features = [curvature, added.reshape(-1, 1) * np.repeat(along, n, axis=0)]
    arrays = dict(
      features=np.concatenate(features, axis=1).astype(np.float32),
      label=np.zeros([2 * n, 1], np.float32),
    )
    test = arrays
    if fresh:
      without_noise = np.repeat([1.0, 0.0], along.shape[1]).astype(np.float32)
      test = dict(arrays, features=arrays['features'] * without_noise)
      arrays['degrees'] = np.repeat(_DEGREES[self.noise_law], n).astype(
        np.float32
      )
    split = partition.Partition(
      ('steep', 'flat'), (np.arange(n), np.arange(n, 2 * n))
    )
    return builders.task(
      train_data=client_data.ArrayClientData(arrays, split),
      test_data=tf.data.Dataset.from_tensor_slices(test),
      train_preprocess_fn=preprocessing.build_train(
        batch_size=self.batch_size or 1,
        shuffle_buffer=n,
        epochs=self.epochs,
        max_elements=self.max_elements,
        map_fn=None if fresh else _to_model,
        augment_fn=_with_fresh_noise if fresh else None,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=2 * n, map_fn=_to_model
      ),
      build_model=lambda: tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer((2 * along.shape[1],)),
          parabola.Parabola(self.start),
        ]
      ),
      loss=parabola.Value,
      metrics=[parabola.Distance],
    )


# Degrees of freedom of Student's distribution at the steep and the flat client:
# 1 is Cauchy's, infinity the normal distribution.
_DEGREES = {
  'gaussian': (np.inf, np.inf),
  'student_t': (2, 3),
  'cauchy': (1, np.inf),
}


def _with_fresh_noise(batch: Any, seed: Any) -> Any:
  """Maps a batch to the model's input, with seeded random noise."""
  curvature, scale = tf.split(batch['features'], 2, axis=1)
  normal, chi = (preprocessing.fold_in(seed, place) for place in (0, 1))
  degrees = batch['degrees']
  few = tf.where(tf.math.is_inf(degrees), 1.0, degrees)
  drawn = tf.random.stateless_normal(tf.shape(degrees), normal)
  # Half of a chi-square variate with these degrees of freedom.
  half = tf.random.stateless_gamma(tf.shape(degrees), chi, few / 2)
  heavy = drawn * tf.sqrt(few / 2 / tf.maximum(half, 1e-30))
  noise = tf.where(tf.math.is_inf(degrees), drawn, heavy)
  features = [curvature, scale * noise[:, tf.newaxis]]
  return tf.concat(features, axis=1), batch['label']
