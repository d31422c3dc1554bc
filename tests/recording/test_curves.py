"""The curves are there and show something."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests import tiers
from tff_adaptive.lab.recording.figures import curves as figures


def pixels(path):
  return np.asarray(Image.open(path)) / 255


def coloured(picture, red, green, blue):
  """How many pixels have about this colour, given from 0 to 255."""
  near = abs(picture[..., :3] * 255 - [red, green, blue]).max(axis=-1) < 24
  return int(near.sum())


def rows(step_size):
  result = [{'round': '0', 'validation/loss': '2.0', 'validation/acc': '0.1'}]
  for r in range(1, 11):
    row = {'round': str(r), 'train/loss': str(2 / r), 'train/acc': str(r / 12)}
    if r % 5 == 0:
      row |= {'validation/loss': str(2.5 / r), 'validation/acc': str(r / 14)}
    if step_size:
      row |= {
        'step_size/mean': str(0.1 * r),
        'step_size/min': str(0.05 * r),
        'step_size/max': str(0.3 * r),
        'step_size/between_clients': str(0.02 * r),
        'step_size/within_clients': str(0.04 * r),
        'step_size/at_bound': '' if r == 1 else str(1 / r),
      }
    result.append(row)
  return result


@pytest.mark.parametrize('step_size', [False, True])
def test_every_curve_is_drawn(tmp_path, step_size):
  figures.draw_curves(rows(step_size), tmp_path / 'c.png', 'a run')
  picture = pixels(tmp_path / 'c.png')
  assert picture.shape[1] > (1800 if step_size else 1200)
  assert coloured(picture, 0x00, 0x72, 0xB2) > 300  # Training.
  assert coloured(picture, 0xD5, 0x5E, 0x00) > 300  # Validation.
  assert (coloured(picture, 0x00, 0x9E, 0x73) > 300) == step_size


@pytest.mark.parametrize(
  'seconds, unit, size',
  [(2, 'seconds', 1), (60, 'minutes', 60), (36000, 'hours', 3600)],
)
def test_quality_is_drawn_against_virtual_time(seconds, unit, size):
  table = rows(True)
  plain = figures.build_curves(figures.as_table(table))
  table[0]['virtual/seconds'] = ''
  for number, row in enumerate(table[1:], start=1):
    row['virtual/seconds'] = str(seconds * number**2)
  found = figures.build_curves(figures.as_table(table))
  labels = [chart.x_label for chart in found]
  assert labels == ['round', 'round', f'{unit} of virtual time', 'round']
  assert [chart.x_label for chart in plain] == ['round'] * 3
  by_round, by_time = found[1], found[2]
  assert by_time.y_label == by_round.y_label == 'acc'
  one, other = by_round.data, by_time.data
  assert one[['method', 'y']].equals(other[['method', 'y']])
  np.testing.assert_allclose(other['x'], seconds * one['x'] ** 2 / size)


def test_without_quality_the_loss_is_drawn_against_virtual_time():
  table = [
    {'round': '0', 'validation/loss': '2.0'},
    {'round': '1', 'validation/loss': '1.0', 'virtual/seconds': '7.5'},
  ]
  by_round, by_time = figures.build_curves(figures.as_table(table))
  assert by_round.y_label == by_time.y_label == 'loss'
  assert by_time.data['x'].tolist() == [0, 7.5]


def test_spreads_of_step_sizes_are_drawn(tmp_path):
  path = tmp_path / 's.png'
  figures.draw_step_sizes(rows(False), path, 'a run')
  assert not path.exists()
  figures.draw_step_sizes(rows(True), path, 'a run')
  thirds = np.array_split(pixels(path), 3, axis=1)
  for third in thirds:
    assert coloured(third, 0x00, 0x9E, 0x73) > 300
  # The bands, in the line's colour at a fifth on white: one twice the other.
  between, within, share = (
    coloured(third, 0xCC, 0xEC, 0xE3) for third in thirds
  )
  assert within / between == pytest.approx(2, rel=0.25)
  # Edges of the line are of that colour too.
  assert share < between / 4


def test_no_band_is_where_no_step_is():
  table = pd.DataFrame(
    {
      'round': [1, 2, 3],
      'step_size/mean': [0.9, 0.5, 0.5],
      'step_size/min': [0.6, 0.45, 0.1],
      'step_size/max': [1.0, 0.55, 0.9],
      'step_size/within_clients': [0.2, 0.1, float('nan')],
    }
  )
  within = figures.step_sizes({'fedsps': table})[1].data
  assert within['y'].tolist() == [0.9, 0.5, 0.5]
  np.testing.assert_allclose(within['low'], [0.7, 0.45, np.nan])
  np.testing.assert_allclose(within['high'], [1.0, 0.55, np.nan])


@pytest.mark.parametrize(
  'value',
  tiers.exhaustive_but(['1e100'], ['1e100', '-1e100', 'inf', '-inf', 'nan']),
)
def test_values_that_diverged_are_left_out(tmp_path, value):
  table = rows(True)
  for column in list(table[5])[1:]:
    table[5][column] = value
  figures.draw_curves(table, tmp_path / 'c.png', 'a run')
  figures.draw_step_sizes(table, tmp_path / 's.png', 'a run')
  assert pixels(tmp_path / 'c.png').any() and pixels(tmp_path / 's.png').any()
