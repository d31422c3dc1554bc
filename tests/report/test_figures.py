"""What figures and tables show of seeds, for papers and for the page."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from tests import made_up
from tests import tiers
from tests.recording import specifications
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive.lab.recording import formatting
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import figures
from tff_adaptive.lab.report import results
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections

_METRIC = f'validation/{made_up.METRIC}'
_JUDGE = sections.Criterion(scores.RULES['train_loss'], made_up.METRIC)


def configuration(root, method, accuracies, losses=None, **settings):
  """A run a seed; accuracies and losses as they are at the end of each."""
  found = []
  for seed, accuracy in enumerate(accuracies):
    loss = losses[seed] if losses else 1.0
    rows = [
      {
        'round': n,
        'train/loss': loss * n / 4,
        f'train/{made_up.METRIC}': accuracy * n / 4,
        _METRIC: accuracy * n / 4,
        'bytes_down': 1e5,
        'bytes_up': 1e5,
        'seconds': 30.0 + seed,
        'clients/count': 2,
        'clients/rejected': n % 2,
      }
      for n in range(1, 5)
    ]
    of_run = dict(
      task='digits',
      algorithm=method,
      total_rounds=4,
      clients_per_round=2,
      server_adaptivity=0.1,
      seed=seed,
      **settings,
    )
    found.append(runs.Run(root / f'{method}{seed}', of_run, rows))
  return sections.Configuration(method, found[0].settings, found)


def against(best, **options):
  return [
    *figures.curves(best, _JUDGE, **options),
    *figures.against_time(best, _JUDGE, **options),
    *figures.against_bytes(best, _JUDGE, **options),
  ]


def drawn(chart):
  """What is drawn of a chart, the same in files and on the page."""
  file, page = (
    specifications.points(charts.specification(chart, **options))
    for options in ({}, {'width': 'container', 'interactive': True})
  )
  assert file == page
  return page


@pytest.mark.parametrize('seeds', tiers.exhaustive_but([2, 4], [1, 2, 4, 7]))
@pytest.mark.parametrize('apart', [False, True])
def test_means_with_bands_and_single_runs_on_request(tmp_path, seeds, apart):
  accuracies = np.linspace(0.4, 0.6, seeds)
  best = {'fedavg': configuration(tmp_path, 'fedavg', accuracies)}
  for chart in against(best, apart=apart):
    rows = drawn(chart)
    banded = seeds > 1 and not apart
    assert all(('low' in row) == banded for row in rows)
    assert len({row['run'] for row in rows}) == (seeds if apart else 1)
  rows = drawn(figures.curves(best, _JUDGE, apart=apart)[1])
  expected = 100 * (accuracies if apart else accuracies.mean(keepdims=True))
  last = [row['y'] for row in rows if row['x'] == 4]
  np.testing.assert_allclose(last, expected, rtol=1e-5)
  ends = [(row['low'], row['high']) for row in rows if 'low' in row][-1:]
  if seeds == 2 and ends:
    assert ends == [(40, 60)]  # An interval of two says nothing: their range.
  elif ends:
    # Student's t of three and of six degrees of freedom, from tables.
    half = {4: 3.182, 7: 2.447}[seeds] * accuracies.std(ddof=1) / seeds**0.5
    middle = accuracies.mean()
    np.testing.assert_allclose(
      ends[0], [100 * (middle - half), 100 * (middle + half)], rtol=1e-3
    )


def test_charts_are_printed_as_papers_have_them(tmp_path):
  names = ['fedavg', 'fedadam', 'fedadam + delta_sgd', 'own']
  best = {n: configuration(tmp_path, n, [0.4, 0.6]) for n in names}
  loss, chart = figures.curves(best, _JUDGE)
  svg = specifications.svg(charts.specification(chart))
  delta_sgd = '\N{GREEK CAPITAL LETTER DELTA}-SGD'
  printed = ['FedAvg', 'FedAdam', f'FedAdam + {delta_sgd}', 'own']
  assert {'Round', 'Validation accuracy (%)', *printed} <= set(svg.texts())
  assert (
    'Training loss' in specifications.svg(charts.specification(loss)).texts()
  )
  assert drawn(loss)[3]['y'] == 1.0


def test_every_method_has_a_printed_name_and_nine_a_colour_of_their_own():
  names = [*algorithms.names(), 'centralized']
  printed = formatting.methods(names)
  assert len(set(printed.values())) == len(names)
  assert all(printed[name] != name for name in names)
  for side in ('client', 'server'):
    for name in optimizers.names(side):
      assert formatting.method(f'fedavg + {name}') != f'FedAvg + {name}'
  for start in range(0, len(names) - 9, 4):
    colours = styles.colours(names[start : start + 9])
    assert len(set(colours.values()) - {styles.GREY}) == 9
  assert styles.GREY in styles.colours(names).values()


def test_time_is_the_mean_of_the_seeds(tmp_path):
  """Every seed takes its own time, so that rounds are what they share.

  The first round, which is traced, does not count.
  """
  best = {'fedavg': configuration(tmp_path, 'fedavg', [0.5] * 5)}
  (chart,) = figures.against_time(best, _JUDGE)
  assert chart.x_label == 'seconds (real time)'
  np.testing.assert_allclose(chart.data['x'], 32.0 * np.arange(1, 4))


def test_virtual_time_where_there_is_one(tmp_path):
  made = configuration(tmp_path, 'fedavg', [0.5])
  for row in made.runs[0].rows:
    row['virtual/seconds'] = 3600.0 * 5 * row['round']
  (chart,) = figures.against_time({'fedavg': made}, _JUDGE)
  assert chart.x_label == 'hours (virtual time)'
  np.testing.assert_allclose(chart.data['x'], [5, 10, 15, 20])


def test_bands_stay_within_what_a_metric_can_be(tmp_path):
  accuracies, losses = [0.2, 1.0, 1.0, 1.0, 1.0], [0.01, 0.01, 0.01, 0.01, 3]
  best = {'fedavg': configuration(tmp_path, 'fedavg', accuracies, losses)}
  training, *quality = against(best)
  for chart in quality:
    rows = drawn(chart)
    assert max(row['high'] for row in rows) == 100.0
    assert min(row['low'] for row in rows) >= 0
  assert min(row['low'] for row in drawn(training)) == 0.0


@pytest.mark.parametrize(
  'accuracies, ended', [([0.2, 1.0, 1.0, 1.0, 1.0], True), ([0.2, 1.0], False)]
)
def test_bars_of_the_adaptivity(tmp_path, accuracies, ended):
  made = [configuration(tmp_path, 'fedadam', accuracies) for _ in range(2)]
  for one, tau in zip(made, (0.1, 0.01)):
    one.settings['server_adaptivity'] = tau
  found = {f.name: f for f in figures.tuning({'fedadam': made}, _JUDGE)}
  assert set(found) == {'adaptivity', 'sorted_sweeps'}
  assert 'errorbar' in specifications.marks(
    charts.specification(found['adaptivity'])
  )
  for row in drawn(found['adaptivity']):
    assert (row['high'] == 100.0 and row['low'] < row['y']) == ended
    assert (row['high'] is None) != ended


def test_tuning_shows_the_best_of_what_else_was_varied(tmp_path):
  def tried(client, server, tau, accuracy):
    made = configuration(
      tmp_path,
      'fedadam',
      [accuracy],
      [1 - accuracy],
      client_learning_rate=client,
      server_learning_rate=server,
    )
    made.settings['server_adaptivity'] = tau
    return made

  every = [
    tried(0.1, 1.0, 0.1, 0.5),
    tried(0.1, 1.0, 0.01, 0.6),
    tried(0.1, 0.1, 0.1, 0.3),
    tried(1.0, 0.1, 0.1, 0.4),
  ]
  found = {f.name: f for f in figures.tuning({'fedadam': every}, _JUDGE)}
  heat_map = found['heat_map_fedadam'].data
  assert list(heat_map.columns) == [0.1, 1.0] and list(heat_map.index) == [
    0.1,
    1.0,
  ]
  np.testing.assert_allclose(heat_map, [[0.3, 0.4], [0.6, math.nan]])
  best = found['best_server_rates'].data
  assert best[['x', 'y']].values.tolist() == [[0.1, 1.0], [1.0, 0.1]]
  assert found['adaptivity'].data['y'].tolist() == [0.6, 0.5]
  ordered = found['sorted_sweeps'].data
  assert ordered['y'].tolist() == [0.6, 0.5, 0.4, 0.3]
  assert ordered['x'].tolist() == [0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize('count', tiers.exhaustive_but([3], [1, 3, 12]))
def test_legends_cover_nothing_and_can_be_read(tmp_path, count):
  names = [f'method_with_a_name_{n}' for n in range(count)]
  best = {n: configuration(tmp_path, n, [0.5, 0.6]) for n in names}
  for chart in against(best):
    svg = specifications.svg(charts.specification(chart))
    texts = svg.texts()
    label = charts.sentence(chart.x_label)
    places = [texts[name] for name in names]
    # Below the axis and its label, in rows that do not touch each other.
    assert min(y for _, y in places) > texts[label][1]
    for i, (x, y) in enumerate(places):
      assert x >= 0 and x + 6 * len(names[i]) <= svg.width
      for other_x, other_y in places[:i]:
        assert abs(y - other_y) >= 14 or abs(x - other_x) > 6 * len(names[i])
    # However many there are, the panel keeps its room.
    assert texts[label][1] > 230


def _chart(heights, **more):
  data = pd.DataFrame(
    {'method': 'fedavg', 'x': range(len(heights)), 'y': heights}
  )
  return charts.Chart('x', 'x', 'x', 'round', 'loss', data, **more)


def test_what_diverged_leaves_room_for_the_others(tmp_path):
  best = {
    name: configuration(tmp_path, name, [0.5], [loss])
    for name, loss in (('fedavg', 2.0), ('fedadagrad', 1e6))
  }
  loss, accuracy = (
    json.dumps(charts.specification(c)) for c in figures.curves(best, _JUDGE)
  )
  assert '"type": "log"' in loss and '"type": "log"' not in accuracy


@pytest.mark.parametrize('rounds', [200, 30])
@pytest.mark.parametrize('spike', [1e6, -1e6])
def test_a_spike_is_cut_and_the_axis_says_so(spike, rounds):
  heights = np.sin(np.arange(float(rounds)))
  plain = charts.specification(_chart(heights))
  assert '"Loss, cut"' not in json.dumps(plain)
  heights[17] = spike
  cut = charts.specification(_chart(heights))
  assert '"Loss, cut"' in json.dumps(cut)
  (domain,) = {
    tuple(part['domain'])
    for part in specifications.walk(cut)
    if 'domain' in part and part.get('zero') is False
  }
  assert -4 < domain[0] < -0.9 and 0.9 < domain[1] < 4
  # A curve that begins high is none.
  falling = 5 * np.exp(-np.arange(200.0) / 30)
  assert 'cut"' not in json.dumps(charts.specification(_chart(falling)))


def test_gaps_and_long_lines():
  heights = [math.nan if n == 4999 - 9 else float(n) for n in range(5000)]
  shown = {row['x']: row['y'] for row in drawn(_chart(heights))}
  assert 500 < len(shown) <= 600
  assert shown[4990] is None and shown[4999] == 4999


def test_what_has_no_place_on_a_logarithmic_axis_is_a_gap():
  chart = _chart([0.0, -1.0, 4.0], log_y=True)
  assert [row['y'] for row in drawn(chart)] == [None, None, 4.0]


def test_every_other_column_has_a_figure_or_is_constant(tmp_path):
  best = {'fedavg': configuration(tmp_path, 'fedavg', [0.5, 0.6])}
  for run in best['fedavg'].runs:
    for row in run.rows:
      row['novelty/of_some_kind'] = row['round'] ** 2
      row['seconds'] = 30.0 + (row['round'] == 1) * 100 + row['round']
  found, constant = figures.everything_else(best, ('train/loss', _METRIC))
  by_heading = {h: [c.y_label for c in drawn] for h, drawn in found.items()}
  assert by_heading == {
    'Train': ['train accuracy'],
    'Seconds': ['seconds a round'],
    'Clients': ['clients whose update was rejected'],
    'Novelty': ['novelty of some kind'],
  }
  assert constant == {
    'clients that took part': 2,
    'bytes sent to a client': 1e5,
    'bytes sent by a client': 1e5,
  }
  # The first round includes tracing.
  (seconds,) = found['Seconds']
  assert seconds.data['x'].min() == 2 and seconds.data['y'].max() == 34


def test_heat_map_marks_cells_without_a_run():
  values = pd.DataFrame(
    [[0.1, math.nan], [0.3, 0.4]], columns=[0.1, 1.0], index=[10**-1.5, 3.0]
  )
  chart = charts.HeatMap('h', 'h', 'h', 'fedavg', 'x', 'y', 'v', values)
  assert [row['value'] for row in drawn(chart)] == [0.1, None, 0.3, 0.4]
  texts = specifications.svg(charts.specification(chart)).texts()
  assert {'0.1', '0.3', '0.4', '\N{MULTIPLICATION SIGN}'} <= set(texts)
  # Powers of ten by their exponents, where all are.
  minus_one = '\N{MINUS SIGN}1'
  assert {minus_one, '0', 'Log10 of x', '0.0316', '3', 'Y'} <= set(texts)
  assert texts['3'][1] < texts['0.0316'][1]
  assert charts._rates([1.0, 10.0]) == ['1', '10']
  assert charts._rates([0.1, 1.0]) == [minus_one, '0']


def _behind(root, accuracies, *, rule='train_loss', losses=None):
  """How far methods are behind the best, by method, the best first."""
  best = {
    name: configuration(root, name, values, (losses or {}).get(name))
    for name, values in accuracies.items()
  }
  criterion = sections.Criterion(scores.RULES[rule], made_up.METRIC)
  order = criterion.ranked(best)
  found = results.behind({name: best[name] for name in order}, criterion)
  return dict(zip(order, found, strict=True))


def test_how_far_behind_is_of_pairs_of_seeds(tmp_path):
  base, ahead = np.array([0.2, 0.5, 0.7]), np.array([0.09, 0.1, 0.11])
  found = _behind(tmp_path, {'fedavg': base, 'fedadam': base + ahead})
  # Far less than seeds differ; 4.303 is Student's t of two degrees of freedom.
  half = 430.3 * 0.01 / 3**0.5
  assert found == {
    'fedadam': 'best',
    'fedavg': f'10.0 [{10 - half:.1f}, {10 + half:.1f}]',
  }


def test_what_cannot_be_told_is_said(tmp_path):
  chance = {'fedavg': [0.2, 0.5, 0.7], 'fedadam': [0.9, 0.3, 0.8]}
  assert _behind(tmp_path, chance)['fedavg'].endswith('], perhaps by chance')
  few = {'fedavg': [0.5] * 2, 'fedsps': [0.56] * 2}
  assert _behind(tmp_path, few)['fedavg'] == '6, too few seeds to tell'
  equal = {'fedavg': [0.5], 'fedsps': [0.50000001], 'fedadam': [0.4]}
  assert _behind(tmp_path, equal)['fedavg'] == 'equal'
  pooled = {'centralized': [0.9], 'fedavg': [0.5]}
  assert _behind(tmp_path, pooled)['fedavg'] == 'best'


def test_rules_of_training_choose_but_do_not_compare(tmp_path):
  accuracies = {'fedavg': [0.5], 'fedsps': [0.6]}
  losses = {'fedavg': [0.1], 'fedsps': [2.0]}
  assert next(iter(_behind(tmp_path, accuracies, losses=losses))) == 'fedsps'
  # The papers of convex problems report the loss.
  found = _behind(tmp_path, accuracies, losses=losses, rule='last_loss')
  assert found == {'fedavg': 'best', 'fedsps': '1.9, too few seeds to tell'}


def test_difference_of_other_seeds_is_welchs():
  one = {0: 0.8, 1: 0.9, 2: 1.0}
  other = {3: 0.1, 4: 0.2, 5: 0.3, 6: 0.4}
  low, high = scores.difference(one, other)
  assert (low + high) / 2 == pytest.approx(0.9 - 0.25)
  # By hand: variances over sizes 0.01 / 3 and 0.05 / 12, 4.99 degrees.
  assert (high - low) / 2 == pytest.approx(2.5714 * 0.0866, rel=1e-2)
  assert scores.difference({0: 1.0, 1: 2.0}, other) is None
  same = {0: 1.0, 1: 1.0, 2: 1.0}
  assert scores.difference(same, {k + 3: 0.5 for k in same}) == (0.5, 0.5)


def test_settings_in_words():
  settings = dict(digits_alpha=0.1, server_learning_rate=1.0, nesterov=True)
  words = sections.settings_words(
    settings, [*settings, 'client_momentum'], 'digits'
  )
  assert words == 'alpha 0.1, server learning rate 1, nesterov on'
