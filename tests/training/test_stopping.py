"""Signals stop a run where it may be stopped."""

import signal
import threading

import pytest

from tff_adaptive.lab.training.loop import stopping


@pytest.fixture(autouse=True)
def with_a_terminal():
  """Tests of a program that was not itself started with nohup."""
  before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
  yield
  signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
  'number', [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
)
def test_raised_at_once_where_that_is_allowed(number):
  signals = stopping.Signals()
  reached = False
  raises = pytest.raises(stopping.Stopped)
  with signals.handled(), raises as stopped, signals.interruptible():
    signal.raise_signal(number)
    reached = True
  assert not reached and stopped.value.signal_number == number


def test_it_is_a_stop_also_where_compiled_code_replaces_the_exception():
  """TensorFlow does, in a constructor that looks up attributes."""
  signals = stopping.Signals()
  raises = pytest.raises(stopping.Stopped)
  with signals.handled(), raises as stopped, signals.interruptible():
    try:
      signal.raise_signal(signal.SIGTERM)
    except stopping.Stopped:
      raise TypeError('Was eager Context initialized?') from None
  assert stopped.value.signal_number == signal.SIGTERM


def test_waits_elsewhere():
  signals = stopping.Signals()
  with signals.handled():
    signal.raise_signal(signal.SIGTERM)
    written = True
    with pytest.raises(stopping.Stopped):
      signals.check()
    with pytest.raises(stopping.Stopped), signals.interruptible():
      written = False
  assert written


def test_handlers_are_given_back():
  numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
  before = [signal.getsignal(n) for n in numbers]
  with stopping.Signals().handled():
    for number, handler in zip(numbers, before, strict=True):
      assert signal.getsignal(number) != handler
  assert [signal.getsignal(n) for n in numbers] == before


def test_a_closed_terminal_does_not_stop_what_was_started_with_nohup():
  before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
  try:
    with stopping.Signals().handled() as signals, signals.interruptible():
      signal.raise_signal(signal.SIGHUP)
      assert signals.requested is None
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
  finally:
    signal.signal(signal.SIGHUP, before)


def test_outside_the_main_thread_nothing_is_handled():
  before = signal.getsignal(signal.SIGINT)
  handlers = []

  def work():
    with stopping.Signals().handled() as signals, signals.interruptible():
      handlers.append(signal.getsignal(signal.SIGINT))

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert handlers == [before]
