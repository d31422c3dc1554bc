"""Rounds that own and common step sizes take on the task quadratic, against a.

  python benchmarks/quadratic.py --output=results/quadratic

Runs rounds of the package's own processes on both forms of Example 1 of
Mukherjee et al. (arXiv 2307.06306) until the weights are a thousandth of where
they started, and writes rounds.csv and rounds.png. Own steps are FedSPS with
c = 1. The common step is SGD at the best rate there is for the a at hand, which
can be told in closed form, and FedSPS-Global's, which no one has to tell.
"""

import argparse
import os
import pathlib
import sys

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import numpy as np

import tasks
from benchmarks import outputs
from benchmarks import pictures
from tff_adaptive import algorithms
from tff_adaptive import runtime

CURVATURES = (1, 3, 10, 30, 100)
MOST_ROUNDS = 1500
# SGD's factor of |x| in a round is |1 - rate (1 + a) / 2| along a shared axis,
# and along own ones |1 - rate a / 2| and |1 - rate / 2|.
BEST_RATE = {'shared': lambda a: 2 / (1 + a), 'own': lambda a: 4 / (1 + a)}


def methods(axes, a):
  """Returns what is compared: names and arguments of `algorithms.build`."""
  best = BEST_RATE[axes](a)
  return {
    'own steps (fedsps)': dict(name='fedsps', c=1.0),
    'best common step (fedavg)': dict(name='fedavg', client_learning_rate=best),
    'the best step of a = 100 (fedavg)': dict(
      name='fedavg', client_learning_rate=BEST_RATE[axes](CURVATURES[-1])
    ),
    'common Polyak step (fedsps_global b)': dict(
      name='fedsps_global', c=1.0, aggregation='b', gamma_0=1.0
    ),
  }


def rounds_of(task, **method):
  """Counts rounds until the weights are near 0; `None` if they never are."""
  data = task.datasets.train_data
  clients = [
    task.datasets.train_preprocess_fn(data.create_tf_dataset_for_client(i))
    for i in data.client_ids
  ]
  process = algorithms.build(model=task.model_fn, **method)
  state = process.initialize()

  def largest():
    weights = process.get_model_weights(state).trainable
    return max(np.abs(w).max() for w in weights)

  start = largest()
  for count in range(1, MOST_ROUNDS + 1):
    state = process.next(state, clients).state
    if largest() <= pictures.WITHIN * start:
      return count
    if largest() > 1e6 * start:
      break
  return None


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--output', required=True, help='Folder to write to.')
  folder = pathlib.Path(parser.parse_args().output)
  folder.mkdir(parents=True, exist_ok=True)
  runtime.set_in_process_context()
  rows = []
  for axes in BEST_RATE:
    for a in CURVATURES:
      task = tasks.create('quadratic', a=float(a), axes=axes)
      for name, method in methods(axes, a).items():
        count = rounds_of(task, **method)
        rows.append(dict(axes=axes, a=a, method=name, rounds=count))
        print(axes, a, name, count, flush=True)
  outputs.write_rows(folder / 'rounds.csv', rows)
  pictures.draw_quadratic(rows, folder / 'rounds.png')


if __name__ == '__main__':
  main()
