"""Points of a sweep that differ in hyperparameters alone, trained together.

With one seed they have the same cohorts, batches and first weights, and where
they share a graph they differ only in numbers of the server's state: a round of
all is one call of a `runtime` ensemble, and so is their evaluation. Nothing is
written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tff_adaptive import runtime
from tff_adaptive import structures
from tff_adaptive import vectorizing
from tff_adaptive.lab.sweep import grids
from tff_adaptive.lab.sweep import outcomes
from tff_adaptive.lab.sweep import worker
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import parts as parts_lib
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.data import datasets as data_lib
from tff_adaptive.lab.training.loop import loop
from tff_adaptive.lab.training.loop import rounds as rounds_lib
from tff_adaptive.processes.local import local_model
from tff_adaptive.processes.local import tensor_model

# Memory for weights, gradients and states of the clients that train at once,
# and for what all of them keep.
_BYTES = 1 << 30
_COPIES = 8

_Group = Sequence[tuple[grids.Point, parts_lib.Built]]


def groups_of(points: Iterable[grids.Point]) -> list[list[grids.Point]]:
  """Divides runs of a task into those that can train together.

  Groups of one graph follow each other, so that it is traced once.
  """
  groups: dict[Any, dict[Any, list[grids.Point]]] = {}
  for point in points:
    settings = point.settings
    of_graph = groups.setdefault(settings.configuration.structure, {})
    key = settings.seed, settings.total_rounds
    of_graph.setdefault(key, []).append(point)
  return [group for own in groups.values() for group in own.values()]


def train(
  points: Sequence[grids.Point], divergence_factor: float
) -> dict[str, 'Run']:
  """Trains runs of one task, graph, seed and length together.

  Args:
    points: The runs, one of `groups_of`.
    divergence_factor: As `worker.Watch` takes it.

  Returns:
    The runs by name.

  Raises:
    CannotVectorize: If they cannot be trained together.
    SettingsError: If the task cannot be created, or the method cannot train it.
    RunError: If data cannot be read.
    OpError: If a client or the server of one of them fails.
  """
  settings = points[0].settings
  parts = experiment.set_up(settings)
  group = [(p, experiment.build(p.settings, parts.task)) for p in points]
  process = group[0][1].process
  size = data_lib.nbytes(reuse.template(process))
  needed = _COPIES * size * settings.clients_per_round
  if (first := getattr(process, 'initialize_client_state', None)) is not None:
    kept = data_lib.nbytes(first())
    needed += kept * len(parts.clients.client_ids)
  most = max(1, _BYTES // needed)
  found: dict[str, Run] = {}
  for start in range(0, len(group), most):
    found |= _train(parts, group[start : start + most], divergence_factor)
  return found


def _train(
  parts: loop.Parts, group: _Group, divergence_factor: float
) -> dict[str, 'Run']:
  """Trains as many runs as fit into memory."""
  intervals = loop.Intervals.of(group[0][0].settings)
  rounds = _Rounds(parts, group)
  runs = {point.name: Run(divergence_factor) for point, _ in group}
  for number in range(intervals.total_rounds + 1):
    columns: Sequence[Mapping[str, Any]] = [{}] * len(runs)
    if number:
      columns = rounds.run(number)
    values: Sequence[Mapping[str, Any]] = [{}] * len(runs)
    if intervals.evaluates(number):
      losses = rounds.losses(number).tolist()
      values = [{'validation/loss': loss} for loss in losses]
    for run, *own in zip(runs.values(), columns, values, strict=True):
      run.add(parts, number, *own)
    if all(run.is_over for run in runs.values()):
      break
  return runs


class Run:
  """The rows of a run, until it diverges.

  Attributes:
    rows: As those of metrics.csv.
    status: How it ended, or would end now.
  """

  def __init__(self, divergence_factor: float):
    self._watch = worker.Watch(divergence_factor=divergence_factor)
    self.rows: list[dict[str, Any]] = []
    self.status = outcomes.FINISHED

  @property
  def is_over(self) -> bool:
    return self.status != outcomes.FINISHED

  def add(
    self,
    parts: loop.Parts,
    number: int,
    columns: Mapping[str, Any],
    values: Mapping[str, Any],
  ) -> None:
    """Adds the row of a round and its evaluation."""
    if self.is_over:
      return
    row = {'round': number, **columns, **values}
    if number:
      loop.charge(row, parts, number, self.rows[-1])
    self.rows.append(row)
    try:
      self._watch.look_back([row])
    except worker.DivergedError:
      self.status = outcomes.DIVERGED


def _ensembles(process: Any) -> Sequence[Any]:
  return [
    runtime.create_ensemble(computation)
    for computation in (process.next, process.get_model_weights)
  ]


class _Rounds:
  """Rounds of several states."""

  def __init__(self, parts: loop.Parts, group: _Group):
    process = group[0][1].process
    self._parts, self._count = parts, len(group)
    assert isinstance(parts.rounds, rounds_lib.LearningRounds)
    self._columns = parts.rounds.columns
    self._next, self._weights = reuse.of_process(process, _ensembles)
    template = reuse.template(process)
    first = parts.rounds.model_weights()
    states = [
      self._next.leaves_of(0, built.components.first_state(template, first))
      for _, built in group
    ]
    self._states = [tf.constant(np.stack(leaves)) for leaves in zip(*states)]
    self._losses = reuse.beside(
      parts.evaluator, 'losses', lambda: _losses_of(parts.task.model_fn)
    )
    # What clients keep, [states, ...], by id.
    self._kept: dict[str, list[tf.Tensor]] = {}
    self._fresh = None
    if (fresh := getattr(process, 'initialize_client_state', None)) is not None:
      self._fresh = [
        tf.repeat(tf.constant(leaf)[tf.newaxis], self._count, axis=0)
        for leaf in self._next.leaves_of(1, fresh())
      ]

  def run(self, number: int) -> Sequence[Mapping[str, Any]]:
    """Runs a round; returns each state's columns of metrics.csv."""
    cohort = self._parts.cohort_fn(number)
    if not cohort:
      return [{'clients/count': 0}] * self._count
    data = self._parts.clients.for_round(number, cohort)
    if data.failures:
      raise runtime.CannotVectorize('data of a client cannot be read')
    kept: Sequence[tf.Tensor] = []
    if self._fresh is not None:
      own = [self._kept.get(client, self._fresh) for client in cohort]
      kept = [tf.stack(leaves, axis=1) for leaves in zip(*own)]
    outputs = self._next(self._states, kept, data.batches)
    self._states = outputs.parts[0]
    if self._fresh is not None:
      each = zip(*(tf.unstack(leaf, axis=1) for leaf in outputs.parts[1]))
      self._kept.update(zip(cohort, map(list, each), strict=True))
    metrics = outputs.value.metrics
    return [
      self._columns(tf.nest.map_structure(lambda leaf, i=i: leaf[i], metrics))
      for i in range(self._count)
    ]

  def losses(self, number: int) -> np.ndarray:
    """Returns each state's loss on the validation data."""
    batches = list(self._parts.splits.validation(number))
    whole = tf.nest.map_structure(lambda *b: tf.concat(b, axis=0), *batches)
    weights = self._weights(self._states).value
    with vectorizing.quietly():
      return np.asarray(self._losses(weights, whole))


def _losses_of(model_fn: local_model.Model) -> Any:
  """Builds the function from several models' weights, stacked, to losses."""

  def losses(
    weights: structures.ModelWeights, batch: structures.Examples
  ) -> tf.Tensor:
    model = tensor_model.TensorModel(model_fn)
    count = tf.nest.flatten(weights)[0].shape[0]
    return vectorizing.over_clients(
      count, lambda own: model.loss(own, batch), weights
    )

  return tf.function(losses, autograph=False)
