"""Ill-conditioned quadratics, one per client, with different minimizers.

Client i has f_i(x) = sum_j lambda_j (x_j - b_ij)^2 / 2 in d dimensions, with
curvatures lambda from 1 down to 1 / condition, log-spaced, and b_i normal. The
mean over clients has its minimum at the mean of b_i. Gradients may have noise
drawn in every local step: normal, or Student's with few degrees of freedom,
whose variance is infinite for up to 2.
"""

from __future__ import annotations

from typing import Any
from typing import Literal
from typing import Optional

import numpy as np

from tasks import catalogue
from tasks import partition
from tasks import shared
from tasks.lazy import assembly
from tasks.lazy import client_data
from tasks.lazy import parabola
from tasks.lazy import preprocessing
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff


@catalogue.task(
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

  batch_size: Optional[parameters.Count] = None
  """Batch size; by default 1."""

  seed: parameters.NonNegativeInt = 0
  """Of the optima."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    d, n, clients = self.dimensions, self.examples_per_client, self.num_clients
    rng = np.random.default_rng([self.seed, 0x40AD5])
    optima = rng.normal(0, self.spread, [clients, d])
    features = np.concatenate(
      [np.repeat(optima, n, axis=0), np.full([clients * n, d], self.noise)], 1
    )
    best = np.concatenate([optima.mean(axis=0), np.zeros(d)])[np.newaxis]
    curvature = self.condition ** -np.linspace(0, 1, d)
    with_noise = _student if self.noise_law == 'student_t' else _normal
    return assembly.task(
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
        augment_fn=with_noise if self.noise else None,
      ),
      eval_preprocess_fn=preprocessing.build_eval(
        batch_size=1, map_fn=_to_model
      ),
      build_model=lambda: _build_model(self.start, curvature),
      loss=parabola.Value,
      metrics=[parabola.Distance],
    )


def _to_model(batch: Any) -> Any:
  return batch['features'], batch['label']


def _with_noise(batch: Any, noise: Any) -> Any:
  optima, scale = tf.split(batch['features'], 2, axis=1)
  return tf.concat([optima, scale * noise], axis=1), batch['label']


def _draws(batch: Any, seed: Any) -> Any:
  shape = tf.shape(batch['features']) // [1, 2]
  return tf.random.stateless_normal(shape, preprocessing.fold_in(seed, 0))


def _normal(batch: Any, seed: Any) -> Any:
  return _with_noise(batch, _draws(batch, seed))


def _student(batch: Any, seed: Any) -> Any:
  """Adds Student's noise (2 degrees of freedom), normal / sqrt(exponential)."""
  normal = _draws(batch, seed)
  # Half of a chi-square variate with 2 degrees of freedom.
  uniform = tf.random.stateless_uniform(
    tf.shape(normal), preprocessing.fold_in(seed, 1)
  )
  half = -tf.math.log1p(-uniform)
  return _with_noise(batch, normal / tf.sqrt(tf.maximum(half, 1e-30)))


def _build_model(start: float, curvature: np.ndarray) -> tf.keras.Model:
  d = len(curvature)
  return tf.keras.Sequential(
    [tf.keras.layers.InputLayer((2 * d,)), parabola.Bowl(start, curvature)]
  )
