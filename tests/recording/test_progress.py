"""The progress line."""

import io
import re

import pytest

from tff_adaptive.recording import progress


class Terminal(io.StringIO):
  def isatty(self):
    return True


def test_line_on_a_terminal_is_redrawn_in_place():
  stream = Terminal()
  shown = progress.Progress(3, stream=stream)
  shown.round_done(0, {}, {'loss': 2.3, 'sparse_categorical_accuracy': 0.1})
  shown.round_done(1, {'loss': 1.5, 'sparse_categorical_accuracy': 0.4}, {})
  lines = stream.getvalue().split('\r')
  assert '\n' not in stream.getvalue()
  assert lines[2].startswith(
    'round 1/3  train loss 1.5 accuracy 0.4  validation loss 2.3 accuracy 0.1  '
  )
  assert re.search(r'\d s/round  \d+ s left$', lines[2].rstrip())
  shown.say('A sentence.')
  assert stream.getvalue().endswith('left\nA sentence.\n')


def test_shorter_line_covers_the_longer_one_before():
  stream = Terminal()
  shown = progress.Progress(2, stream=stream)
  shown.round_done(1, {'loss': 1.23456}, {})
  shown.round_done(2, {'loss': 1}, {})
  first, second = stream.getvalue().split('\r')[1:]
  assert len(second) >= len(first)


def test_few_lines_where_there_is_no_terminal():
  stream = io.StringIO()
  shown = progress.Progress(100, stream=stream, seconds_between_lines=1000)
  for r in range(1, 101):
    shown.round_done(r, {'loss': 1.0}, {'loss': 2.0} if r % 50 == 0 else {})
  lines = stream.getvalue().splitlines()
  assert [line.split()[1] for line in lines] == ['50/100', '100/100']


def test_plain_lines_show_an_evaluation_once():
  stream = io.StringIO()
  shown = progress.Progress(3, stream=stream, seconds_between_lines=0)
  for r in range(3):
    shown.round_done(r, {'loss': 1.0}, {} if r else {'loss': 2.0})
  lines = stream.getvalue().splitlines()
  assert ['validation' in line for line in lines] == [True, False, False]


@pytest.mark.parametrize(
  'seconds, words',
  [(0.4, '0 s'), (99, '99 s'), (200, '3 min 20 s'), (7500, '2 h 05 min')],
)
def test_duration(seconds, words):
  assert progress.duration(seconds) == words


def test_main_metric():
  assert progress.main_metric({'loss': 1, 'num_examples': 2}) is None
  assert progress.main_metric({'num_tokens': 1, 'accuracy': 2}) == 'accuracy'
