"""Ctrl-C leaves computations without an end; forks are told to start anew."""

import asyncio
import os
import random
import signal
import threading
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import tiers
from tests import waiting
from tff_adaptive import runtime

_ENDLESS = tf.data.Dataset.from_tensors(np.int32(1)).repeat()
_SEQUENCE = tff.SequenceType(np.int32)


@tff.tensorflow.computation(_SEQUENCE)
def _sum(dataset):
  return dataset.reduce(np.int32(0), lambda total, x: (total + x) % 7)


@tff.tensorflow.computation(_SEQUENCE)
@tf.function
def _iterate(dataset):
  total = tf.constant(0)
  for x in dataset:
    total = (total + x) % 7
  return total


@tff.federated_computation(tff.FederatedType(_SEQUENCE, tff.CLIENTS))
def _sums(datasets):
  return tff.federated_sum(tff.federated_map(_sum, datasets))


@tff.federated_computation(tff.FederatedType(_SEQUENCE, tff.SERVER))
def _sum_at_server(dataset):
  return tff.federated_map(_sum, dataset)


_ENDED = tf.data.Dataset.range(3).map(lambda x: tf.cast(x, tf.int32))


def _interrupt(compute, argument, after=1.0):
  """Computes what has no end, until Ctrl-C is pressed after some seconds.

  Pressed again every few seconds, as people do: TensorFlow may swallow the
  exception if it comes while a callback of its own runs.

  Returns:
    How often it was pressed.
  """
  # A shell that runs the tests in the background lets them ignore it.
  before = signal.signal(signal.SIGINT, signal.default_int_handler)
  left = threading.Event()
  presses = []

  def press():
    pause = after
    while not left.wait(pause):
      presses.append(pause)
      os.kill(os.getpid(), signal.SIGINT)
      pause = 5.0

  pressing = threading.Thread(target=press)
  try:
    with pytest.raises(KeyboardInterrupt):
      try:
        pressing.start()
        compute(argument)
      finally:
        left.set()
  finally:
    pressing.join()
    signal.signal(signal.SIGINT, before)
  return len(presses)


def _computing() -> bool:
  before = time.process_time()
  time.sleep(0.3)
  return time.process_time() - before > 0.2


@pytest.mark.parametrize(
  'clients, threads',
  tiers.exhaustive_but([(3, 2)], [(1, 1), (1, 2), (3, 1), (3, 2)]),
)
def test_ctrl_c_leaves_endless_clients(clients, threads):
  context = runtime.create_in_process_context(max_concurrent_clients=threads)
  with tff.framework.get_context_stack().install(context):
    _interrupt(_sums, [_ENDLESS] * clients)
    assert waiting.wait_until(lambda: not _computing(), 5)
    assert _sums([_ENDED, _ENDED]) == 6
  context.close()


@pytest.mark.parametrize(
  'compute, argument',
  [(_sum_at_server, _ENDLESS), (_sum, _ENDLESS), (_iterate, _ENDLESS)],
)
def test_ctrl_c_leaves_an_endless_server(compute, argument):
  context = runtime.create_in_process_context()
  with tff.framework.get_context_stack().install(context):
    _interrupt(compute, argument)
    assert waiting.wait_until(lambda: not _computing(), 5)
    assert compute(_ENDED) == 3
  context.close()


@pytest.mark.exhaustive
def test_ctrl_c_is_seen_at_the_moment_when_waiting_begins():
  context = runtime.create_in_process_context(max_concurrent_clients=1)
  rng = random.Random(0)
  with tff.framework.get_context_stack().install(context):
    _sums([_ENDED])
    for _ in range(300):
      after = rng.uniform(0, 0.002)
      assert _interrupt(_sums, [_ENDLESS], after) == 1
  context.close()


def test_cancelled_task_leaves_its_computation():
  context = runtime.create_in_process_context(asynchronous=True)

  async def run():
    return await asyncio.wait_for(context.invoke(_sums, [_ENDLESS]), 1.0)

  with pytest.raises(TimeoutError):
    asyncio.run(run())
  assert waiting.wait_until(lambda: not _computing(), 5)
  context.close()


@pytest.mark.parametrize('create', [None, runtime.create_in_process_context])
def test_forked_process_is_told(create):
  context = runtime.create_in_process_context()
  read, write = os.pipe()
  with tff.framework.get_context_stack().install(context):
    assert _sum(_ENDED) == 3
    pid = os.fork()
    if not pid:
      try:
        _sum(_ENDED) if create is None else create()
      except BaseException as e:  # pylint: disable=broad-exception-caught
        os.write(write, f'{type(e).__name__}: {e}'.encode())
      os._exit(0)
  os.close(write)
  ended = waiting.wait_until(lambda: os.waitpid(pid, os.WNOHANG)[0], 20)
  if not ended:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
  assert ended
  with open(read, 'rb') as told:
    assert told.read().startswith(b'RuntimeFailure: This process was forked')
  context.close()


def test_one_context_serves_many_threads():
  context = runtime.create_in_process_context()
  results = []

  def compute():
    with tff.framework.get_context_stack().install(context):
      results.append(_sums([_ENDED] * 2))

  threads = [threading.Thread(target=compute) for _ in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert results == [6] * 8
  context.close()
