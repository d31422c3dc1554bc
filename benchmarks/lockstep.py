"""Rounds with clients one at a time, in lockstep, and compiled, taking turns.

  python benchmarks/lockstep.py [--tasks=digits,hospitals] [--methods=fedadam]
      [--clients=10] [--rounds=40] [--output=lockstep.csv]

A round is that of `process.next` on the in-process runtime, metrics included,
with the batches that `main.py` would hand it; preparing them is not counted.
Medians after warm-up, ratios to one at a time, and seconds of the first round.
"""

import argparse
import collections
import csv
import io
import pathlib
import statistics
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

import tasks
from tff_adaptive import algorithms
from tff_adaptive import models
from tff_adaptive import runtime
from tff_adaptive.lab.training.data import batches

_MANY_SMALL = '1000_clients_of_20'
_TASKS = (
  'digits',
  'digits_autoencoder',
  'hospitals',
  'quadratics',
  'zipf_tags',
  'fedprox_synthetic',
  _MANY_SMALL,
)
_CHOICES = {
  'apart': {'vectorize_clients': 'false'},
  'together': {'vectorize_clients': 'true'},
  'compiled': {'vectorize_clients': 'true', 'jit_compile': 'true'},
}
_WARM_UP = 3


def main() -> None:
  """Measures and prints a row per task and method."""
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument('--tasks', default=','.join(_TASKS))
  parser.add_argument('--methods', default='delta_sgd,fedadam')
  parser.add_argument('--clients', type=int, default=10)
  parser.add_argument('--rounds', type=int, default=40)
  parser.add_argument('--output', help='CSV file; by default only printed')
  options = parser.parse_args()
  tf.config.threading.set_intra_op_parallelism_threads(1)
  rows = []
  for task in options.tasks.split(','):
    for method in options.methods.split(','):
      rows.append(_measure(task, method, options.clients, options.rounds))
      print(rows[-1], file=sys.stderr, flush=True)
  text = io.StringIO()
  writer = csv.DictWriter(text, rows[0], lineterminator='\n')
  writer.writeheader()
  writer.writerows(rows)
  print(text.getvalue(), end='')
  if options.output:
    pathlib.Path(options.output).write_text(text.getvalue(), encoding='utf-8')


def _many_small() -> tff.simulation.baselines.BaselineTask:
  """1,000 clients of 20 examples, whose model is logistic regression."""
  rng = np.random.default_rng(0)
  train = tff.simulation.datasets.TestClientData(
    {
      f'{client:03d}': collections.OrderedDict(
        x=rng.normal(size=(20, 60)).astype(np.float32),
        y=rng.integers(0, 10, 20).astype(np.int32),
      )
      for client in range(1000)
    }
  )
  datasets = tff.simulation.baselines.BaselineTaskDatasets(
    train, train, train_preprocess_fn=lambda data: data.batch(10)
  )
  model_fn = models.model_fn(
    lambda: tf.keras.Sequential(
      [tf.keras.layers.InputLayer((60,)), tf.keras.layers.Dense(10)]
    ),
    input_spec=datasets.element_type_structure,
    loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
  )
  return tff.simulation.baselines.BaselineTask(datasets, model_fn)


def _measure(name: str, method: str, count: int, rounds: int) -> dict[str, str]:
  if name == _MANY_SMALL:
    task, count = _many_small(), 1000
  else:
    task = tasks.create(name)
  clients = batches.training_clients(
    task.datasets, seed=0, cache_bytes=2**30, as_lists=True
  )
  process = algorithms.build(method, task.model_fn)
  contexts = [
    runtime.create_in_process_context(**options)
    for options in _CHOICES.values()
  ]
  initial = process.initialize()
  cohort = clients.client_ids[:count]
  state = dict.fromkeys(_CHOICES, initial)
  kept = {}
  if hasattr(process, 'initialize_client_state'):
    fresh = [process.initialize_client_state() for _ in cohort]
    kept = {choice: list(fresh) for choice in _CHOICES}
  seconds: dict[str, list[float]] = {choice: [] for choice in _CHOICES}
  for number in range(1, rounds + _WARM_UP + 1):
    data = clients.for_round(number, cohort).batches
    for choice, context in zip(_CHOICES, contexts):
      runtime.set_default_context(context)
      arguments = [kept[choice]] if kept else []
      begin = time.perf_counter()
      output = process.next(state[choice], *arguments, data)
      seconds[choice].append(time.perf_counter() - begin)
      state[choice] = output.state
      if kept:
        kept[choice] = output.client_states
  medians = {c: statistics.median(seconds[c][_WARM_UP:]) for c in _CHOICES}
  return {
    'task': name,
    'method': method,
    'clients': str(len(cohort)),
    **{f'{c}_ms': f'{1e3 * median:.2f}' for c, median in medians.items()},
    'ratio': f'{medians["apart"] / medians["together"]:.2f}',
    'compiled_ratio': f'{medians["apart"] / medians["compiled"]:.2f}',
    **{f'first_{c}_s': f'{seconds[c][0]:.2f}' for c in _CHOICES},
  }


if __name__ == '__main__':
  main()
