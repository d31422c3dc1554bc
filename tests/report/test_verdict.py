"""Which method a report calls best, and how sure it is."""

import numpy as np
import pytest

from tests.report import test_figures
from tff_adaptive.lab.report import scores
from tff_adaptive.lab.report import sections
from tff_adaptive.lab.report import verdict


def reach(root, accuracies, *, rule='train_loss', losses=None):
  """The verdict on methods by their accuracies, one a seed."""
  best = {
    name: test_figures.configuration(
      root, name, values, (losses or {}).get(name)
    )
    for name, values in accuracies.items()
  }
  section = sections.Section(
    {'task': 'digits'},
    {name: [c] for name, c in best.items()},
    test_figures.made_up.METRIC,
  )
  judge = sections.Judge(scores.RULES[rule], section.metric)
  return verdict.reach(section, best, judge, ['server_adaptivity'])


def test_margin_is_of_pairs_of_seeds(tmp_path):
  ahead = np.array([0.09, 0.1, 0.11])
  base = np.array([0.2, 0.5, 0.7])
  found = reach(tmp_path, {'fedavg': base, 'fedadam': base + ahead})
  assert found.headline == 'FedAdam is best'
  points = dict(found.points)
  # Far less than seeds differ; 4.303 is Student's t of two degrees of freedom.
  half = 4.303 * 0.01 / 3**0.5
  assert points['Margin'] == (
    f'validation accuracy 10.0 [{10 - 100 * half:.1f}, {10 + 100 * half:.1f}] '
    'points ahead of FedAvg'
  )
  assert points['Result'].startswith('validation accuracy 57 % [0, 100]')
  assert points['Result'].endswith('3 seeds')
  assert points['Settings'] == 'server adaptivity 0.1'
  assert points['Validation'].startswith('on test examples: ')
  assert points['Cost'].startswith('4 rounds, 2 min 04 s, 1.6 MB sent')


def test_what_may_be_chance_is_called_so(tmp_path):
  found = reach(
    tmp_path, {'fedavg': [0.2, 0.5, 0.7], 'fedadam': [0.9, 0.3, 0.8]}
  )
  assert found.headline == 'FedAdam is ahead, perhaps by chance'


@pytest.mark.parametrize('seeds', [1, 2])
def test_few_seeds_have_no_interval(tmp_path, seeds):
  found = reach(tmp_path, {'fedavg': [0.5] * seeds, 'fedsps': [0.56] * seeds})
  assert found.headline == 'FedSPS is ahead'
  noun = 'seed' if seeds == 1 else 'seeds'
  assert dict(found.points)['Margin'] == (
    f'validation accuracy 6 points ahead of FedAvg; {seeds} {noun} cannot tell '
    'whether by chance'
  )
  assert '[' not in dict(found.points)['Result']


def test_equal_methods_share_the_first_place(tmp_path):
  found = reach(
    tmp_path, {'fedavg': [0.5], 'fedsps': [0.50000001], 'fedadam': [0.4]}
  )
  assert found.headline == 'FedSPS and FedAvg are equal'


def test_rules_of_training_choose_but_do_not_compare(tmp_path):
  accuracies = {'fedavg': [0.5], 'fedsps': [0.6]}
  losses = {'fedavg': [0.1], 'fedsps': [2.0]}
  found = reach(tmp_path, accuracies, losses=losses)
  assert found.headline == 'FedSPS is ahead'
  # The papers of convex problems report the loss.
  found = reach(tmp_path, accuracies, losses=losses, rule='last_loss')
  assert found.headline == 'FedAvg is ahead'
  assert (
    'training loss in the last round 1.9 ahead' in dict(found.points)['Margin']
  )


def test_pooled_data_do_not_compete(tmp_path):
  found = reach(tmp_path, {'centralized': [0.9], 'fedavg': [0.5]})
  assert found.headline == 'FedAvg: validation accuracy 50 %'


def test_one_method_and_none(tmp_path):
  found = reach(tmp_path, {'fedavg': [0.5, 0.6]})
  assert found.headline == 'FedAvg: validation accuracy 55 %'
  assert 'Margin' not in dict(found.points)
  assert reach(tmp_path, {}) is None


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
  words = verdict.settings_words(
    settings, [*settings, 'client_momentum'], 'digits'
  )
  assert words == 'alpha 0.1, server learning rate 1, nesterov on'
