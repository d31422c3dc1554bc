"""Synthetic(alpha, beta): Li et al., FedProx, arXiv 1812.06127, Section 5.1.

Client k labels its inputs by its own softmax regression, y = argmax(W_k x +
b_k), with entries of W_k and b_k normal around u_k, and u_k normal with
standard deviation alpha, the heterogeneity of models. Its inputs are normal
around v_k with variances j^-1.2, entries of v_k normal around B_k with standard
deviation 1, and B_k normal with standard deviation beta, the heterogeneity of
data. Sizes are lognormal, in the paper by a power law.
"""

from __future__ import annotations

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks.lazy import builders
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_INPUTS, _CLASSES = 60, 10
_TEST_SHARE = 0.1


@registry.task(
  'fedprox_synthetic',
  summary='Synthetic(alpha, beta) of FedProx: clients of unlike models.',
  model='logistic regression, 610 weights',
  clients='30 (--fedprox_synthetic_num_clients), sizes by a lognormal law',
  published=registry.Published('Li et al., arXiv 1812.06127', 200, 10, 10, 20),
)
class FedProxSynthetic(shared.Options):
  """Inputs [batch, 60], labels 0 to 9."""

  alpha: parameters.NonNegative = 1.0
  """Heterogeneity of the clients' models."""

  beta: parameters.NonNegative = 1.0
  """Heterogeneity of the clients' inputs."""

  num_clients: parameters.Count = 30
  """Number of clients."""

  smallest_client: parameters.Count = 50
  """Minimum number of examples per client."""

  largest_client: parameters.Count = 1000
  """Maximum number of examples per client; the released code has none."""

  def check(self) -> None:
    if self.smallest_client > self.largest_client:
      raise parameters.ParameterError(
        'smallest_client',
        '{} must be at most {largest_client}={largest}, got {given}.',
        largest=self.largest_client,
        given=self.smallest_client,
      )

  def create(self) -> tff.simulation.baselines.BaselineTask:
    rng = np.random.default_rng([self.seed, 0xFED9])
    drawn = rng.lognormal(4, 2, self.num_clients) + self.smallest_client
    sizes = np.minimum(drawn, self.largest_client).astype(np.int64)
    made = [_client(rng, size, self.alpha, self.beta) for size in sizes]
    tests = np.maximum(np.round(_TEST_SHARE * sizes), 1).astype(np.int64)
    tests = np.minimum(tests, sizes - 1)  # A client trains on one at least.
    train, test = (
      dict(
        x=np.concatenate([x[part] for (x, _), part in zip(made, parts)]),
        label=np.concatenate([y[part] for (_, y), part in zip(made, parts)]),
      )
      for parts in (
        [slice(count, None) for count in tests],
        [slice(count) for count in tests],
      )
    )
    mixed = rng.permutation(len(test['label']))
    return builders.partitioned_task(
      train=train,
      test={name: array[mixed] for name, array in test.items()},
      split=partition.in_order(sizes - tests),
      options=self.values,
      batch_size=10,
      eval_batch_size=256,
      to_model=lambda batch: (batch['x'], batch['label']),
      build_model=_build_model,
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )


def _client(
  rng: np.random.Generator, size: int, alpha: float, beta: float
) -> tuple[np.ndarray, np.ndarray]:
  """Draws a client's inputs, float32 [size, 60], and labels, int32 [size]."""
  u, center = rng.normal(0, alpha), rng.normal(0, beta)
  kernel = rng.normal(u, 1, [_INPUTS, _CLASSES])
  bias = rng.normal(u, 1, _CLASSES)
  mean = rng.normal(center, 1, _INPUTS)
  deviation = np.arange(1, _INPUTS + 1) ** -0.6
  x = mean + deviation * rng.normal(size=[size, _INPUTS])
  y = np.argmax(x @ kernel + bias, axis=1)
  return x.astype(np.float32), y.astype(np.int32)


def _build_model() -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((_INPUTS,)),
      tf.keras.layers.Dense(_CLASSES, kernel_initializer='zeros'),
    ]
  )
