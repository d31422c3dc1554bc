"""Whether this project computes on a GPU what it does on a CPU, and how fast.

  python benchmarks/gpu.py [--output=runs/gpu] [--minutes=5]

Run `make gpu` first. For digits, the EMNIST CNN, the Shakespeare LSTM and tags
the script, in this order,

* times rounds of 16 clients as the program trains them by default, beside a
  target; with the most memory that TensorFlow took on the GPU;
* runs three rounds on the GPU and on the CPU from the same weights and
  batches, with float32 products, and compares the losses;
* times a plain TensorFlow loop over the same batches on the same GPU;
* times rounds without XLA, and of clients that train one at a time;
* where there are two GPUs, times rounds on both.

Each is a process of its own, most of which is its start. What fails or does not
fit into --minutes is left out, and named. The script prints a page like those
of results/gpu/, with the device, its driver and versions; with --output it
writes it there, and the figures as a CSV file, after each measurement anew.
--small takes the CPU for the device, fewer examples and one round: to see that
it runs.
"""

import argparse
import copy
import importlib.metadata
import os
import pathlib
import platform
import re
import statistics
import sys
import time

os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')
# One process must leave memory to the next.
os.environ.setdefault('TF_FORCE_GPU_ALLOW_GROWTH', 'true')
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import outputs
from benchmarks import side_by_side

_DRIVER = pathlib.Path('/proc/driver/nvidia/version')
# Examples of a client, the batch size, and the width where a model has one.
_MODELS = {
  'digits': (100, 10, None),
  'cnn': (100, 20, None),
  'lstm': (20, 4, None),
  'tag': (100, 20, 10_000),
}
# Seconds of a round that are aimed at on one GPU of a data center.
_TARGETS = {'digits': 0.01, 'cnn': 0.02, 'lstm': 0.1, 'tag': 0.015}
_DEFAULT = 'by default, s'
_CLIENTS = 16
_EQUAL_ROUNDS = 3
_WARM_UP = 2
# For starting, and for the page.
_SECONDS_TO_END = 10
# In a table, of what was left out.
_MISSING = '-'
# Relative difference of losses after the rounds: sums in another order.
_TOLERANCE = 1e-3
_NO_GPU = {'CUDA_VISIBLE_DEVICES': '-1'}


def check_gpus():
  """Lists the GPUs that TensorFlow sees; ends the program if there are none."""
  import tensorflow as tf

  gpus = tf.config.list_physical_devices('GPU')
  if gpus:
    return gpus
  if not _DRIVER.exists():
    sys.exit(
      'TensorFlow sees no GPU: this machine has no NVIDIA driver'
      f' ({_DRIVER} is missing). Install one of version 525.60.13 or newer, or'
      ' see that the script runs with --small, on the CPU.'
    )
  sys.exit(
    'TensorFlow sees no GPU, although there is an NVIDIA driver: the CUDA'
    ' libraries are missing or too old for it. Run `make gpu`, then'
    ' `TF_CPP_MIN_LOG_LEVEL=0 python -c "import tensorflow as tf;'
    " tf.config.list_physical_devices('GPU')\"`, which names what cannot be"
    ' loaded.'
  )


def facts(gpus):
  """Yields what the figures depend on, names and values."""
  import tensorflow as tf

  build = tf.sysconfig.get_build_info()
  for gpu in gpus:
    details = tf.config.experimental.get_device_details(gpu)
    capability = '.'.join(map(str, details.get('compute_capability', ())))
    yield (
      gpu.name.partition('device:')[2],
      (f'{details.get("device_name", "unknown")}, compute {capability}'),
    )
  if not gpus:
    yield 'device', 'CPU'
  else:
    told = _DRIVER.read_text() if _DRIVER.exists() else ''
    driver = re.search(r'Module\s+(?:for\s+\S+\s+)?([\d.]+)', told)
    yield 'driver', driver.group(1) if driver else 'unknown'
  yield 'cores', str(len(os.sched_getaffinity(0)))
  yield 'TensorFlow', f'{tf.__version__}, CUDA {build.get("cuda_version")}'
  for package in ('nvidia-cudnn-cu12', 'nvidia-cublas-cu12'):
    try:
      yield package, importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      yield package, 'not installed'
  yield 'Python', platform.python_version()


class Measurements:
  """What is measured, a process after another, while there is time.

  Attributes:
    rows: By model, its figures by column.
    left_out: A sentence for each that failed or did not fit.
  """

  def __init__(self, options, num_gpus, write):
    """Starts the clock.

    Args:
      options: As the parser returns them.
      num_gpus: GPUs that TensorFlow sees.
      write: Called with this object after each measurement.
    """
    self._options = options
    self._num_gpus = num_gpus
    self._write = write
    self._started = time.monotonic()
    self._longest = dict.fromkeys(options.models, 0.0)
    columns = ['target, s', _DEFAULT, 'met', 'MiB', 'loss', 'loss on the CPU']
    columns += ['equal', 'plain loop, s', 'without XLA, s', 'one at a time, s']
    columns += ['two GPUs, s'] * (num_gpus > 1)
    self.rows = {
      model: {'model': model, **dict.fromkeys(columns, _MISSING)}
      for model in options.models
    }
    self.left_out = []

  @property
  def seconds(self):
    """Seconds since the start."""
    return time.monotonic() - self._started

  def take_all(self):
    """Takes all, the most important first."""
    one = {'devices': 'GPU:0'} if self._num_gpus else {}
    for model, row in self.rows.items():
      row['target, s'] = f'{_TARGETS[model]:g}'
      self._time(model, _DEFAULT, 'MiB', **one)
      if row[_DEFAULT] != _MISSING:
        met = float(row[_DEFAULT]) <= _TARGETS[model]
        row['met'] = 'yes' if met else 'no'
    for model in self.rows:
      self._compare(model)
    for model in self.rows:
      self._time(model, 'plain loop, s', contender='plain')
    for model in self.rows:
      self._time(model, 'without XLA, s', jit_compile='false', **one)
    for model in self.rows:
      self._time(model, 'one at a time, s', vectorize_clients='false', **one)
    if self._num_gpus > 1:
      for model in self.rows:
        self._time(model, 'two GPUs, s', devices='GPU:0,GPU:1')

  def _compare(self, model):
    """Fills in the losses on both devices."""
    here, cpu = (
      self._run(
        model, f'losses of {model} on the {place}', environment=environment
      )
      for place, environment in (('GPU', {}), ('CPU', _NO_GPU))
    )
    row = self.rows[model]
    for column, run in (('loss', here), ('loss on the CPU', cpu)):
      if run:
        row[column] = f'{run["loss"]:.6f}'
    if here and cpu:
      apart = abs(here['loss'] - cpu['loss'])
      row['equal'] = 'yes' if apart <= _TOLERANCE * abs(cpu['loss']) else 'NO'
    self._write(self)

  def _time(self, model, column, memory=None, contender='in_process', **more):
    """Fills in the seconds of a round, and the memory if it has a column."""
    run = self._run(
      model,
      f'{column.partition(",")[0]} of {model}',
      contender,
      rounds=self._options.rounds,
      warm_up=0 if self._options.small else _WARM_UP,
      **more,
    )
    if run:
      self.rows[model][column] = f'{run["seconds"]:.4f}'
    if run and memory:
      self.rows[model][memory] = f'{run["mib"]:.0f}'
    self._write(self)

  def _run(
    self,
    model,
    what,
    contender='in_process',
    *,
    rounds=_EQUAL_ROUNDS,
    warm_up=0,
    **changed,
  ):
    """Runs a contender in a process of its own.

    Returns:
      What it measured; `None` if it failed, or there is no time for it.
    """
    limit = 60 * self._options.minutes - _SECONDS_TO_END
    begun = self.seconds
    # As long as the model's longest so far, or any model's if it had none.
    expected = self._longest[model] or max(self._longest.values())
    if begun + expected > limit:
      self._leave_out(
        f'{what}: it would take {expected:.0f} s of the'
        f' {max(0.0, limit - begun):.0f} s that are left for it.'
      )
      return None
    examples, batch_size, width = _MODELS[model]
    options = copy.copy(self._options)
    options.model, options.clients, options.examples = model, _CLIENTS, examples
    options.batch_size, options.width = batch_size, width
    if options.small:
      options.clients, options.examples = 2, batch_size
      options.width = width and 100
    options.rounds, options.warm_up = rounds, warm_up
    for key, value in changed.items():
      setattr(options, key, value)
    try:
      running = side_by_side.Contender(
        contender, 'tensorflow', options, seconds=limit - begun
      )
      running.rounds(warm_up + rounds)
      last = running.finish()
    except (RuntimeError, BrokenPipeError) as e:
      ended = self.seconds >= limit
      why = 'it had not ended when the time was up.' if ended else e
      self._leave_out(f'{what}: {why}')
      return None
    took = self.seconds - begun
    self._longest[model] = max(self._longest[model], took)
    print(f'{what}: {took:.1f} s', flush=True)
    return {
      'loss': last['loss'],
      'seconds': statistics.median(running.seconds[warm_up:]),
      'mib': (last['device_peak'] or last['peak']) / 2**20,
    }

  def _leave_out(self, sentence):
    self.left_out.append(sentence)
    print(f'Left out: {sentence}', flush=True)


def page(described, measured, options):
  """Yields the lines of a results page."""
  rows = list(measured.rows.values())
  yield '# Rounds on a GPU' if not options.small else '# A trial on the CPU'
  yield ''
  yield '`python benchmarks/gpu.py`; see its first lines for what is measured.'
  yield ''
  yield from (f'* {name}: {value}' for name, value in described)
  yield ''
  yield f'| {" | ".join(rows[0])} |'
  yield '|---' * len(rows[0]) + '|'
  yield from (f'| {" | ".join(row.values())} |' for row in rows)
  if measured.left_out:
    yield ''
    yield f'Left out, most to end within {options.minutes:g} minutes:'
    yield ''
    yield from (f'* {sentence}' for sentence in measured.left_out)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--models', default=','.join(_MODELS))
  parser.add_argument('--rounds', type=int, default=5, help='after warm-up')
  parser.add_argument(
    '--minutes', type=float, default=5.0, help='What does not fit is left out.'
  )
  parser.add_argument('--output', type=pathlib.Path, help='Folder to write to.')
  parser.add_argument('--small', action='store_true', help='A trial, on CPU.')
  parser.add_argument('--verbose', action='store_true')
  options = parser.parse_args()
  options.models = options.models.split(',')
  unknown = sorted(set(options.models) - set(_MODELS))
  if unknown:
    parser.error(f'--models are {", ".join(_MODELS)}; got {unknown[0]!r}.')
  if options.minutes <= 0:
    parser.error(f'--minutes must be positive, got {options.minutes:g}.')
  options.pythons = {'tensorflow': sys.executable}
  if options.small:
    options.rounds = 1
    # Children then see no GPU either.
    os.environ.update(_NO_GPU)
  gpus = [] if options.small else check_gpus()
  described = list(facts(gpus))
  if options.output:
    options.output.mkdir(parents=True, exist_ok=True)

  def write(measured):
    text = '\n'.join(
      page(
        [*described, ('seconds', f'{measured.seconds:.0f}')], measured, options
      )
    )
    if options.output:
      (options.output / 'README.md').write_text(f'{text}\n', encoding='utf-8')
      rows = list(measured.rows.values())
      outputs.write_rows(options.output / 'rounds.csv', rows)
    return text

  measured = Measurements(options, len(gpus), write)
  measured.take_all()
  print(f'\n{write(measured)}')
  if any(row['equal'] == 'NO' for row in measured.rows.values()):
    sys.exit('The GPU and the CPU do not agree: see the column "equal".')


if __name__ == '__main__':
  main()
