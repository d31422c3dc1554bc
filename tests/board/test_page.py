"""The page, its tables and pictures, of made-up entries."""

import csv
import xml.etree.ElementTree

import numpy as np
import pytest

from tests.board import made_up
from tff_adaptive.lab.board import page
from tff_adaptive.lab.board import references
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import scoring
from tff_adaptive.lab.board import standings as standings_lib

_SPEEDS = {'fedprox': 0.5, 'delta_sgd': 1.6, 'fedada2': 1.0}


@pytest.fixture(name='targets', scope='module')
def targets_fixture(tmp_path_factory):
  path = tmp_path_factory.mktemp('board') / 'references.json'
  references.make(made_up.baselines(), path)
  return references.read(path)


@pytest.fixture(name='entries', scope='module')
def entries_fixture():
  return [made_up.entry(m, s) for m, s in _SPEEDS.items()]


@pytest.fixture(name='standings', scope='module')
def standings_fixture(entries, targets):
  return standings_lib.of_entries(entries, targets, made_up.WORKLOADS)


def test_places_follow_the_scores(standings):
  assert list(standings.places) == ['delta_sgd', 'fedada2', 'fedprox']
  rows = standings_lib.main_table(standings).rows
  assert [row[1] for row in rows] == ['Δ-SGD', 'FedAda²', 'FedProx']
  scores = standings.by_budget[4]['delta_sgd']
  assert rows[0][2:5] == [f'{v:.3f}' for v in (scores.total, *scores.interval)]
  # The last of four trials diverges, on the tuning seed and on three others.
  assert rows[0][7] == f'{3 * 4} of {3 * (4 + 4 * 3 + 3)}'


def test_more_tuning_scores_more(standings):
  for name in _SPEEDS:
    by_budget = [standings.by_budget[k][name].total for k in (1, 2, 4)]
    assert by_budget == sorted(by_budget) and by_budget[0] < by_budget[2]


def test_ratios_factors_and_profiles_agree(standings, entries, targets):
  by_hand = []
  for workload in made_up.WORKLOADS:
    reference = targets.by_measure['cross_device'][workload]
    runs = entries[1].repeats(workload, 1)
    curves = [run.curve('cross_device') for run in runs]
    by_hand += [
      scoring.expected_cost(curves, t) / c
      for t, c in zip(reference.targets, reference.costs)
    ]
  ((share, ratios),) = standings.ratios('delta_sgd', 'quadratics')
  assert share == 1.0
  np.testing.assert_allclose(ratios, by_hand[: len(ratios)])
  hit = [r for r in by_hand if np.isfinite(r)]
  speed = standings.speed('delta_sgd', made_up.WORKLOADS)
  assert speed == pytest.approx(np.exp(-np.mean(np.log(hit)))) and speed > 1
  profile = standings.profile('delta_sgd', np.array([0.5, 1.0, 4.0]))
  np.testing.assert_allclose(
    profile,
    [np.mean([r <= tau for r in by_hand]) for tau in (0.5, 1.0, 4.0)],
  )
  missed, total = standings.missed_targets('delta_sgd')
  assert missed == sum(np.isinf(by_hand)) and total == len(by_hand)


def test_neighbours_are_the_nearest(standings):
  (first, near), (_, far) = standings.neighbours('fedprox')
  assert first == 'fedada2' and near < far
  workloads = standings.by_budget[4]['fedprox'].by_workload
  other = standings.by_budget[4]['fedada2'].by_workload
  squares = [(workloads[w] - other[w]) ** 2 for w in workloads]
  assert near == pytest.approx(np.sqrt(np.mean(squares)))


def test_the_agreement_of_core_and_federated_ranks(tmp_path, standings):
  assert standings_lib.agreement(standings) is None
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
    found = standings_lib.of_entries(entries, references.read(path), both)
    agreement = standings_lib.agreement(found)
    assert agreement.methods == 4
    assert agreement.correlation == pytest.approx(expected)
    low, high = agreement.interval
    assert low <= agreement.correlation <= high
    told = page.write(tmp_path, entries, references.read(path), both)
    assert 'board.html' in told
    text = ' '.join((tmp_path / 'board.html').read_text('utf-8').split())
    assert (
      'Ranks of 4 methods on core and on federated workloads have a '
      f'correlation of {expected:.2f} (Spearman; 95 % interval {low:.2f} to '
      f'{high:.2f}).' in text
    )


def test_entries_without_all_workloads_are_left_out(entries, targets):
  partial = made_up.entry('moon', 1.0, workloads=('hospitals',))
  found = standings_lib.of_entries(
    [*entries, partial], targets, [*made_up.WORKLOADS, 'digits']
  )
  assert 'moon' not in found.places
  assert found.left_out == [
    'moon has no runs on quadratics, synthetic.',
    'There are no targets for digits yet.',
  ]


def test_a_method_that_fails_everywhere_is_last(entries, targets):
  broken = made_up.entry('fedbn', 1.0)
  for records in broken.records.values():
    for name in records:
      records[name] = made_up.curves.Record(
        'failed', None, [], {m: [] for m in made_up.curves.MEASURES}
      )
  found = standings_lib.of_entries(
    [*entries, broken], targets, made_up.WORKLOADS
  )
  assert list(found.places)[-1] == 'fedbn'
  assert found.by_budget[4]['fedbn'].total == 0
  assert standings_lib.main_table(found).rows[-1][5] == ''


def test_runs_that_cannot_begin_do_not_diverge(entries, targets):
  broken = made_up.entry('fedbn', 1.0)
  records = broken.records['quadratics']
  for name in records:
    records[name] = made_up.curves.Record(
      'failed', None, [], {m: [] for m in made_up.curves.MEASURES}
    )
  found = standings_lib.of_entries(
    [*entries, broken], targets, made_up.WORKLOADS
  )
  others = [
    record.status
    for workload in ('synthetic', 'hospitals')
    for record in broken.records[workload].values()
  ]
  assert found.diverged('fedbn') == (others.count('diverged'), len(others))
  assert others.count('diverged') > 0


def test_everything_is_written(tmp_path, entries, targets):
  quick = made_up.entry('fedavg', 0.9, protocol=runner.QUICK)
  text = page.write(tmp_path, [*entries, quick], targets, made_up.WORKLOADS)
  assert 'FedAvg (quick)' in text and 'board.html' in text
  html = (tmp_path / 'board.html').read_text()
  for heading in (
    'Places', 'Score against tuning budget', 'Profiles', 'By workload',
    'Untuned', 'Nearest neighbours', 'Targets', 'Search spaces',
  ):  # fmt: skip
    assert f'<h2>{heading}</h2>' in html
  assert '<h2>Failures</h2>' not in html  # None has a reason.
  # Nothing is loaded from elsewhere.
  assert html.count('<svg') == 3
  assert '://' not in html.replace('http://www.w3.org', '')
  rows = list(csv.DictReader((tmp_path / 'board.csv').open()))
  assert rows[0]['method'] == 'Δ-SGD' and len(rows) == 4
  latex = (tmp_path / 'board.tex').read_text()
  assert r'$\Delta$-SGD' in latex and 'FedAda$^2$' in latex
  assert latex.count(r'\\') == 5
  for name in ('budgets', 'places', 'profiles'):
    svg = xml.etree.ElementTree.parse(tmp_path / f'{name}.svg')
    words = ' '.join(svg.getroot().itertext())
    assert 'Δ-SGD' in words and 'FedAvg (quick)' in words
    assert (tmp_path / f'{name}.pdf').read_bytes().startswith(b'%PDF')


def test_names_are_neither_commands_nor_formulas():
  table = standings_lib.Table(
    ('place', 'method'), [('1', r'\input{x}'), ('2', '=1+1'), ('-3', '-1.5')]
  )
  assert r'1 & \textbackslash{}input\{x\} \\' in page.as_latex(table)
  assert page.as_csv(table).splitlines()[2:] == ["2,'=1+1", '-3,-1.5']
