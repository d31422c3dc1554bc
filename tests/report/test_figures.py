"""What figures show of seeds, for papers and for the page."""

import dataclasses
import json
import math

import numpy as np
import pytest

from tests import made_up
from tests.recording import specifications
from tff_adaptive import algorithms
from tff_adaptive import drawing
from tff_adaptive import optimizers
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import charts
from tff_adaptive.lab.recording.figures import panels
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import columns
from tff_adaptive.lab.report import figures
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import tuning

_METRIC = f'validation/{made_up.METRIC}'
_JUDGE = sections.Judge(scores.RULES['train_loss'], made_up.METRIC)


def configuration(root, method, accuracies, losses=None):
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
    settings = dict(
      task='digits',
      algorithm=method,
      total_rounds=4,
      clients_per_round=2,
      server_adaptivity=0.1,
      seed=seed,
    )
    found.append(runs.Run(root / f'{method}{seed}', settings, rows))
  return sections.Configuration(method, found[0].settings, found)


def against(best):
  return [
    *figures.curves(best, _JUDGE),
    figures.against_time(best, _JUDGE),
    figures.against_bytes(best, _JUDGE),
  ]


def drawn(chart):
  """What is drawn of a chart, the same in files and on the page."""
  file, page = (
    specifications.points(make(chart))
    for make in (panels.for_files, panels.for_page)
  )
  assert file == page
  return page


@pytest.mark.parametrize('seeds', [1, 2, 4, 7])
@pytest.mark.parametrize('apart', [False, True])
def test_means_with_bands_and_single_runs_on_request(tmp_path, seeds, apart):
  accuracies = np.linspace(0.4, 0.6, seeds)
  made = configuration(tmp_path, 'fedavg', accuracies)
  best = {'fedavg': dataclasses.replace(made, apart=apart)}
  for chart in against(best):
    specification = panels.for_page(chart)
    rows = drawn(chart)
    banded = seeds > 1 and not apart
    assert ('area' in specifications.marks(specification)) == banded
    assert all(('low' in row) == banded for row in rows)
    assert len({row['line'] for row in rows}) == (seeds if apart else 1)
    thin = seeds > 1 and apart
    assert (specifications.looks(specification, 'strokeWidth')[0] < 1.5) == thin
  chart = figures.curves(best, _JUDGE)[1]
  last = [line.y[-1] for line in chart.lines]
  shown = {row['line']: row['y'] for row in drawn(chart)}
  expected = accuracies if apart else [accuracies.mean()]
  np.testing.assert_allclose(last, expected)
  np.testing.assert_allclose(list(shown.values()), expected, rtol=1e-4)
  if seeds == 2 and not apart:
    # An interval of two says nothing: their range.
    assert (chart.lines[0].low[-1], chart.lines[0].high[-1]) == (0.4, 0.6)


def test_charts_are_printed_as_papers_have_them(tmp_path):
  names = ['fedavg', 'fedadam', 'fedadam + delta_sgd', 'own']
  best = {n: configuration(tmp_path, n, [0.4, 0.6]) for n in names}
  chart = figures.curves(best, _JUDGE)[1]
  colours = styles.colours(names[:-1])
  assert len(set(colours.values())) == 3
  printed = charts.printed(chart, colours)
  assert printed.methods == [
    'FedAvg',
    'FedAdam',
    'FedAdam + \N{GREEK CAPITAL LETTER DELTA}-SGD',
    'own',
  ]
  assert printed.x_label == 'Round'
  assert printed.y_label == 'Validation accuracy (%)'
  line, *_, grey = printed.lines
  np.testing.assert_allclose(line.y, [12.5, 25, 37.5, 50])
  assert line.high[-1] == pytest.approx(60)
  assert line.colour == colours['fedavg']
  # Below all others, thin and without a band.
  assert grey.colour == styles.GREY and grey.thin and grey.low is None
  assert printed.drawn()[0][1] is grey
  # Losses are no shares.
  loss = charts.printed(figures.curves(best, _JUDGE)[0], colours)
  assert loss.y_label == 'Training loss' and loss.lines[0].y[-1] == 1.0
  one, other = (
    [drawing.image(panels.for_files(printed), f) for f in ('png', 'svg', 'pdf')]
    for _ in range(2)
  )
  assert one[:2] == other[:2]
  # A PDF's tables are in any order.
  assert sorted(one[2].splitlines()) == sorted(other[2].splitlines())


def test_every_method_has_a_printed_name_and_nine_a_colour_of_their_own():
  names = [*algorithms.names(), 'centralized']
  printed = printed_names.methods(names)
  assert len(set(printed.values())) == len(names)
  assert all(printed[name] != name for name in names)
  for side in ('client', 'server'):
    for name in optimizers.names(side):
      assert printed_names.method(f'fedavg + {name}') != f'FedAvg + {name}'
  for start in range(0, len(names) - 9, 4):
    few = names[start : start + 9]
    colours = styles.colours(few)
    assert len(set(colours.values())) == 9
    assert set(colours.values()) | {styles.GREY} == set(styles.DARK)
  assert styles.GREY in styles.colours(names).values()


def test_time_is_the_mean_of_the_seeds(tmp_path):
  """Every seed takes its own time, so that rounds are what they share."""
  best = {'fedavg': configuration(tmp_path, 'fedavg', [0.5] * 5)}
  chart = figures.against_time(best, _JUDGE)
  assert chart.x_label == 'seconds (real time)'
  (line,) = chart.lines
  np.testing.assert_allclose(line.x, 32.0 * np.arange(1, 5))


def test_virtual_time_where_there_is_one(tmp_path):
  made = configuration(tmp_path, 'fedavg', [0.5])
  for row in made.runs[0].rows:
    row['virtual/seconds'] = 3600.0 * 5 * row['round']
  chart = figures.against_time({'fedavg': made}, _JUDGE)
  assert chart.x_label == 'hours (virtual time)'
  np.testing.assert_allclose(chart.lines[0].x, [5, 10, 15, 20])


def test_bands_stay_within_what_a_metric_can_be(tmp_path):
  accuracies, losses = [0.2, 1.0, 1.0, 1.0, 1.0], [0.01, 0.01, 0.01, 0.01, 3]
  best = {'fedavg': configuration(tmp_path, 'fedavg', accuracies, losses)}
  mean = np.mean(accuracies)
  assert mean + scores.interval(accuracies) > 1
  assert np.mean(losses) - scores.interval(losses) < 0
  training, *quality = against(best)
  for chart in quality:
    rows = drawn(chart)
    assert max(row['high'] for row in rows) == 1.0
    assert min(row['low'] for row in rows) >= 0
  assert min(row['low'] for row in drawn(training)) == 0.0


def test_bars_of_the_adaptivity(tmp_path):
  for accuracies, low, high in (
    ([0.2, 1.0, 1.0, 1.0, 1.0], None, 1.0),
    ([0.2, 1.0], 0.6, 0.6),
  ):
    by_method = {'fedadam': []}
    for tau in (0.1, 0.01):
      made = configuration(tmp_path, 'fedadam', accuracies)
      settings = {**made.settings, 'server_adaptivity': tau}
      by_method['fedadam'].append(
        sections.Configuration('fedadam', settings, made.runs)
      )
    chart = tuning.adaptivity(by_method, _JUDGE)
    assert 'errorbar' in specifications.marks(panels.for_page(chart))
    row = drawn(chart)[0]
    assert row['high'] == pytest.approx(high)
    if low is None:
      assert row['low'] < np.mean(accuracies)
    else:
      assert row['low'] == pytest.approx(low)


@pytest.mark.parametrize('count', [1, 3, 12])
def test_legends_cover_nothing_and_can_be_read(tmp_path, count):
  names = [f'method_with_a_name_{n}' for n in range(count)]
  best = {n: configuration(tmp_path, n, [0.5, 0.6]) for n in names}
  for chart in against(best):
    svg = specifications.svg(panels.for_files(chart))
    texts = svg.texts()
    places = [texts[name] for name in names]
    # Below the axis and its label, in rows that do not touch each other.
    assert min(y for _, y in places) > texts[chart.x_label][1]
    for i, (x, y) in enumerate(places):
      assert x >= 0 and x + 7 * len(names[i]) <= svg.width
      for other_x, other_y in places[:i]:
        assert abs(y - other_y) >= 14 or abs(x - other_x) > 7 * len(names[i])
    assert svg.height >= max(y for _, y in places)
    # However many there are, the panel keeps its room.
    assert texts[chart.x_label][1] > 230


def test_lines_that_lie_on_each_other_are_told_apart(tmp_path):
  best = {
    name: configuration(tmp_path, name, [value])
    for name, value in (('fedavg', 0.5), ('fedprox', 0.5), ('fedadam', 0.9))
  }
  chart = figures.curves(best, _JUDGE)[1]
  assert chart.caption.endswith('FedAvg and FedProx lie on each other.')
  assert charts.coinciding(chart.lines) == [['fedavg', 'fedprox']]
  first, second = ('fedavg', 'fedprox')
  looks = [styles.of_method(name) for name in (first, second)]
  assert looks[0].dash == (1, 0) != looks[1].dash
  # The one with gaps is on top.
  shown = [row['method'] for row in drawn(chart)]
  assert shown.index(first) < shown.index(second)


def test_markers_of_equal_lines_are_at_different_points():
  of_each = [set(styles.marked(80, place, 4)) for place in range(4)]
  assert not set.intersection(*of_each)
  assert all(0 < len(marked) <= 10 for marked in of_each)
  assert styles.marked(1, 3, 4) == [0] and styles.marked(0, 0, 1) == []


def test_what_diverged_leaves_room_for_the_others(tmp_path):
  best = {
    name: configuration(tmp_path, name, [0.5], [loss])
    for name, loss in (('fedavg', 2.0), ('fedadagrad', 1e6))
  }
  loss, accuracy = figures.curves(best, _JUDGE)
  assert loss.log_y and not accuracy.log_y
  for make in (panels.for_files, panels.for_page):
    assert '"type": "log"' in json.dumps(make(loss))
    assert '"type": "log"' not in json.dumps(make(accuracy))


def test_gaps_and_long_lines(tmp_path):
  rounds = list(range(5000))
  heights = [math.nan if n == 4999 - 9 else float(n) for n in rounds]
  line = charts.Line('fedavg', rounds, heights)
  chart = charts.Chart('x', 'x', 'x', 'round', 'loss', [line])
  shown = {row['x']: row['y'] for row in drawn(chart)}
  assert 500 < len(shown) <= 600
  assert shown[4990] is None and shown[4999] == 4999


def test_every_other_column_has_a_figure_or_is_constant(tmp_path):
  best = {'fedavg': configuration(tmp_path, 'fedavg', [0.5, 0.6])}
  for run in best['fedavg'].runs:
    for row in run.rows:
      row['novelty/of_some_kind'] = row['round'] ** 2
      row['clients/accuracy/worst_decile'] = 0.1 * row['round']
  for run in best['fedavg'].runs:
    run.rows[-1]['test_ema/loss'] = 0.5
  found, constant, final = columns.everything_else(
    best, ('train/loss', _METRIC)
  )
  assert final == ['test_ema/loss']
  by_heading = {h: [c.y_label for c in drawn] for h, drawn in found.items()}
  assert by_heading == {
    'More of training': ['training accuracy'],
    'Where the time goes': ['seconds a round'],
    'Clients': [
      'clients whose update was rejected',
      'accuracy, worst decile',
    ],
    'Novelty': ['of some kind'],
  }
  assert constant == {
    'clients that took part': 2,
    'bytes sent to a client': 1e5,
    'bytes sent by a client': 1e5,
  }


def test_what_has_no_place_on_a_logarithmic_axis_is_a_gap():
  line = charts.Line('fedavg', [1, 2, 3], [0.0, -1.0, 4.0])
  chart = charts.Chart('x', 'x', 'x', 'round', 'loss', [line], log_y=True)
  assert [row['y'] for row in drawn(chart)] == [None, None, 4.0]


def test_heat_map_marks_cells_without_a_run():
  values = np.array([[0.1, math.nan], [0.3, 0.4]])
  chart = charts.HeatMap(
    'h', 'h', 'h', 'fedavg', 'x', 'y', 'v', [0.1, 1.0], [10**-1.5, 3.0], values
  )
  rows = drawn(chart)
  assert [row['value'] for row in rows] == [0.1, None, 0.3, 0.4]
  texts = specifications.svg(panels.for_files(chart)).texts()
  assert {'0.1', '0.3', '0.4', '\N{MULTIPLICATION SIGN}'} <= set(texts)
  # Powers of ten by their exponents, where all are.
  assert {'\N{MINUS SIGN}1', '0', 'log10 of x', '0.0316', '3', 'y'} <= set(
    texts
  )
  assert texts['3'][1] < texts['0.0316'][1]
