"""A method of this project in a pipeline that was written for tff.learning.

  python -m examples.import_into_pipeline --rounds=20 --output_dir=/tmp/pipeline

The pipeline is TFF's own: its data, its training loop, its federated
evaluation, its managers of state and metrics. Where it said

  tff.learning.algorithms.build_weighted_fed_avg(model_fn, ...)

it now says `algorithms.build('fedyogi', model_fn, ...)`; nothing else changes.
The context is a choice of its own: without `set_in_process_context` the same
process runs in TFF's native runtime. Run it again with more rounds, and it goes
on from the state on disk.
"""

import argparse
import collections
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime


def _prepare(dataset: tf.data.Dataset) -> tf.data.Dataset:
  def to_pair(example):
    return example['pixels'], example['label']

  return dataset.take(40).map(to_pair).batch(10)


def _select(data: tff.simulation.datasets.ClientData, round_number: int):
  """Selects two clients a round, in turn."""
  ids = data.client_ids
  chosen = [ids[(2 * round_number + i) % len(ids)] for i in range(2)]
  return [_prepare(data.create_tf_dataset_for_client(c)) for c in chosen]


def _build_model_fn(
  spec: Any,
) -> Callable[[], tff.learning.models.VariableModel]:
  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.Flatten(input_shape=(28, 28)),
          tf.keras.layers.Dense(10),
        ]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy],
    )

  return model_fn


def main(arguments: Sequence[str] | None = None) -> None:
  """Trains and evaluates.

  Args:
    arguments: Of the command line; those of this process unless given.
  """
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--method', default='fedyogi')
  parser.add_argument('--rounds', type=int, default=20)
  parser.add_argument('--output_dir', type=pathlib.Path, required=True)
  options = parser.parse_args(arguments)

  runtime.set_in_process_context()
  # Made-up digits that come with TFF; load_data() has the real ones.
  data = tff.simulation.datasets.emnist.get_synthetic()
  spec = _prepare(
    data.create_tf_dataset_for_client(data.client_ids[0])
  ).element_spec

  model_fn = _build_model_fn(spec)
  process = algorithms.build(
    options.method, model_fn, client_learning_rate=0.01
  )
  evaluation = tff.learning.algorithms.build_fed_eval(model_fn)

  def evaluate(state, clients):
    evaluation_state = evaluation.set_model_weights(
      evaluation.initialize(), process.get_model_weights(state)
    )
    metrics = evaluation.next(evaluation_state, clients).metrics
    return collections.OrderedDict(
      metrics['client_work']['eval']['current_round_metrics']
    )

  options.output_dir.mkdir(parents=True, exist_ok=True)
  table = options.output_dir / 'metrics.csv'
  tff.simulation.run_training_process(
    process,
    lambda round_number: _select(data, round_number),
    options.rounds,
    evaluation_fn=evaluate,
    evaluation_selection_fn=lambda round_number: _select(data, 0),
    rounds_per_evaluation=5,
    program_state_manager=tff.program.FileProgramStateManager(
      options.output_dir / 'state'
    ),
    metrics_managers=[
      tff.program.CSVFileReleaseManager(table, key_fieldname='round')
    ],
  )
  print(f'{options.method}: {options.rounds} rounds, metrics in {table}')


if __name__ == '__main__':
  main()
