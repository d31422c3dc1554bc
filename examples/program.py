"""A TFF program: tff.learning's `train_model` with a method of this project.

  python -m examples.program --rounds=20 --output_dir=/tmp/program

Sampling, training, evaluation beside the training, release of metrics and
models, and the state on disk are TFF's own program logic. This project's parts
are the context and the method:

  runtime.set_in_process_context(asynchronous=True)
  process = algorithms.build('fedadam', model_fn, ...)

Run it again with more rounds, and it goes on from the state on disk.
"""

import argparse
import asyncio
import collections
import datetime
import pathlib
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime

_TRAINING_CLIENTS = [str(i) for i in range(8)]
_EVALUATION_CLIENTS = ['8', '9']


@tff.tensorflow.computation(np.str_)
def dataset_of(client_id):
  """Makes a client's batches: points near a line of the client's own slope."""
  slope = 2.0 + 0.1 * tf.strings.to_number(client_id)
  x = tf.range(32.0)[:, tf.newaxis] / 32
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=slope * x + 1.0)
  ).batch(8)


def model_fn() -> tff.learning.models.VariableModel:
  """Builds a linear model for the batches of `dataset_of`."""
  number = tf.TensorSpec([None, 1], tf.float32)
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([1]),
        tf.keras.layers.Dense(1, kernel_initializer='zeros'),
      ]
    ),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=collections.OrderedDict(x=number, y=number),
  )


def build_evaluation_manager(
  folder: pathlib.Path,
) -> tff.learning.programs.EvaluationManager:
  """Builds what evaluates a model on all clients that took no part."""
  # Clients' data are made from their ids, where the clients run.
  compose = tff.simulation.compose_dataset_computation_with_learning_process
  evaluation = compose(
    dataset_of, tff.learning.algorithms.build_fed_eval(model_fn)
  )
  return tff.learning.programs.EvaluationManager(
    data_source=tff.program.ClientIdDataSource(_EVALUATION_CLIENTS),
    aggregated_metrics_manager=tff.program.CSVFileReleaseManager(
      folder / 'evaluation.csv', key_fieldname='round'
    ),
    create_state_manager_fn=lambda name: tff.program.FileProgramStateManager(
      folder / 'state' / name
    ),
    create_process_fn=lambda name: (evaluation, None),
    cohort_size=len(_EVALUATION_CLIENTS),
    duration=datetime.timedelta(0),  # One pass over these clients.
  )


async def train(rounds: int, folder: pathlib.Path) -> None:
  """Trains up to a round; goes on where the state in the folder ends."""
  process = algorithms.build(
    'fedadam',
    model_fn,
    client_learning_rate=0.1,
    server_learning_rate=0.1,
  )
  compose = tff.simulation.compose_dataset_computation_with_learning_process
  await tff.learning.programs.train_model(
    train_process=compose(dataset_of, process),
    train_data_source=tff.program.ClientIdDataSource(_TRAINING_CLIENTS),
    train_per_round_clients=4,
    train_total_rounds=rounds,
    program_state_manager=tff.program.FileProgramStateManager(
      folder / 'state' / 'training'
    ),
    model_output_manager=tff.program.SavedModelFileReleaseManager(
      folder / 'models'
    ),
    train_metrics_manager=tff.program.GroupingReleaseManager(
      [
        tff.program.LoggingReleaseManager(),
        tff.program.CSVFileReleaseManager(
          folder / 'training.csv', key_fieldname='round'
        ),
      ]
    ),
    evaluation_manager=build_evaluation_manager(folder),
    evaluation_periodicity=5,
  )


def main(arguments: Sequence[str] | None = None) -> None:
  """Trains and evaluates.

  Args:
    arguments: Of the command line; those of this process unless given.
  """
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=20)
  parser.add_argument('--output_dir', type=pathlib.Path, required=True)
  options = parser.parse_args(arguments)

  runtime.set_in_process_context(asynchronous=True)
  asyncio.run(train(options.rounds, options.output_dir))
  print(f'{options.rounds} rounds, metrics and models in {options.output_dir}')


if __name__ == '__main__':
  main()
