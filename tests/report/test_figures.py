"""What figures show of seeds, for papers and for the page."""

import dataclasses
import math

import numpy as np
import pytest
from matplotlib import collections

from tests import made_up
from tff_adaptive import algorithms
from tff_adaptive import optimizers
from tff_adaptive.lab.recording import printed_names
from tff_adaptive.lab.recording.figures import styles
from tff_adaptive.lab.report import charts
from tff_adaptive.lab.report import columns
from tff_adaptive.lab.report import figures
from tff_adaptive.lab.report import runs
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import static
from tff_adaptive.lab.report import tuning
from tff_adaptive.lab.report.web import interactive

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


def bands_of(panel):
  return [
    c for c in panel.collections if isinstance(c, collections.PolyCollection)
  ]


def against(best):
  return [
    *figures.curves(best, _JUDGE),
    figures.against_time(best, _JUDGE),
    figures.against_bytes(best, _JUDGE),
  ]


def traces_of(chart, method=None):
  """Bands, lines and markers that Plotly gets."""
  data = interactive.draw(chart)['data']
  data = [t for t in data if method in (None, t['meta'])]
  bands = [t for t in data if t.get('fill') == 'toself']
  markers = [t for t in data if t['mode'] == 'markers']
  lines = [t for t in data if t not in bands and t not in markers]
  return bands, lines, markers


@pytest.mark.parametrize('seeds', [1, 2, 4, 7])
@pytest.mark.parametrize('apart', [False, True])
def test_means_with_bands_and_single_runs_on_request(tmp_path, seeds, apart):
  accuracies = np.linspace(0.4, 0.6, seeds)
  made = configuration(tmp_path, 'fedavg', accuracies)
  best = {'fedavg': dataclasses.replace(made, apart=apart)}
  for chart in against(best):
    (panel,) = static.draw(chart).axes
    bands, lines, _ = traces_of(chart)
    banded = seeds > 1 and not apart
    assert len(bands_of(panel)) == len(bands) == banded
    assert len(panel.lines) == len(lines) == (seeds if apart else 1)
    thin = seeds > 1 and apart
    assert (panel.lines[0].get_linewidth() < 1) == thin
    assert (lines[0]['line']['width'] < 2) == thin
  chart = figures.curves(best, _JUDGE)[1]
  last = [line.y[-1] for line in chart.lines]
  shown = [trace['y'][-1] for trace in traces_of(chart)[1]]
  expected = accuracies if apart else [accuracies.mean()]
  np.testing.assert_allclose(last, expected)
  np.testing.assert_allclose(shown, expected, rtol=1e-4)
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
  assert printed.y_limits[1] == pytest.approx(100 * chart.y_limits[1])
  assert line.colour == colours['fedavg']
  # Below all others, thin and without a band.
  assert grey.colour == styles.GREY and grey.thin and grey.low is None
  assert printed.drawn()[0][1] is grey
  # Losses are no shares.
  loss = charts.printed(figures.curves(best, _JUDGE)[0], colours)
  assert loss.y_label == 'Training loss' and loss.lines[0].y[-1] == 1.0
  assert static.image(static.draw(printed), 'pdf') == static.image(
    static.draw(printed), 'pdf'
  )


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
    (band,) = bands_of(static.draw(chart).axes[0])
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == 1.0 and heights.min() >= 0
    ((band,), _, _) = traces_of(chart)
    assert max(band['y']) == 1.0 and min(band['y']) >= 0
  (band,) = bands_of(static.draw(training).axes[0])
  assert band.get_paths()[0].vertices[:, 1].min() == 0.0
  assert min(traces_of(training)[0][0]['y']) == 0.0
  for chart in (training, *quality):
    low, high = chart.y_limits
    (line,) = chart.lines
    assert low < min(line.low) and max(line.high) < high


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
    (bars,) = [
      c
      for c in static.draw(chart).axes[0].collections
      if isinstance(c, collections.LineCollection)
    ]
    ends = bars.get_paths()[0].vertices[:, 1]
    (line,) = traces_of(chart)[1]
    above = line['y'][0] + line['error_y']['array'][0]
    assert ends.max() == pytest.approx(high) == pytest.approx(above)
    if low is None:
      assert ends.min() < np.mean(accuracies)
    else:
      assert ends.min() == pytest.approx(low)


@pytest.mark.parametrize('count', [1, 3, 12])
def test_legends_cover_nothing_and_can_be_read(tmp_path, count):
  names = [f'method_with_a_name_{n}' for n in range(count)]
  best = {n: configuration(tmp_path, n, [0.5, 0.6]) for n in names}
  for chart in against(best):
    figure = static.draw(chart)
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert sorted(t.get_text() for t in legend.get_texts()) == sorted(names)
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1
    (panel,) = figure.axes
    # With its labels and numbers.
    assert not box.overlaps(panel.get_tightbbox())
    # However many there are, the panel keeps its room.
    assert panel.get_window_extent().height > 2.4 * figure.dpi
    letters = [*panel.get_xticklabels(), panel.xaxis.label, panel.yaxis.label]
    smallest = min(t.get_size() for t in letters)
    assert all(t.get_size() >= smallest for t in legend.get_texts())


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
  assert looks[0]['linestyle'] == '-' != looks[1]['linestyle']
  # The one with gaps is on top, in both.
  drawn = [line.get_label() for line in static.draw(chart).axes[0].lines]
  assert drawn.index(first) < drawn.index(second)
  shown = [t['meta'] for t in interactive.draw(chart)['data']]
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
  assert static.draw(loss).axes[0].get_yscale() == 'log'
  assert interactive.draw(loss)['layout']['yaxis']['type'] == 'log'


def test_gaps_and_long_lines(tmp_path):
  rounds = list(range(5000))
  heights = [math.nan if n == 4999 - 9 else float(n) for n in rounds]
  line = charts.Line('fedavg', rounds, heights)
  chart = charts.Chart('x', 'x', 'x', 'round', 'loss', [line])
  _, (shown,), _ = traces_of(chart)
  assert len(shown['x']) <= 600 and shown['x'][-1] == 4999
  assert shown['y'][shown['x'].index(4990)] is None
  assert shown['y'][-1] == 4999


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


def test_words_of_others_are_no_html_to_plotly(tmp_path):
  name = '<b>x</b> %{y} <a href="javascript:alert(1)">'
  best = {name: configuration(tmp_path, name.replace('/', ''), [0.5])}
  text = str([t.get('hovertemplate') for t in traces_of(against(best)[1])[1]])
  assert '&lt;b&gt;x&lt;/b&gt; %&#123;y}' in text and '<a' not in text


def test_heat_map_marks_cells_without_a_run():
  values = np.array([[0.1, math.nan], [0.3, 0.4]])
  chart = charts.HeatMap(
    'h', 'h', 'h', 'fedavg', 'x', 'y', 'v', [0.1, 1.0], [10**-1.5, 3.0], values
  )
  heat, crosses = interactive.draw(chart)['data']
  assert heat['z'] == [[0.1, None], [0.3, 0.4]]
  assert (crosses['x'], crosses['y']) == ([1], [0])
  ticks = interactive.draw(chart)['layout']['yaxis']['ticktext']
  assert ticks == ['10<sup>\N{MINUS SIGN}1.5</sup>', '3']
  texts = [t.get_text() for t in static.draw(chart).axes[0].texts]
  assert texts == ['0.1', '0.3', '0.4']
