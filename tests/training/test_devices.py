"""Seconds of a client's round from gradients, bytes and links."""

import math
import statistics

import pytest

import main
from tests.training import test_availability as runs
from tff_adaptive import algorithms
from tff_adaptive.lab.training.participation import system_model

# Of the EMNIST CNN, ten steps: a test of the formula.
D = 4_826_360
_TABLE = {
  'fedavg': (D, D, {'cross_device': 14.03, 'cross_silo': 0.182}),
  'fedsam': (D, D, {'cross_device': 25.53, 'cross_silo': 0.228}),
  'fedef21': (D, 150_816, {'cross_device': 12.64, 'cross_silo': 0.145}),
  'mime': (3 * D, 2 * D, {'cross_device': 40.64, 'cross_silo': 0.390}),
}


@pytest.mark.parametrize('name', _TABLE)
@pytest.mark.parametrize('kind', system_model.KINDS)
def test_a_median_link_and_a_mean_phone(name, kind):
  """Drawn numbers are at their medians and means where nothing is spread."""
  down, up, expected = _TABLE[name]
  figures = system_model.KINDS[kind]
  model = system_model.ClientSystemModel(
    seed=0,
    seconds_per_step=figures.seconds_per_step,
    gradients=algorithms.resolve(name).gradients_per_step,
    link=system_model.Link(
      figures.link.mbit_down, figures.link.mbit_up, latency=figures.link.latency
    ),
  )
  model.carry(down, up)
  digits = 3 if expected[kind] < 1 else 2
  assert round(model.seconds('a', 10), digits) == expected[kind]


def test_links_are_spread_around_their_medians():
  clients = [f'client {i}' for i in range(4000)]
  model = system_model.ClientSystemModel(
    seed=3, link=system_model.Link(mbit_down=8.0, spread_down=0.5, latency=2.0)
  )
  model.carry(1_000_000, 1_000_000)
  assert model.timed and not model.per_step
  # A megabyte at 8 Mbit/s takes a second; sending takes none.
  logs = [math.log(model.seconds(c, 7) - 4.0) for c in clients]
  assert statistics.median(logs) == pytest.approx(0.0, abs=0.03)
  assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.04)


def test_a_run_of_phones(tmp_path):
  settings = runs.settings_of(
    tmp_path, *runs._SMALL, '--client_devices=cross_device', '--total_rounds=2'
  )
  _, said = runs.run(settings)
  assert any('as cross_device' in line for line in said)
  rows = runs.table(settings)
  assert float(rows[-1]['virtual/seconds']) > 1
  # Phones differ.
  assert system_model.system_model_of(settings).pace('a') != 1.15
  # Flags that are given come before the kind's figures.
  given = runs.settings_of(
    tmp_path,
    *runs._SMALL,
    '--client_devices=cross_device',
    '--client_seconds_per_step=3',
    '--client_speed_spread=0',
    '--client_mbit_up=1',
  )
  assert system_model.system_model_of(given).pace('a') == 3.0
  assert system_model.link_of(given).mbit_up == 1.0


@pytest.mark.parametrize(
  'flags, words',
  [
    (
      ['--client_seconds_per_example=1', '--client_devices=cross_silo'],
      'both set the speed',
    ),
    (['--client_mbit_up=0'], 'above 0'),
    (
      ['--client_latency=1', '--client_speed_spread=1'],
      'would be ignored without',
    ),
  ],
)
def test_flags_that_do_not_fit(tmp_path, capsys, flags, words):
  usual = ['--algorithm=fedavg', f'--root_output_dir={tmp_path}']
  assert main.main([*usual, *flags]) == 2
  assert words in capsys.readouterr().err


def test_gradients_of_a_step():
  def of(name, client=None):
    return algorithms.resolve(name, client_optimizer=client).gradients_per_step

  assert of('fedavg') == of('fedsps') == 1
  assert of('delta_sgd') == of('fedavg', 'delta_sgd') == of('fedsam') == 2
  assert of('mime') == 3
  one = algorithms.resolve('delta_sgd', smoothness_batch='successive')
  assert one.gradients_per_step == 1
  mixed = algorithms.resolve(
    'fedada2_blended', client_mix='sgd=.5,delta_sgd=.5'
  )
  assert mixed.gradients_per_step == 2
