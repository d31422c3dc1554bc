"""The page, its tables and pictures, of made-up entries."""

import csv
import dataclasses
import xml.etree.ElementTree

import numpy as np
import pandas as pd
import pytest

from tests.board import made_up
from tff_adaptive.lab.board import entries as entries_lib
from tff_adaptive.lab.board import leaderboard
from tff_adaptive.lab.board import page
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.recording import formatting

_SPEEDS = {'fedprox': 0.5, 'delta_sgd': 1.6, 'fedavg': 0.9, 'fedada2': 1.0}


@pytest.fixture(name='targets', scope='module')
def targets_fixture(tmp_path_factory):
  path = tmp_path_factory.mktemp('board') / 'references.json'
  references.make(made_up.baselines(), path)
  return references.read(path)


@pytest.fixture(name='entries', scope='module')
def entries_fixture():
  return [made_up.entry(m, s) for m, s in _SPEEDS.items()]


@pytest.fixture(name='board', scope='module')
def board_fixture(entries, targets):
  return leaderboard.build(entries, targets, made_up.WORKLOADS)


def of_column(table, name):
  return list(table[name])


def test_methods_are_in_the_order_of_their_scores(board):
  assert list(board.entries) == ['delta_sgd', 'fedada2', 'fedavg', 'fedprox']
  table = leaderboard.main_table(board)
  assert of_column(table, 'method') == ['Δ-SGD', 'FedAda²', 'FedAvg', 'FedProx']
  scores = board.scores()
  first = scores['delta_sgd']
  assert table.values[0][1:4].tolist() == [
    f'{v:.3f}' for v in (first.value, *first.interval)
  ]
  assert of_column(table, 'cost') == [
    f'{4 ** (1 - 2 * s.value):.2f}' for s in scores.values()
  ]
  # With four trials nobody selects the last one, which diverges.
  assert of_column(table, 'diverged') == ['0 %'] * 4
  over = scoring.difference(first, scores['fedavg'])
  assert [
    of_column(table, name)[0] for name in ('over FedAvg', 'from', 'to')
  ] == [f'{value:.3f}' for value in (over.value, *over.interval)]
  assert of_column(table, 'over FedAvg')[2] == ''
  assert of_column(table, 'behind the first')[-1] == 'yes'


def test_what_diverges_on_fresh_seeds_is_counted(entries, targets):
  broken = made_up.entry('fedadam', 1.0)
  runs = broken.records['hospitals']
  rng = np.random.default_rng(0)
  # The best of four is the second trial: one of its three seeds on one of
  # three workloads.
  runs['hospitals-1-seed2'] = made_up.record(rng, 1.0, diverged=True)
  board = leaderboard.build([*entries, broken], targets, made_up.WORKLOADS)
  assert board.diverged('fedadam') == pytest.approx(1 / 9)


def test_more_tuning_scores_more(board):
  for name in _SPEEDS:
    by_budget = [board.scores(budget=k)[name].value for k in (1, 2, 4)]
    assert by_budget == sorted(by_budget) and by_budget[0] < by_budget[2]


def test_cases_name_who_is_ahead_of_fedavg(board):
  rows = leaderboard.case_table(board).values
  by_case = {case: (names, ahead) for case, names, ahead in rows}
  names, ahead = by_case['all clients in each round']
  assert names == 'hospitals'
  assert ahead.startswith('Δ-SGD ') and 'FedProx' not in ahead
  scores = board.scores(workloads=('hospitals',))
  d = scoring.difference(scores['delta_sgd'], scores['fedavg'])
  assert ahead.startswith(f'Δ-SGD {16**d.value:.2f} (')
  assert by_case['communication is dear'][0] == 'all'
  assert 'sparse features' not in by_case  # Of no workload here.


def test_the_agreement_of_core_and_federated_ranks(tmp_path, board):
  assert leaderboard.agreement(board) is None
  both = ('hospitals', 'mnist')
  path = tmp_path / 'references.json'
  references.make(made_up.baselines(both), path)
  core = {'fedprox': 0.4, 'moon': 0.7, 'fedada2': 1.1, 'delta_sgd': 1.8}
  # The last two change places: a correlation of 1 - 6 * 2 / (4 * 15).
  federated = {**core, 'fedprox': 0.7, 'moon': 0.4}
  for second, expected in ((core, 1.0), (federated, 0.8)):
    entries = [
      made_up.entry(method, core[method], workloads=('hospitals',)).merged(
        made_up.entry(method, second[method], workloads=('mnist',))
      )
      for method in core
    ]
    found = leaderboard.build(entries, references.read(path), both)
    correlation, low, high = leaderboard.agreement(found)
    assert correlation == pytest.approx(expected)
    assert low <= correlation <= high
    assert 'board.html' in page.write(tmp_path, found)
    text = ' '.join((tmp_path / 'board.html').read_text('utf-8').split())
    assert (
      'Ranks of 4 methods on the ten and on federated workloads have a '
      f'correlation of {expected:.2f} (Spearman; 95 % interval {low:.2f} to '
      f'{high:.2f}).' in text
    )


def test_entries_without_all_workloads_are_left_out(entries, targets):
  partial = made_up.entry('moon', 1.0, workloads=('hospitals',))
  found = leaderboard.build(
    [*entries, partial], targets, [*made_up.WORKLOADS, 'digits']
  )
  assert 'moon' not in found.entries
  assert found.left_out == [
    'moon has no runs on quadratics, synthetic.',
    'There are no targets for digits yet.',
  ]


def test_methods_that_cannot_train_a_workload_are_apart(entries, targets):
  broken = made_up.entry('fedbn', 1.0)
  for workload in ('synthetic', 'hospitals'):
    broken.records[workload].update(
      dict.fromkeys(broken.records[workload], made_up.FAILED)
    )
  found = leaderboard.build([*entries, broken], targets, made_up.WORKLOADS)
  assert 'fedbn' not in found.entries and list(found.apart) == ['fedbn']
  assert leaderboard.apart_table(found).values.tolist() == [
    ['FedBN', '1 of 3', 'synthetic, hospitals']
  ]


def test_a_board_without_scores_says_what_cannot_be_trained(tmp_path, targets):
  broken = made_up.entry('fedbn', 1.0)
  broken.records['hospitals'].update(
    dict.fromkeys(broken.records['hospitals'], made_up.FAILED)
  )
  untuned = dataclasses.replace(
    made_up.entry('fedavg', 1.0),
    protocol=dataclasses.replace(made_up.SMALL, budgets=[1, 2]),
  )
  board = leaderboard.build([broken, untuned], targets, made_up.WORKLOADS)
  text = page.write(tmp_path, board)
  first, row, _, left_out, *_ = text.splitlines()
  assert first.split() == ['method', 'can', 'train', 'cannot', 'train']
  assert row.split() == ['FedBN', '2', 'of', '3', 'hospitals']
  assert left_out == 'fedavg has no results of 4 trials.'
  html = (tmp_path / 'board.html').read_text()
  assert 'cannot train' in html and '<svg' not in html


def test_everything_is_written(tmp_path, entries, targets):
  quick = made_up.entry('scaffold', 0.9, protocol=entries_lib.QUICK)
  found = leaderboard.build([*entries, quick], targets, made_up.WORKLOADS)
  text = page.write(tmp_path, found)
  assert 'SCAFFOLD (quick)' in text and 'board.html' in text
  html = (tmp_path / 'board.html').read_text()
  for heading in (
    'Scores', 'Which method for which case', 'Score against tuning budget',
    'By workload', 'By other costs', 'Targets', 'Search spaces and versions',
  ):  # fmt: skip
    assert f'<h2>{heading}</h2>' in html
  assert '<h2>Failures</h2>' not in html  # None has a reason.
  assert 'cannot train' not in html
  # Nothing is loaded from elsewhere.
  assert html.count('<svg') == 2
  assert '://' not in html.replace('http://www.w3.org', '')
  rows = list(csv.DictReader((tmp_path / 'board.csv').open()))
  assert rows[0]['method'] == 'Δ-SGD' and len(rows) == 5
  latex = (tmp_path / 'board.tex').read_text()
  assert r'$\Delta$-SGD' in latex and 'FedAda$^2$' in latex
  assert latex.count(r'\\') == 6
  for name in ('budgets', 'scores'):
    svg = xml.etree.ElementTree.parse(tmp_path / f'{name}.svg')
    words = ' '.join(svg.getroot().itertext())
    assert 'Δ-SGD' in words and 'SCAFFOLD (quick)' in words
    assert (tmp_path / f'{name}.pdf').read_bytes().startswith(b'%PDF')


def test_names_are_neither_commands_nor_formulas():
  table = pd.DataFrame(
    {'place': ['1', '2', '-3'], 'method': [r'\input{x}', '=1+1', '-1.5']}
  )
  latex = formatting.latex_table(table.map(formatting.latex))
  assert r'1 & \textbackslash{}input\{x\} \\' in latex
  assert formatting.csv_table(table).splitlines()[2:] == ["2,'=1+1", '-3,-1.5']
