"""The workload of all contenders of the benchmarks, and its protocol.

Needs NumPy alone: each contender runs in an interpreter with packages of its
own. Data and start weights are made here, so that they are the same for all.
"""

import argparse
import itertools
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

CLIENT_RATE = 0.05
SERVER_RATE = 1e-3
SERVER_BETA_2 = 0.99
# Small, because TFF and Keras scale it in the first rounds, others do not.
SERVER_EPSILON = 1e-7
CLASSES = 62
DIGITS = 10
TAGS = 500
# Words of a sentence, about, as in Stack Overflow.
_WORDS = 20
CHARACTERS = 90
# Widths of the EMNIST autoencoder.
AUTOENCODER = (784, 1000, 500, 250, 30, 250, 500, 1000, 784)
STEPS = 80
_UNITS = 256
_EMBEDDING = 8


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
  """Parses the options that side_by_side.py passes to a contender."""
  parser = argparse.ArgumentParser()
  parser.add_argument('--contender')
  parser.add_argument('--model')
  for name in ('clients', 'examples', 'batch_size', 'width', 'threads'):
    parser.add_argument(f'--{name}', type=int)
  parser.add_argument('--rounds', type=int, help='of all that are to come')
  parser.add_argument('--devices', help='of the clients, with commas between')
  for name in ('vectorize_clients', 'jit_compile'):
    parser.add_argument(f'--{name}', default='auto')
  parser.add_argument('--shuffle', action='store_true')
  parser.add_argument(
    '--population',
    type=int,
    help='clients that cohorts are drawn of; the same cohort unless given',
  )
  return parser.parse_args(arguments)


def population(options) -> range:
  """Lists all clients there are."""
  return range(options.population or options.clients)


def cohort(options, round_number: int) -> list[int]:
  """Draws a round's clients, or returns all where no population is given.

  Args:
    options: As `parse` returns them.
    round_number: 1, 2, ...
  """
  if not options.population:
    return list(range(options.clients))
  # As TFF's sampler with random_seed=1 draws, so that all have the same cohort.
  start = np.random.RandomState(seed=1).randint(1, 2**31 - 2)
  seed = pow(16807, round_number, 2**31 - 1) * start % (2**31 - 1)
  draw = np.random.RandomState(seed=seed)
  return draw.choice(
    options.population, options.clients, replace=False
  ).tolist()


def arrays(options, client: int) -> tuple[np.ndarray, np.ndarray]:
  """Makes a client's examples and labels."""
  rng = np.random.default_rng([7, client])
  count = options.examples
  if options.model == 'lstm':
    text = rng.integers(0, CHARACTERS, (count, STEPS + 1))
    return text[:, :-1], text[:, 1:]
  if options.model == 'tag':
    words = np.zeros((count, options.width), np.float32)
    rows = np.arange(count)[:, np.newaxis]
    words[rows, rng.integers(0, options.width, (count, _WORDS))] = 1 / _WORDS
    return words, (rng.random((count, TAGS)) < 3 / TAGS).astype(np.float32)
  if options.model == 'digits':
    digits = rng.random((count, 8, 8, 1)).astype(np.float32)
    return digits, rng.integers(0, DIGITS, count)
  if options.model == 'cifar':
    images = rng.normal(size=(count, 32, 32, 3)).astype(np.float32)
    return images, rng.integers(0, DIGITS, count)
  if options.model == 'autoencoder':
    pixels = rng.random((count, 784)).astype(np.float32)
    return pixels, pixels
  shape = (options.width,) if options.model == 'logistic' else (28, 28, 1)
  make = rng.normal if options.model == 'logistic' else rng.random
  return make(size=(count, *shape)).astype(np.float32), rng.integers(
    0, CLASSES, count
  )


def start_weights(options) -> list[np.ndarray]:
  """Draws weights in the order and layout of Keras."""
  shapes: dict[str, list[tuple[int, ...]]] = {
    'logistic': [(options.width, CLASSES), (CLASSES,)],
    'tag': [(options.width, TAGS), (TAGS,)],
    'autoencoder': [
      shape
      for before, after in itertools.pairwise(AUTOENCODER)
      for shape in ((before, after), (after,))
    ],
    'digits': [
      (3, 3, 1, 16),
      (16,),
      (3, 3, 16, 32),
      (32,),
      (2 * 2 * 32, 64),
      (64,),
      (64, DIGITS),
      (DIGITS,),
    ],
    'cnn': [
      (3, 3, 1, 32),
      (32,),
      (3, 3, 32, 64),
      (64,),
      (12 * 12 * 64, 128),
      (128,),
      (128, CLASSES),
      (CLASSES,),
    ],
    'cifar': [
      (3, 3, 3, 32),
      (32,),
      (3, 3, 32, 64),
      (64,),
      (14 * 14 * 64, 128),
      (128,),
      (128, DIGITS),
      (DIGITS,),
    ],
    'lstm': [
      (CHARACTERS, _EMBEDDING),
      (_EMBEDDING, 4 * _UNITS),
      (_UNITS, 4 * _UNITS),
      (4 * _UNITS,),
      (_UNITS, 4 * _UNITS),
      (_UNITS, 4 * _UNITS),
      (4 * _UNITS,),
      (_UNITS, CHARACTERS),
      (CHARACTERS,),
    ],
  }
  rng = np.random.default_rng(11)
  weights = []
  for shape in shapes[options.model]:
    if len(shape) == 1:
      weights.append(np.zeros(shape, np.float32))
      continue
    area = int(np.prod(shape[:-2]))
    limit = np.sqrt(6 / (area * (shape[-2] + shape[-1])))
    weights.append(rng.uniform(-limit, limit, shape).astype(np.float32))
  return weights


def serve(
  options,
  make: Callable[[Any], tuple[Callable[[], Any], Callable[[], float]]],
  device_peak: Callable[[], int] = lambda: 0,
) -> None:
  """Answers each line of input with a line of JSON.

  Args:
    options: As `parse` returns them.
    make: Builds the contender; returns a function that runs a round to its
      end, and one that returns the mean loss of the server's model over all
      clients' examples.
    device_peak: Measures peak memory of a device that is not the host.
  """
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)  # Whatever else is printed is no answer.

  def answer(**values):
    print(json.dumps(values), file=answers, flush=True)

  start = time.perf_counter()
  run, loss = make(options)
  answer(build=time.perf_counter() - start, loss=float(loss()))
  for line in sys.stdin:
    if line.strip() != 'round':
      break
    start = time.perf_counter()
    run()
    answer(seconds=time.perf_counter() - start)
  answer(peak=peak_bytes(), device_peak=device_peak(), loss=float(loss()))


def peak_bytes() -> int:
  """Measures peak resident memory of this process and its workers."""
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
