"""Per-client tests of the trained model, optionally after fine-tuning.

Clients have test data of their own if the task's test split is federated;
otherwise a share of every client's examples is held out of training.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, TypeAlias

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tasks import client_data
from tff_adaptive import errors
from tff_adaptive.lab.recording import metric_names
from tff_adaptive.lab.training import seeds
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.evaluation import validation
from tff_adaptive.lab.training.loop import centralized

# Groups of columns: of the model, and of the model fine-tuned by each client.
MODEL = 'per_client'
TUNED = 'per_client_tuned'
_PERCENTILES = (10, 50, 90)
# Maps a client id and a model's weights to the weights tuned on its data.
Tuner: TypeAlias = Callable[
  [str, tff.learning.models.ModelWeights], tff.learning.models.ModelWeights
]


def by_client(
  train: tff.simulation.datasets.ClientData, test: Any
) -> Optional[tff.simulation.datasets.ClientData]:
  """Returns the test data of training clients; `None` without any.

  Args:
    train: The training clients.
    test: The task's test data, a dataset or clients.
  """
  if not isinstance(test, tff.simulation.datasets.ClientData):
    test = getattr(test, 'by_client', None)
  if test is None or not {*test.client_ids} & {*train.client_ids}:
    return None
  return test


def split(
  data: tff.simulation.datasets.ClientData, share: float, seed: int
) -> tuple[
  tff.simulation.datasets.ClientData, tff.simulation.datasets.ClientData
]:
  """Splits each client's examples into training and test examples.

  Args:
    data: The clients. A client in memory has at least one example in each part
      if it has two, and trains on a single one; others are split by position.
    share: Share of the test examples.
    seed: The run's seed.

  Raises:
    SettingsError: If no client in memory has two examples.
  """
  if not isinstance(data, client_data.ArrayClientData):
    train, tests = (
      data.preprocess(
        functools.partial(
          validation.chosen, share=share, seed=seed, inside=inside
        )
      )
      for inside in (False, True)
    )
    return train, tests
  left, out = [], []
  for client, rows in zip(data.client_ids, data.partition.indices, strict=True):
    count = min(max(round(share * len(rows)), 1), len(rows) - 1)
    rng = np.random.default_rng(seeds.seed_pair(seed, 'client tests', client))
    held_out = np.zeros(len(rows), bool)
    held_out[rng.permutation(len(rows))[: max(count, 0)]] = True
    left.append(rows[~held_out])
    out.append(rows[held_out])
  if not any(map(len, out)):
    raise errors.SettingsError(
      '--evaluate_clients needs clients with at least two examples, to hold '
      'some out; those of this task have one.'
    )
  return data.divided(data.client_ids, left), data.divided(data.client_ids, out)


def build_tuner(
  model_fn: Callable[[], tff.learning.models.VariableModel],
  weights: tff.learning.models.ModelWeights,
  *,
  learning_rate: float,
  seed: int,
  data: Callable[[str], tf.data.Dataset],
) -> Tuner:
  """Builds the fine-tuning of a model on a client's data, by SGD.

  Args:
    model_fn: Returns a `tff.learning.models.VariableModel`.
    weights: Weights of such a model, as arrays.
    learning_rate: The learning rate.
    seed: Seed of dropout.
    data: Maps a client id to its batches, over all epochs.
  """
  steps = centralized.CentralizedRounds(
    model_fn,
    optimizer=tff.learning.optimizers.build_sgdm(learning_rate),
    initial_weights=weights,
    seed=seed,
  )
  first = steps.program_state

  def tune(
    client: str, weights: tff.learning.models.ModelWeights
  ) -> tff.learning.models.ModelWeights:
    steps.restore({**first, 'weights': weights})
    steps.run([client], [data(client)])
    return steps.model_weights()

  return tune


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClientTests:
  """Per-client evaluation of a model.

  Attributes:
    datasets: The task's datasets, with `client_tests`.
    evaluator: The evaluator.
    count: Number of clients to draw; `None` for all.
    seed: Seed of the draw.
    tuner: Fine-tunes weights for a client; `None` for no fine-tuning.
    directions: Whether higher is better, for metrics where this is known.
  """

  datasets: tff.simulation.baselines.BaselineTaskDatasets
  evaluator: evaluation.Evaluator
  count: Optional[int]
  seed: int
  tuner: Optional[Tuner] = None
  directions: Optional[Mapping[str, bool]] = None

  def clients(self) -> list[str]:
    """Draws `count` clients with test data, in the task's order.

    Raises:
      SettingsError: If there are fewer.
    """
    tests = self.datasets.client_tests
    there = {*tests.client_ids}
    if isinstance(tests, client_data.ArrayClientData):
      each = zip(tests.client_ids, tests.partition.indices, strict=True)
      there = {client for client, rows in each if len(rows)}
    ids = [c for c in self.datasets.train_data.client_ids if c in there]
    if self.count is None:
      return ids
    if self.count > len(ids):
      raise errors.SettingsError(
        f'--evaluate_clients={self.count} exceeds the {len(ids)} clients with '
        'test data; give at most that, or all.'
      )
    rng = np.random.default_rng(seeds.seed_pair(self.seed, 'clients to test'))
    places = sorted(rng.permutation(len(ids))[: self.count])
    return [ids[place] for place in places]

  def __call__(
    self,
    weights: tff.learning.models.ModelWeights,
    weights_of: Optional[Callable[[str, Any], Any]] = None,
  ) -> tuple[dict[str, float], list[dict[str, Any]]]:
    """Evaluates a model on each client.

    Args:
      weights: The model's weights.
      weights_of: Maps a client id and the model's weights to the client's own;
        by default all clients use the model's.

    Returns:
      Statistics over clients by column of metrics.csv, and one row per client.

    Raises:
      RunError: If a client's data cannot be read.
    """
    weights = tf.nest.map_structure(np.asarray, weights)
    rows = []
    for client in self.clients():
      used = weights if weights_of is None else weights_of(client, weights)
      try:
        row = self._row(client, used)
      except tf.errors.OpError as e:
        raise errors.RunError(
          f'The data of client {client!r} cannot be read for its evaluation: '
          f'{errors.reason(e)}.'
        ) from e
      if row is not None:
        rows.append(row)
    if not rows:
      raise errors.RunError('None of the selected clients has test data.')
    values = over_clients(rows, MODEL, self.directions)
    if self.tuner is not None:
      values |= over_clients(rows, TUNED, self.directions)
    return values, rows

  def _row(
    self, client: str, weights: tff.learning.models.ModelWeights
  ) -> Optional[dict[str, Any]]:
    """Evaluates the model on a client; `None` if it has no test data."""
    raw = self.datasets.client_tests.create_tf_dataset_for_client(client)
    preprocess = self.datasets.eval_preprocess_fn or (lambda data: data)
    batches = list(preprocess(raw))
    if not batches:
      return None
    values = dict(self.evaluator.evaluate(weights, batches))
    row = {'client': client, 'num_examples': values.pop('num_examples')}
    row |= {f'{MODEL}/{name}': value for name, value in values.items()}
    if self.tuner is not None:
      tuned = self.tuner(client, weights)
      values = dict(self.evaluator.evaluate(tuned, batches))
      del values['num_examples']
      row |= {f'{TUNED}/{name}': value for name, value in values.items()}
    return row


def over_clients(
  rows: Sequence[Mapping[str, Any]],
  group: str,
  directions: Optional[Mapping[str, bool]] = None,
) -> dict[str, float]:
  """Computes statistics of a group of metrics over equally weighted clients.

  Args:
    rows: One row per client, as `ClientTests` returns them.
    group: `MODEL` or `TUNED`.
    directions: Whether higher is better, by metric.

  Returns:
    For each metric its mean, standard deviation, percentiles, and the mean over
    the worst tenth of the clients, if its direction is known; and the number of
    clients.
  """
  values: dict[str, float] = collections.OrderedDict()
  values[f'{group}/clients'] = len(rows)
  worst = max(math.ceil(len(rows) / 10), 1)
  for column in rows[0]:
    if not column.startswith(f'{group}/') or '/num_' in column:
      continue
    cells = np.sort([float(row[column]) for row in rows])
    rises = metric_names.higher_is_better(column, directions)
    values[f'{column}/mean'] = float(np.mean(cells))
    values[f'{column}/std'] = float(np.std(cells))
    for percent in _PERCENTILES:
      values[f'{column}/p{percent}'] = float(np.percentile(cells, percent))
    if rises is not None:
      tail = cells[:worst] if rises else cells[::-1][:worst]
      values[f'{column}/worst_decile'] = float(np.mean(tail))
  return values
