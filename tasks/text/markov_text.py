"""Text of Markov chains, one per client, with a known entropy floor.

Client i's text is drawn from a chain P_i = (1 - own) P + own Q_i over a few
symbols, where rows of the shared P and of its own Q_i are Dirichlet. The mean
cross-entropy of any model is at least the chains' mean conditional entropy,
which a run logs when it begins.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tasks import partition
from tasks import registry
from tasks import shared
from tasks.lazy import builders
from tasks.lazy import lstm
from tff_adaptive import parameters
from tff_adaptive.lazy import tf
from tff_adaptive.lazy import tff

_LENGTH = 30
_TESTS_A_CLIENT = 5
# Concentration of the chains' rows: a symbol has a few likely successors.
_CONCENTRATION = 0.1


@registry.task(
  'markov_text',
  summary='Next symbols of Markov chains, one a client.',
  model='LSTM, 5,904 weights',
  clients='50 (--markov_text_num_clients)',
)
class MarkovText(shared.Options):
  """Symbols int32 [batch, 30], and their successors."""

  num_clients: parameters.Count = 50
  """Number of clients."""

  examples_per_client: parameters.Count = 20
  """Number of texts per client, of 31 symbols each."""

  symbols: parameters.Count = 16
  """Number of symbols."""

  own: parameters.Share = 0.3
  """Fraction of a client's chain that is specific to the client."""

  def create(self) -> tff.simulation.baselines.BaselineTask:
    rng = np.random.default_rng([self.seed, 0x3A4C0])
    everybody = _chain(rng, self.symbols)
    train, test, floors = [], [], []
    for _ in range(self.num_clients):
      chain = (1 - self.own) * everybody
      chain += self.own * _chain(rng, self.symbols)
      floors.append(entropy(chain))
      train.append(_texts(rng, chain, self.examples_per_client))
      test.append(_texts(rng, chain, _TESTS_A_CLIENT))
    mixed = rng.permutation(self.num_clients * _TESTS_A_CLIENT)
    return builders.partitioned_task(
      train=dict(symbols=np.concatenate(train)),
      test=dict(symbols=np.concatenate(test)[mixed]),
      split=partition.in_order([self.examples_per_client] * self.num_clients),
      options=self.values,
      batch_size=5,
      eval_batch_size=100,
      to_model=_to_model,
      build_model=lambda: _build_model(self.symbols),
      loss=builders.cross_entropy,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
      notes=[
        'No model of the next symbol has a loss below '
        f'{np.mean(floors):.4f} nats, the entropy of the chains.'
      ],
    )


def _chain(rng: np.random.Generator, symbols: int) -> np.ndarray:
  return rng.dirichlet(np.full(symbols, _CONCENTRATION), symbols)


def stationary(chain: np.ndarray) -> np.ndarray:
  """Computes the stationary distribution of a chain, [symbols]."""
  count = len(chain)
  equations = np.vstack([chain.T - np.eye(count), np.ones(count)])
  right = np.append(np.zeros(count), 1)
  return np.linalg.lstsq(equations, right, rcond=None)[0]


def entropy(chain: np.ndarray) -> float:
  """Computes the entropy of the next symbol given the one before, in nats."""
  logs = np.log(np.where(chain > 0, chain, 1))
  return float(-np.sum(stationary(chain)[:, np.newaxis] * chain * logs))


def _texts(
  rng: np.random.Generator, chain: np.ndarray, count: int
) -> np.ndarray:
  """Draws texts, int32 [count, 31], the first symbol stationary."""
  law = np.cumsum(chain, axis=1)
  first = np.cumsum(stationary(chain))
  draws = rng.random([count, _LENGTH + 1])
  texts = np.empty([count, _LENGTH + 1], np.int32)
  last = len(chain) - 1
  texts[:, 0] = np.minimum(np.searchsorted(first, draws[:, 0]), last)
  for place in range(1, _LENGTH + 1):
    below = law[texts[:, place - 1]] < draws[:, place, np.newaxis]
    texts[:, place] = np.minimum(below.sum(axis=1), last)
  return texts


def _to_model(batch: Any) -> Any:
  return batch['symbols'][:, :-1], batch['symbols'][:, 1:]


def _build_model(symbols: int) -> tf.keras.Model:
  return tf.keras.Sequential(
    [
      tf.keras.layers.InputLayer((_LENGTH,), dtype=tf.int32),
      # Keras' default, 0.05, costs hundreds of steps of SGD at first.
      tf.keras.layers.Embedding(
        symbols, 8, tf.keras.initializers.RandomNormal(stddev=1.0)
      ),
      lstm.build(32),
      tf.keras.layers.Dense(symbols),
    ]
  )
