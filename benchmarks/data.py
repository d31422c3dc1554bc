"""Seconds that a client spends in its data and in training, task by task.

    python -m benchmarks.data [--cache_dir=DIR] [--clients=N]
                              [--most_batches=N] [--TASK_OPTION=VALUE]
                              [TASK ...]

For each task: reading a client's raw examples (done once, then kept), turning
them into batches (every round), and one SGD step on each batch. "share" is
batches / (batches + training): what data costs in a round once clients have
been read. Tasks whose files are missing run on synthetic data and say so.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from typing import Any
from typing import Optional

import tasks


def main(argv: Optional[Sequence[str]] = None) -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('tasks', nargs='*', default=[], metavar='TASK')
  parser.add_argument('--cache_dir', help='Folder with the data files.')
  parser.add_argument('--clients', type=int, default=5)
  parser.add_argument('--most_batches', type=int, default=20)
  arguments, flags = parser.parse_known_args(argv)
  names = arguments.tasks or tasks.names()
  options = {name: _options(name, flags) for name in names}
  if flags:
    parser.error(f'no task that is run has the option {flags[0]}')
  print(
    f'{"task":24}{"data":11}{"examples":>9}{"batches":>8}{"read ms":>9}'
    f'{"batch ms":>10}{"train ms":>10}{"share":>7}'
  )
  for name in names:
    print(
      _row(
        name,
        dict(options[name], cache_dir=arguments.cache_dir),
        arguments.clients,
        arguments.most_batches,
      ),
      flush=True,
    )


def _options(name: str, flags: list[str]) -> dict[str, Any]:
  """Takes a task's options, --{task}_{option}=value, out of the flags."""
  options = {}
  for flag in list(flags):
    word, _, value = flag.removeprefix('--').partition('=')
    option = word.removeprefix(f'{name}_')
    if option != word and option in tasks.parameters_of(name):
      options[option] = tasks.parameters_of(name)[option].parse(value, flag)
      flags.remove(flag)
  return options


def _row(name: str, options: dict[str, Any], clients: int, most: int) -> str:
  """Formats a line of the table: medians over clients, in milliseconds."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  task, data = _create(name, options)
  source = task.datasets.train_data
  model = task.model_fn()

  @tf.function(reduce_retracing=True)
  def step(batch):
    with tf.GradientTape() as tape:
      loss = model.forward_pass(batch, training=True).loss
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    for variable, gradient in zip(variables, gradients, strict=True):
      variable.assign_sub(1e-3 * tf.convert_to_tensor(gradient))

  counts, read, batched, trained = [], [], [], []
  ids = source.client_ids[: clients + 1]
  for i, client_id in enumerate(ids):
    begin = time.perf_counter()
    raw = list(source.create_tf_dataset_for_client(client_id).batch(1024))
    read.append(time.perf_counter() - begin)
    raw = tf.nest.map_structure(lambda *parts: tf.concat(parts, 0), *raw)
    dataset = tf.data.Dataset.from_tensor_slices(raw)
    begin = time.perf_counter()
    batches = list(
      task.datasets.train_preprocess_fn(
        dataset, seed=tf.constant([i, 0], tf.int64)
      )
    )
    batched.append(time.perf_counter() - begin)
    for batch in batches[:1] + batches[-1:] if i == 0 else []:
      step(batch)  # Traced before it is timed.
    begin = time.perf_counter()
    for batch in batches[:most]:
      step(batch)
    seconds = time.perf_counter() - begin
    trained.append(seconds * len(batches) / min(len(batches), most))
    counts.append((len(tf.nest.flatten(raw)[0]), len(batches)))
  # The first client pays for tracing.
  times = [
    1e3 * statistics.median(t[1:] or t) for t in (read, batched, trained)
  ]
  examples, steps = (
    statistics.median(c) for c in zip(*(counts[1:] or counts), strict=True)
  )
  share = times[1] / (times[1] + times[2])
  return (
    f'{name:24}{data:11}{examples:9.0f}{steps:8.0f}{times[0]:9.1f}'
    f'{times[1]:10.1f}{times[2]:10.1f}{share:7.0%}'
  )


def _create(name: str, options: dict[str, Any]):
  try:
    return tasks.create(name, **options), 'native'
  except tasks.DataError:
    return tasks.create(name, data='synthetic', **options), 'synthetic'


if __name__ == '__main__':
  main()
