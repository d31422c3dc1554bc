"""Clients trained on other machines, here played by processes of this one.

  python -m examples.remote_workers --rounds=5
  python -m examples.remote_workers --workers=10.0.0.4:9001,10.0.0.5:9001 \
    --worker_certificate=workers.pem

Without `--workers` two are started here, as `python main.py worker --port=0`,
reachable from this machine only. On machines of their own workers are started
with TLS, because whoever reaches a worker can run TensorFlow code there:

  python main.py worker --port=9001 --bind_address=0.0.0.0 \
    --certificate=worker.pem --private_key=worker.key

The process and the loop are those of any other context.
"""

import argparse
import contextlib
import pathlib
import subprocess
import sys
from collections.abc import Iterator
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import algorithms
from tff_adaptive import runtime

_MAIN = pathlib.Path(__file__).resolve().parents[1] / 'main.py'


@contextlib.contextmanager
def local_workers(count: int) -> Iterator[list[str]]:
  """Starts workers on this machine until the block ends; yields addresses."""
  processes = [
    subprocess.Popen(
      [sys.executable, _MAIN, 'worker', '--port=0', '--end_with_parent'],
      stdout=subprocess.PIPE,
      text=True,
    )
    for _ in range(count)
  ]
  try:
    addresses = []
    for process in processes:
      assert process.stdout is not None
      # One line, printed once it can be reached: ... listening on HOST:PORT ...
      words = process.stdout.readline().split()
      if 'listening' not in words:
        raise RuntimeError(f'A worker did not start: {" ".join(words)}')
      addresses.append(words[words.index('on') + 1].rstrip('.,'))
    yield addresses
  finally:
    for process in processes:
      process.terminate()
      process.wait()


def train(rounds: int) -> list[float]:
  """Fits a line on four clients; returns the loss of each round."""

  def model_fn() -> tff.learning.models.VariableModel:
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential([tf.keras.layers.Dense(1, input_shape=(1,))]),
      loss=tf.keras.losses.MeanSquaredError(),
      input_spec=(tf.TensorSpec([None, 1]), tf.TensorSpec([None, 1])),
    )

  def data_of(client: int) -> tf.data.Dataset:
    x = tf.range(16.0)[:, tf.newaxis] / 16
    return tf.data.Dataset.from_tensor_slices((x, client * x + 1)).batch(4)

  process = algorithms.build('delta_sgd', model_fn)
  state = process.initialize()
  losses = []
  for _ in range(rounds):
    output = process.next(state, [data_of(client) for client in range(4)])
    state = output.state
    losses.append(float(output.metrics['client_work']['train']['loss']))
  return losses


def main(arguments: Sequence[str] | None = None) -> None:
  """Trains over the workers.

  Args:
    arguments: Of the command line; those of this process unless given.
  """
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--rounds', type=int, default=5)
  parser.add_argument('--workers', help='host:port,host:port,...')
  parser.add_argument('--worker_certificate')
  options = parser.parse_args(arguments)

  with contextlib.ExitStack() as stack:
    if options.workers:
      addresses = options.workers.split(',')
    else:
      addresses = stack.enter_context(local_workers(2))
    context = runtime.set_remote_context(
      addresses, worker_certificate=options.worker_certificate
    )
    stack.callback(context.close)
    losses = train(options.rounds)
  print(f'{len(addresses)} workers, losses', *(f'{x:.4f}' for x in losses))


if __name__ == '__main__':
  main()
