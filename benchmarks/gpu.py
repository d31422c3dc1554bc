"""Whether this project computes on a GPU what it does on a CPU, and how fast.

  python benchmarks/gpu.py [--output=results/gpu]

Run `make gpu` first. The script takes five to ten minutes, most of them for
starting its processes. For digits, the EMNIST CNN, the
Shakespeare LSTM and tags it

* runs three rounds on the GPU and on the CPU from the same weights and
  batches, with float32 products, and compares the losses;
* times rounds of 1, 2, 4 and 8 clients at once, and a plain TensorFlow loop
  over the same batches on the same GPU;
* measures the most memory that TensorFlow took on the GPU;
* where there are two GPUs, times 8 clients at once on both.

It prints a page for results/gpu/, with the device, its driver and versions;
with --output it writes it there, and the figures as a CSV file. --small takes
the CPU for the device, fewer examples and one round: to see that it runs.
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
_AT_ONCE = (1, 2, 4, 8)
_CLIENTS = 16
_EQUAL_ROUNDS = 3
# Relative difference of losses after the rounds: sums in another order.
_TOLERANCE = 1e-3
# TensorFlow computes float32 products in 19 bits on newer GPUs; not here.
_FULL_PRODUCTS = {'NVIDIA_TF32_OVERRIDE': '0'}
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
    driver = re.search(r'Module\s+([\d.]+)', _DRIVER.read_text())
    yield 'driver', driver.group(1) if driver else 'unknown'
  yield 'cores', str(len(os.sched_getaffinity(0)))
  yield 'TensorFlow', f'{tf.__version__}, CUDA {build.get("cuda_version")}'
  for package in ('nvidia-cudnn-cu12', 'nvidia-cublas-cu12'):
    try:
      yield package, importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
      yield package, 'not installed'
  yield 'Python', platform.python_version()


def _run(options, contender, rounds, *, warm_up=0, **changed):
  """Runs a contender in a process of its own; returns what it measured."""
  options = copy.copy(options)
  options.rounds, options.warm_up = rounds, warm_up
  for key, value in changed.items():
    setattr(options, key, value)
  running = side_by_side.Contender(contender, 'tensorflow', options)
  running.rounds(warm_up + rounds)
  last = running.finish()
  return {
    'loss': last['loss'],
    'seconds': statistics.median(running.seconds[warm_up:]),
    'mib': (last['device_peak'] or last['peak']) / 2**20,
  }


def measure(options, model, num_gpus):
  """Returns a model's figures by column."""
  examples, options.batch_size, options.width = _MODELS[model]
  options.model, options.clients = model, _CLIENTS
  options.examples = examples
  at_once, rounds, warm_up = _AT_ONCE, options.rounds, 2
  if options.small:
    options.clients, options.examples = 2, options.batch_size
    options.width = options.width and 100
    at_once, warm_up = (1, 2), 0
  both = [
    _run(options, 'in_process', _EQUAL_ROUNDS, environment=environment)
    for environment in (_FULL_PRODUCTS, _NO_GPU)
  ]
  here, cpu = (run['loss'] for run in both)
  row = {
    'model': model,
    'loss': f'{here:.6f}',
    'loss on the CPU': f'{cpu:.6f}',
    'equal': 'yes' if abs(here - cpu) <= _TOLERANCE * abs(cpu) else 'NO',
  }
  plain = _run(options, 'plain', rounds, warm_up=warm_up)
  row['plain loop, s'] = f'{plain["seconds"]:.4f}'
  for count in at_once:
    run = _run(options, 'in_process', rounds, warm_up=warm_up, threads=count)
    row[f'{count} at once, s'] = f'{run["seconds"]:.4f}'
  row['MiB'] = f'{run["mib"]:.0f}'
  if num_gpus > 1:
    run = _run(
      options,
      'in_process',
      rounds,
      warm_up=warm_up,
      threads=at_once[-1],
      devices='GPU:0,GPU:1',
    )
    row['two GPUs, s'] = f'{run["seconds"]:.4f}'
  return row


def page(described, rows, options):
  """Yields the lines of a results page."""
  yield '# Rounds on a GPU' if not options.small else '# A trial on the CPU'
  yield ''
  yield '`python benchmarks/gpu.py`; see its first lines for what is measured.'
  yield ''
  yield from (f'* {name}: {value}' for name, value in described)
  yield ''
  yield f'| {" | ".join(rows[0])} |'
  yield '|---' * len(rows[0]) + '|'
  yield from (f'| {" | ".join(row.values())} |' for row in rows)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--models', default=','.join(_MODELS))
  parser.add_argument('--rounds', type=int, default=5, help='after warm-up')
  parser.add_argument('--output', type=pathlib.Path, help='Folder to write to.')
  parser.add_argument('--small', action='store_true', help='A trial, on CPU.')
  parser.add_argument('--verbose', action='store_true')
  options = parser.parse_args()
  models = options.models.split(',')
  unknown = sorted(set(models) - set(_MODELS))
  if unknown:
    parser.error(f'--models are {", ".join(_MODELS)}; got {unknown[0]!r}.')
  options.pythons = {'tensorflow': sys.executable}
  if options.small:
    options.rounds = 1
    # Children then see no GPU either.
    os.environ.update(_NO_GPU)
  gpus = [] if options.small else check_gpus()
  rows = []
  for model in models:
    rows.append(measure(options, model, len(gpus)))
    print(', '.join(f'{k} {v}' for k, v in rows[-1].items()), flush=True)
  text = '\n'.join(page(list(facts(gpus)), rows, options))
  print(f'\n{text}')
  if options.output:
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / 'README.md').write_text(f'{text}\n', encoding='utf-8')
    outputs.write_rows(options.output / 'rounds.csv', rows)
  if any(row['equal'] != 'yes' for row in rows):
    sys.exit('The GPU and the CPU do not agree: see the column "equal".')


if __name__ == '__main__':
  main()
