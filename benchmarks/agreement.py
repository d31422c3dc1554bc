"""The same experiment by this package and by tff.learning, side by side.

  python benchmarks/agreement.py --cache_dir=DATA --output=FILE.csv

Both processes start from the same weights and are given the same clients with
the same batches in the same order; dropout differs (this package seeds it, TFF
does not), so that curves agree within its noise and not bit for bit. The runs
are FedAdam in its 'reference' variant against
`tff.learning.algorithms.build_weighted_fed_avg` with TFF's own Adam, and
Delta-SGD without tuning against SGD at a rate of each power of ten.
"""

import argparse
import csv
import os
import pathlib
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import tensorflow_federated as tff

import tasks
from benchmarks import pictures
from tff_adaptive import algorithms
from tff_adaptive import runtime
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.data import datasets as data
from tff_adaptive.lab.training.evaluation import evaluator as evaluation
from tff_adaptive.lab.training.participation import cohorts as sampling

CLIENT_RATE, SERVER_RATE, EPSILON, BETA_2 = 10**-1.5, 10**-2.5, 1e-4, 0.99


def methods(model_fn):
  """Returns the processes to compare, by name."""
  yield (
    'tff.learning FedAdam',
    tff.learning.algorithms.build_weighted_fed_avg(
      model_fn,
      tff.learning.optimizers.build_sgdm(CLIENT_RATE),
      tff.learning.optimizers.build_adam(
        SERVER_RATE, beta_2=BETA_2, epsilon=EPSILON
      ),
    ),
  )
  yield (
    'fedadam',
    algorithms.build(
      'fedadam',
      model_fn,
      variant='reference',
      client_learning_rate=CLIENT_RATE,
      server_learning_rate=SERVER_RATE,
      server_adaptivity=EPSILON,
      beta_2=BETA_2,
    ),
  )
  for batch in ('successive', 'same'):
    yield (
      f'delta_sgd {batch}',
      algorithms.build('delta_sgd', model_fn, smoothness_batch=batch),
    )
  for rate in (0.001, 0.01, 0.1, 1.0):
    yield (
      f'fedavg, SGD at {rate:g}',
      algorithms.build('fedavg', model_fn, client_learning_rate=rate),
    )


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--task', default='emnist_character')
  parser.add_argument('--cache_dir', required=True)
  parser.add_argument('--rounds', type=int, default=60)
  parser.add_argument('--clients', type=int, default=10)
  parser.add_argument('--seeds', type=int, default=2)
  parser.add_argument('--every', type=int, default=10)
  parser.add_argument('--output', required=True)
  options = parser.parse_args()
  runtime.set_in_process_context()
  task = tasks.create(options.task, cache_dir=options.cache_dir)
  test = data.test_split(task.datasets)
  # Before any evaluator: Keras models built outside of graphs cannot be used
  # once others have been built inside.
  processes = list(methods(task.model_fn))
  rows: list[dict] = []
  for seed in range(options.seeds):
    start = initial_weights.draw(task.model_fn, seed)
    evaluator = evaluation.Evaluator(task.model_fn)
    clients = data.ClientDatasets(task.datasets, seed=seed)
    cohort_fn = sampling.build_cohort_fn(
      clients.client_ids,
      clients_per_round=options.clients,
      random_seed=seed + 1,
    )
    for name, process in processes:
      state = process.set_model_weights(process.initialize(), start)
      for r in range(1, options.rounds + 1):
        batches = clients.for_round(r, cohort_fn(r)).batches
        state = process.next(state, batches).state
        if r % options.every == 0:
          metrics = evaluator.evaluate(process.get_model_weights(state), test)
          accuracy = next(name for name in metrics if 'accuracy' in name)
          rows.append(
            dict(
              method=name,
              seed=seed,
              round=r,
              loss=round(float(metrics['loss']), 4),
              accuracy=round(float(metrics[accuracy]), 4),
            )
          )
      print(seed, name, rows[-1]['accuracy'], flush=True)
      with open(options.output, 'w', newline='', encoding='utf-8') as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
  path = pathlib.Path(options.output).with_suffix('.png')
  pictures.draw_agreement(rows, path)


if __name__ == '__main__':
  main()
