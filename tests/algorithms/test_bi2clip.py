"""Bi2Clip against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive.algorithms import methods

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ETA = 0.2, 0.9
CLIENT, SERVER = (0.2, 0.9), (0.1, 0.25)
ROUNDS = [(0, 1), (1, 2), (0, 2)]


def by_coordinate(x, lower, upper):
  return np.sign(x) * np.minimum(np.maximum(np.abs(x), lower), upper)


def by_norm(x, lower, upper):
  norm = np.linalg.norm(x)
  return x * np.minimum(np.maximum(norm, lower), upper) / norm


def bi2clip(clip=by_coordinate, each=False):
  """`each` clips the clients' updates in place of their mean."""
  x, path = dense.START, []
  for cohort in ROUNDS:
    updates = []
    for i in cohort:
      w = x
      for batch in dense.CLIENTS[i]:
        w = w - RATE * clip(dense.gradient(w, batch), *CLIENT)
      updates.append(clip(w - x, *SERVER) if each else w - x)
    mean = dense.average(updates, cohort)
    x = x + ETA * (mean if each else clip(mean, *SERVER))
    path.append(x)
  return path


@pytest.mark.parametrize(
  'mode, clip', [('coordinate', by_coordinate), ('norm', by_norm)]
)
def test_rounds(mode, clip):
  process = algorithms.build(
    'bi2clip',
    dense.model(),
    client_learning_rate=RATE,
    client_clip_lower=CLIENT[0],
    client_clip_upper=CLIENT[1],
    server_learning_rate=ETA,
    server_clip_lower=SERVER[0],
    server_clip_upper=SERVER[1],
    clip_mode=mode,
  )
  path, _, _ = dense.run(process, ROUNDS)
  expected = bi2clip(clip)
  dense.close(path, expected)
  assert dense.differ(expected, bi2clip(clip, each=True))
  other = {by_coordinate: by_norm, by_norm: by_coordinate}[clip]
  assert dense.differ(expected, bi2clip(other))


def test_bounds_out_of_order():
  with pytest.raises(
    parameters.ParameterError, match=r'`server_clip_lower`.*must not be above'
  ):
    algorithms.check('bi2clip', server_clip_lower=2.0, server_clip_upper=1.0)


def test_optimizers_of_both_sides_share_what_they_have_in_common():
  """As Bi2Clip, which is FedAvg with both."""
  sides = {f'{side}_optimizer': 'biclip' for side in ('client', 'server')}
  given = {'clip_mode': 'norm', 'server_clip_upper': 0.1}
  chosen = algorithms.resolve('fedavg', **sides, **given)
  alike = algorithms.resolve('bi2clip', **given)
  for side in ('client', 'server'):
    assert chosen.build(side) == alike.build(side)
    assert chosen.build(side).clip_mode == 'norm'
  with pytest.raises(parameters.UnusedError, match='does not use it'):
    algorithms.check('fedavg', server_optimizer='biclip', client_beta_1=0.9)


@pytest.mark.parametrize('name', ['fedavg', 'fedprox'])
def test_hyperparameters_of_any_two_optimizers_can_be_told_apart(name):
  method = methods.find(name)
  for client in method.accepted('client'):
    for server in method.accepted('server'):
      algorithms.check(name, client_optimizer=client, server_optimizer=server)
