"""Side-by-side timings of one federated round in different runtimes.

  python benchmarks/runtime.py --models=logistic,cnn,lstm --output=times.json

Each contender lives in a process of its own, so that peak memory is its own,
and the rounds of all contenders take turns, so that a busy machine is busy for
all of them. Reported are medians over the rounds after warm-up, ratios to this
project's runtime, the first round (with compilation), the loss after the last
round, and peak resident memory, a worker process included.

Contenders:
  tff_reduce     tff.learning's FedAvg on TFF's native runtime, as shipped
  tff_iterator   the same with the iterator loop
  in_process     this project's FedAdam in its in-process runtime
  tff_in_process tff.learning's FedAvg (as shipped) in the in-process runtime
  plain          a TensorFlow loop over the same batches, nothing federated
  fedjax, pfl    the other simulators, if installed

With --shuffle, each round has new dataset objects that shuffle (training in
earnest); otherwise all rounds have the same objects.
"""

import argparse
import collections
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

_ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
_CONTENDERS = (
  'tff_reduce',
  'tff_iterator',
  'in_process',
  'tff_in_process',
  'plain',
  'fedjax',
  'pfl',
)
_MODELS = ('logistic', 'cnn', 'lstm')
_LEARNING_RATE = 0.05


# Models and data.


def _keras_model(name: str, width: int):
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  layers = tf.keras.layers
  if name == 'logistic':
    return tf.keras.Sequential([layers.InputLayer([width]), layers.Dense(62)])
  if name == 'cnn':
    # The EMNIST CNN of Reddi et al. without its dropout, so that losses can be
    # compared.
    return tf.keras.Sequential(
      [
        layers.InputLayer([28, 28, 1]),
        layers.Conv2D(32, 3, activation='relu'),
        layers.Conv2D(64, 3, activation='relu'),
        layers.MaxPool2D(2),
        layers.Flatten(),
        layers.Dense(128, activation='relu'),
        layers.Dense(62),
      ]
    )
  return tf.keras.Sequential(
    [
      layers.InputLayer([80]),
      layers.Embedding(90, 8),
      layers.LSTM(256, return_sequences=True),
      layers.LSTM(256, return_sequences=True),
      layers.Dense(90),
    ]
  )


def _arrays(name: str, width: int, examples: int, client: int):
  import numpy as np  # pylint: disable=g-import-not-at-top

  rng = np.random.default_rng([7, client])
  if name == 'logistic':
    return (
      rng.normal(size=(examples, width)).astype(np.float32),
      rng.integers(0, 62, examples),
    )
  if name == 'cnn':
    return (
      rng.random((examples, 28, 28, 1)).astype(np.float32),
      rng.integers(0, 62, examples),
    )
  text = rng.integers(0, 90, (examples, 81))
  return text[:, :-1], text[:, 1:]


def _model_fn(options):
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  x, y = _arrays(options.model, options.width, 1, 0)
  spec = (
    tf.TensorSpec([None, *x.shape[1:]], x.dtype),
    tf.TensorSpec([None, *y.shape[1:]], y.dtype),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      _keras_model(options.model, options.width),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
      metrics=[tf.keras.metrics.SparseCategoricalAccuracy()],
    )

  return model_fn


def _datasets(options):
  """A function that returns a round's client datasets."""
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  def make(client):
    data = tf.data.Dataset.from_tensor_slices(
      _arrays(options.model, options.width, options.examples, client)
    )
    if options.shuffle:
      data = data.shuffle(options.examples)
    return data.batch(options.batch_size)

  fixed = [make(c) for c in range(options.clients)]
  if options.shuffle:
    return lambda: [make(c) for c in range(options.clients)]
  return lambda: fixed


# Contenders: each returns a function that runs a round and returns its loss.


def _tff_process(options, iterator: bool):
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  loop = tff.learning.LoopImplementation
  return tff.learning.algorithms.build_weighted_fed_avg(
    _model_fn(options),
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(_LEARNING_RATE),
    server_optimizer_fn=tff.learning.optimizers.build_adam(1e-3, epsilon=1e-3),
    loop_implementation=(
      loop.DATASET_ITERATOR if iterator else loop.DATASET_REDUCE
    ),
  )


def _federated(options, process):
  import tensorflow as tf  # pylint: disable=g-import-not-at-top
  import tensorflow_federated as tff  # pylint: disable=g-import-not-at-top

  data = _datasets(options)
  state = process.initialize()
  tf.keras.utils.set_random_seed(1)
  weights = tff.learning.models.ModelWeights.from_model(_model_fn(options)())
  holder = [process.set_model_weights(state, weights)]

  def run():
    output = process.next(holder[0], data())
    holder[0] = output.state
    return float(output.metrics['client_work']['train']['loss'])

  return run


def _make_tff_reduce(options):
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

  runtime.set_native_context()
  return _federated(options, _tff_process(options, iterator=False))


def _make_tff_iterator(options):
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

  runtime.set_native_context()
  return _federated(options, _tff_process(options, iterator=True))


def _make_tff_in_process(options):
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

  runtime.set_in_process_context(max_concurrent_clients=options.threads)
  return _federated(options, _tff_process(options, iterator=False))


def _make_in_process(options):
  from tff_adaptive import algorithms  # pylint: disable=g-import-not-at-top
  from tff_adaptive import runtime  # pylint: disable=g-import-not-at-top

  runtime.set_in_process_context(max_concurrent_clients=options.threads)
  process = algorithms.build(
    'fedadam',
    _model_fn(options),
    client_learning_rate=_LEARNING_RATE,
    server_learning_rate=1e-3,
    server_adaptivity=1e-3,
  )
  return _federated(options, process)


def _make_plain(options):
  import tensorflow as tf  # pylint: disable=g-import-not-at-top

  tf.keras.utils.set_random_seed(1)
  model = _keras_model(options.model, options.width)
  loss_fn = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
  x, y = _arrays(options.model, options.width, 1, 0)

  @tf.function(
    input_signature=[
      tf.TensorSpec([None, *x.shape[1:]], x.dtype),
      tf.TensorSpec([None, *y.shape[1:]], y.dtype),
    ]
  )
  def step(x, y):
    with tf.GradientTape() as tape:
      loss = loss_fn(y, model(x, training=True))
    variables = model.trainable_variables
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
      # An embedding's gradient is sparse.
      dense = tf.convert_to_tensor(gradient)
      variable.assign_sub(_LEARNING_RATE * dense)
    return loss

  batches = [
    tuple(
      tf.constant(a[i : i + options.batch_size])
      for a in (_arrays(options.model, options.width, options.examples, client))
    )
    for client in range(options.clients)
    for i in range(0, options.examples, options.batch_size)
  ]

  def run():
    losses = [step(x, y) for x, y in batches]
    return sum(float(loss) for loss in losses) / len(losses)

  return run


def _missing(module: str) -> str | None:
  if importlib.util.find_spec(module) is None:
    return f'{module} is not installed'
  return f'this script has no program for {module}; see DESIGN for its figures'


def _child(options) -> None:
  """Answers each line of input with one line about a round."""
  sys.path.insert(0, os.path.abspath(_ROOT))
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # Whatever else is printed is no answer.
  start = time.perf_counter()
  run = globals()[f'_make_{options.child}'](options)
  print(
    json.dumps({'build': time.perf_counter() - start}), file=answers, flush=True
  )
  for line in sys.stdin:
    if line.strip() != 'round':
      break
    start = time.perf_counter()
    loss = run()
    seconds = time.perf_counter() - start
    print(
      json.dumps({'seconds': seconds, 'loss': loss}), file=answers, flush=True
    )
  print(json.dumps({'peak': _peak_bytes()}), file=answers, flush=True)


def _peak_bytes() -> int:
  """Peak resident memory of this process and of the workers below it."""
  total = 0
  pending = [os.getpid()]
  while pending:
    pid = pending.pop()
    try:
      with open(f'/proc/{pid}/status', encoding='ascii') as file:
        total += next(
          int(line.split()[1]) * 1024
          for line in file
          if line.startswith('VmHWM:')
        )
      for thread in os.listdir(f'/proc/{pid}/task'):
        with open(
          f'/proc/{pid}/task/{thread}/children', encoding='ascii'
        ) as file:
          pending.extend(int(child) for child in file.read().split())
    except (FileNotFoundError, StopIteration):
      continue  # It ended meanwhile.
  return total


class _Contender:
  """A contender's process."""

  def __init__(self, name: str, options):
    self.name = name
    self.rounds = []
    arguments = [
      f'--{key}={value}'
      for key, value in (
        ('model', options.model),
        ('clients', options.clients),
        ('examples', options.examples),
        ('batch_size', options.batch_size),
        ('width', options.width),
        ('child', name),
      )
    ]
    if options.threads:
      arguments.append(f'--threads={options.threads}')
    if options.shuffle:
      arguments.append('--shuffle')
    self._process = subprocess.Popen(
      [sys.executable, os.path.abspath(__file__), *arguments],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL if not options.verbose else None,
      text=True,
      env={**os.environ, 'PYTHONPATH': os.path.abspath(_ROOT)},
    )
    self.build = self._answer()['build']

  def _answer(self):
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(
        f'{self.name} ended with exit code {self._process.wait()}; --verbose'
        ' shows why.'
      )
    return json.loads(line)

  def round(self) -> None:
    self._process.stdin.write('round\n')
    self._process.stdin.flush()
    self.rounds.append(self._answer())

  def finish(self) -> int:
    self._process.stdin.close()
    peak = self._answer()['peak']
    self._process.wait()
    return peak


def compare(options) -> list[dict]:
  """Runs all contenders on one model; returns a row for each."""
  rows, running = [], []
  for name in options.contenders:
    if name in ('fedjax', 'pfl'):
      rows.append({'contender': name, 'skipped': _missing(name)})
      continue
    running.append(_Contender(name, options))
  for _ in range(options.warm_up + options.rounds):
    for contender in running:
      contender.round()
  for contender in running:
    times = [r['seconds'] for r in contender.rounds[options.warm_up :]]
    rows.append(
      {
        'contender': contender.name,
        'median_seconds': statistics.median(times),
        'min_seconds': min(times),
        'first_round_seconds': contender.rounds[0]['seconds'],
        'build_seconds': contender.build,
        'first_loss': contender.rounds[0]['loss'],
        'last_loss': contender.rounds[-1]['loss'],
        'peak_bytes': contender.finish(),
      }
    )
  ours = next((r for r in rows if r['contender'] == 'in_process'), None)
  for row in rows:
    row.update(
      model=options.model,
      clients=options.clients,
      examples=options.examples,
      batch_size=options.batch_size,
      width=options.width,
    )
    if ours is not None and 'median_seconds' in row:
      row['ratio'] = row['median_seconds'] / ours['median_seconds']
  return rows


def _print_table(rows: list[dict]) -> None:
  print(
    f'{"model":9} {"clients":>7} {"contender":15} {"median s":>9}'
    f' {"min s":>9} {"ratio":>6} {"first s":>8} {"loss":>16} {"peak MiB":>9}'
  )
  for row in rows:
    head = f'{row["model"]:9} {row["clients"]:7} {row["contender"]:15}'
    if 'skipped' in row:
      print(f'{head} skipped: {row["skipped"]}')
      continue
    print(
      f'{head} {row["median_seconds"]:9.4f} {row["min_seconds"]:9.4f}'
      f' {row.get("ratio", float("nan")):6.2f}'
      f' {row["first_round_seconds"]:8.2f}'
      f' {row["first_loss"]:7.4f}->{row["last_loss"]:7.4f}'
      f' {row["peak_bytes"] >> 20:9}'
    )
  sys.stdout.flush()


def _parse(arguments):
  parser = argparse.ArgumentParser(
    description=__doc__.split('\n', maxsplit=1)[0]
  )
  parser.add_argument('--models', default='logistic,cnn')
  parser.add_argument('--contenders', default=','.join(_CONTENDERS))
  parser.add_argument('--rounds', type=int, default=10, help='after warm-up')
  parser.add_argument('--warm_up', type=int, default=3)
  parser.add_argument(
    '--clients', default='10', help='cohort sizes, separated by commas'
  )
  parser.add_argument('--examples', type=int, default=None, help='per client')
  parser.add_argument('--batch_size', type=int, default=None)
  parser.add_argument(
    '--width', type=int, default=784, help='inputs of the logistic model'
  )
  parser.add_argument(
    '--threads', type=int, default=None, help='clients at once'
  )
  parser.add_argument('--shuffle', action='store_true')
  parser.add_argument('--output', help='JSON file to write')
  parser.add_argument('--verbose', action='store_true')
  parser.add_argument('--model', help=argparse.SUPPRESS)
  parser.add_argument('--child', help=argparse.SUPPRESS)
  options = parser.parse_args(arguments)
  for flag, known in (('models', _MODELS), ('contenders', _CONTENDERS)):
    chosen = getattr(options, flag).split(',')
    unknown = sorted(set(chosen) - set(known))
    if unknown:
      parser.error(f'--{flag} are {", ".join(known)}; got {unknown[0]!r}.')
    setattr(options, flag, chosen)
  return options


def main(arguments=None) -> None:
  options = _parse(arguments)
  if options.child:
    options.clients = int(options.clients)
    _child(options)
    return
  sizes = [int(size) for size in options.clients.split(',')]
  examples, batch_size = options.examples, options.batch_size
  rows = []
  for model in options.models:
    options.model = model
    # Shakespeare's clients have few, long sequences.
    options.examples = examples or (20 if model == 'lstm' else 100)
    options.batch_size = batch_size or (4 if model == 'lstm' else 20)
    for options.clients in sizes:
      rows.extend(compare(options))
      _print_table(rows[-len(options.contenders) :])
  if options.output:
    report = collections.OrderedDict(
      cores=len(os.sched_getaffinity(0)), rows=rows
    )
    with open(options.output, 'w', encoding='utf-8') as file:
      json.dump(report, file, indent=2)


if __name__ == '__main__':
  main()
