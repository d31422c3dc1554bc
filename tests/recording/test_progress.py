"""The progress of a run, on terminals and elsewhere."""

import errno
import io
import os
import pty
import re

import pytest

from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import progress

_END = hooks.End(status=hooks.FINISHED, round_number=1)


class Terminal(io.StringIO):
  def isatty(self):
    return True


@pytest.fixture(name='clock')
def clock_fixture(monkeypatch):
  """Seconds, as the progress sees them."""
  now = [1000.0]
  monkeypatch.setattr(progress.time, 'monotonic', lambda: now[0])
  return now


def done(number, train=None, validation=None, **more):
  """A round with a loss, and an accuracy if there is a second number."""
  names = ('loss', 'sparse_categorical_accuracy')
  row = {'round': number, **more}
  for split, values in (('train', train), ('validation', validation)):
    row |= {f'{split}/{n}': v for n, v in zip(names, values or ())}
  return hooks.Round(row=row)


def test_line_on_a_terminal_is_redrawn_in_place(clock):
  stream = Terminal()
  shown = progress.Progress(3, stream=stream)
  shown.round(done(0, validation=(2.3, 0.1)))
  for number in (1, 2):
    clock[0] += 2
    shown.round(done(number, (1.5, 0.4)))
  assert '\n' not in stream.getvalue()
  lines = [line.rstrip() for line in stream.getvalue().split('\r')]
  assert lines[-1] == (
    'round 2/3  train loss 1.5 accuracy 0.4  validation loss 2.3 accuracy 0.1  '
    '2 s/round  2 s left'
  )
  shown.say('A sentence.')
  assert re.search(r'\r *\rA sentence\.\n\rround 2/3 ', stream.getvalue())
  shown.end(_END)
  assert stream.getvalue().endswith(' left\n')
  shown.end(_END)
  shown.say('Another.')
  assert stream.getvalue().endswith(' left\nAnother.\n')


def test_time_left_leaves_out_the_round_that_compiles(clock):
  stream = io.StringIO()
  shown = progress.Progress(10, stream=stream, seconds_between_lines=0)
  for number, seconds in ((5, 600), (6, 2), (7, 4), (10, 3)):
    clock[0] += seconds
    shown.round(done(number, (1.0,)))
  assert stream.getvalue().splitlines() == [
    'round 5/10  train loss 1',
    'round 6/10  train loss 1  2 s/round  8 s left',
    'round 7/10  train loss 1  3 s/round  9 s left',
    'round 10/10  train loss 1  1.8 s/round  0 s left',
  ]


def test_few_lines_where_there_is_no_terminal():
  stream = io.StringIO()
  shown = progress.Progress(100, stream=stream, seconds_between_lines=1000)
  for r in range(1, 101):
    shown.round(done(r, (1.0,), (2.0,) if r % 50 == 0 else ()))
  lines = stream.getvalue().splitlines()
  assert [line.split()[1] for line in lines] == ['50/100', '100/100']
  assert '\r' not in stream.getvalue()


def test_a_terminal_that_was_closed_ends_no_run():
  ours, theirs = pty.openpty()
  with open(theirs, 'w', encoding='utf-8') as stream:
    shown = progress.Progress(9, stream=stream)
    shown.round(done(1, (1.0,)))
    os.close(ours)
    with pytest.raises(OSError) as error:
      os.write(theirs, b'x')
    assert error.value.errno == errno.EIO
    shown.round(done(2, (1.0,)))
    for _ in range(2):
      shown.say('Stopped.')
    shown.end(_END)


def test_a_pipe_that_was_closed_is_for_the_program_to_see():
  reading, writing = os.pipe()
  os.close(reading)
  with open(writing, 'w', encoding='utf-8') as stream:
    with pytest.raises(BrokenPipeError):
      progress.Progress(9, stream=stream).say('A sentence.')
    with pytest.raises(BrokenPipeError):
      stream.flush()
    os.dup2(os.open(os.devnull, os.O_WRONLY), writing)


def test_names_that_are_no_text_are_said():
  stream = io.TextIOWrapper(io.BytesIO(), encoding='utf-8')
  progress.Progress(9, stream=stream).say('runs/\udcff')
  assert stream.buffer.getvalue() == b'runs/\\udcff\n'
