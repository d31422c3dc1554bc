"""Numbers, times and tables as text."""

import pytest

from tff_adaptive.lab.recording import formatting


@pytest.mark.parametrize(
  'seconds, words',
  [(0.4, '0 s'), (99, '99 s'), (200, '3 min 20 s'), (7500, '2 h 05 min')],
)
def test_duration(seconds, words):
  assert formatting.duration(seconds) == words


@pytest.mark.parametrize(
  'longest, unit',
  [
    (0.0, (1, 'seconds')),
    (299, (1, 'seconds')),
    (300, (60, 'minutes')),
    (2e4, (3600, 'hours')),
  ],
)
def test_unit_of_an_axis_of_times(longest, unit):
  assert formatting.time_unit(longest) == unit


@pytest.mark.parametrize(
  'value, digits',
  [
    (1.23456, '1.235'),
    (1e-7, '1e-07'),
    (9999.4, '9999'),
    (9999.6, '10,000'),
    (-16017.52, '-16,018'),
    (1e12, '1e+12'),
    (float('nan'), 'nan'),
    (float('inf'), 'inf'),
  ],
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


def test_latex_has_no_commands():
  text = '\\input{a}\n%_ 5 & $^2$ ~#'
  assert formatting.latex(text) == (
    r'\textbackslash{}input\{a\} \%\_ 5 \& \$\textasciicircum{}2\$ '
    r'\textasciitilde{}\#'
  )
  assert formatting.latex('Δ-SGD FedAda²') == r'$\Delta$-SGD FedAda$^2$'


def test_spreadsheets_get_no_formulas():
  for text in ('=1+1', '+cmd', '-a', '@SUM(A1)', '\t=A1', "'=A1", "''@a"):
    cell = formatting.spreadsheet_cell(text)
    assert cell == f"'{text}" and formatting.spreadsheet_text(cell) == text
  for text in ('-0.5', '+1e-3', 'a=1', '', 'é-', "'", "it's", "''a"):
    assert formatting.spreadsheet_cell(text) == text
    assert formatting.spreadsheet_text(text) == text
