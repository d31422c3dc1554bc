"""What figures show of seeds, and where their legends are."""

import numpy as np
import pytest
from matplotlib import collections

from tests import made_up
from tff_adaptive.report import figures
from tff_adaptive.report import runs
from tff_adaptive.report import scores
from tff_adaptive.report import sections

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


@pytest.mark.parametrize('seeds', [1, 2, 4, 5, 7])
def test_bands_from_five_seeds_on_and_lines_of_their_own_before(
  tmp_path, seeds
):
  accuracies = np.linspace(0.4, 0.6, seeds)
  best = {'fedavg': configuration(tmp_path, 'fedavg', accuracies)}
  drawn = figures.curves(best, _JUDGE)
  for panel in drawn.figure.axes:
    assert len(bands_of(panel)) == (seeds >= 5)
    assert len(panel.lines) == (seeds if seeds < 5 else 1)
    thin = panel.lines[0].get_linewidth() < 1
    assert thin == (1 < seeds < 5)
  last = [line.get_ydata()[-1] for line in drawn.figure.axes[1].lines]
  if seeds < 5:
    np.testing.assert_allclose(last, accuracies)
  else:
    np.testing.assert_allclose(last, [0.5])


def test_bands_stay_within_what_a_metric_can_be(tmp_path):
  accuracies, losses = [0.2, 1.0, 1.0, 1.0, 1.0], [0.01, 0.01, 0.01, 0.01, 3]
  best = {'fedavg': configuration(tmp_path, 'fedavg', accuracies, losses)}
  mean = np.mean(accuracies)
  assert mean + scores.interval(accuracies) > 1
  assert np.mean(losses) - scores.interval(losses) < 0
  for drawn in (
    figures.curves(best, _JUDGE),
    figures.against_bytes(best, _JUDGE),
  ):
    *_, panel = drawn.figure.axes
    (band,) = bands_of(panel)
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.max() == 1.0 and heights.min() >= 0
  (band,) = bands_of(figures.curves(best, _JUDGE).figure.axes[0])
  assert band.get_paths()[0].vertices[:, 1].min() == 0.0


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
    drawn = figures.adaptivity(by_method, _JUDGE)
    (bars,) = [
      c
      for c in drawn.figure.axes[0].collections
      if isinstance(c, collections.LineCollection)
    ]
    ends = bars.get_paths()[0].vertices[:, 1]
    assert ends.max() == pytest.approx(high)
    if low is None:
      assert ends.min() < np.mean(accuracies)
    else:
      assert ends.min() == pytest.approx(low)


@pytest.mark.parametrize('count', [1, 3, 12])
def test_legends_cover_nothing(tmp_path, count):
  names = [f'method_with_a_name_{n}' for n in range(count)]
  best = {n: configuration(tmp_path, n, [0.5, 0.6]) for n in names}
  for drawn in (
    figures.curves(best, _JUDGE),
    figures.against_bytes(best, _JUDGE),
  ):
    figure = drawn.figure
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert [t.get_text() for t in legend.get_texts()] == names
    box = legend.get_window_extent()
    assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1
    for panel in figure.axes:
      # With its labels and numbers.
      assert not box.overlaps(panel.get_tightbbox())
