"""Numbers, times and tables as text."""

import pytest

from tff_adaptive.recording import formatting


@pytest.mark.parametrize(
  'seconds, words',
  [(0.4, '0 s'), (99, '99 s'), (200, '3 min 20 s'), (7500, '2 h 05 min')],
)
def test_duration(seconds, words):
  assert formatting.duration(seconds) == words


@pytest.mark.parametrize(
  'value, digits', [(1.23456, '1.235'), (1e-7, '1e-07'), (float('nan'), 'nan')]
)
def test_number(value, digits):
  assert formatting.number(value) == digits


def test_columns_are_aligned():
  rows = [['a', 'loss', ''], ['longer', '1', '22']]
  assert formatting.aligned(rows, left=1) == [
    'a       loss',
    'longer     1  22',
  ]


def test_lone_surrogates_can_be_shown():
  assert formatting.printable('é$\udcff\ud800') == 'é$\\udcff\\ud800'
