"""FedCM against NumPy."""

import numpy as np
import pytest

from tests.processes import dense
from tff_adaptive import algorithms
from tff_adaptive import parameters
from tff_adaptive import processes
from tff_adaptive.algorithms import building

pytestmark = pytest.mark.usefixtures('in_process_context')

RATE, ALPHA = 0.2, 0.3
ROUNDS = [(0, 1), (1, 2), (0, 1, 2), (0,)]


def fedcm(alpha=ALPHA, decay=1.0, shares=(1.0, 1.0, 1.0), neighbour=None):
  x, direction, path = dense.START, np.zeros(8), []
  for number, cohort in enumerate(ROUNDS):
    rate, updates, paths = RATE * decay**number, [], []
    for i in cohort:
      w, own = x, direction
      for batch, share in zip(dense.CLIENTS[i], shares):
        g = dense.gradient(w, batch)
        if neighbour == 'keeps its own momentum':
          own = step = alpha * g + (1 - alpha) * own
        elif neighbour == 'alpha on the direction':
          step = (1 - alpha) * g + alpha * direction
        else:
          step = alpha * g + (1 - alpha) * direction
        w = w - share * rate * step
      updates.append(w - x)
      paths.append(rate * sum(shares[: len(dense.CLIENTS[i])]))
    mean = dense.average(updates, cohort)
    direction = -mean / dense.average(paths, cohort)
    if neighbour == 'mean of directions':
      directions = [-u / p for u, p in zip(updates, paths)]
      direction = dense.average(directions, cohort)
    x = x + mean
    path.append(x)
  return path, direction


def build(**more):
  return algorithms.build(
    'fedcm', dense.model(), client_learning_rate=RATE, **more
  )


def test_rounds():
  path, state, _ = dense.run(build(alpha=ALPHA), ROUNDS)
  expected, direction = fedcm()
  dense.close(path, expected)
  found = state.client_work.statistics['direction']
  dense.close(np.concatenate([np.ravel(t) for t in found]), direction)


def test_inputs_tell_fedcm_from_its_neighbours():
  path, _ = fedcm()
  for neighbour in (
    'keeps its own momentum',
    'alpha on the direction',
    'mean of directions',
  ):
    assert dense.differ(path, fedcm(neighbour=neighbour)[0]), neighbour


@pytest.mark.exhaustive
def test_the_direction_is_per_unit_of_the_rates_that_made_it():
  path, _, _ = dense.run(
    build(
      alpha=ALPHA,
      client_warmup_steps=2,
      client_lr_schedule='exp_decay',
      client_lr_decay_steps=1,
      client_lr_decay_rate=0.5,
    ),
    ROUNDS,
  )
  expected, _ = fedcm(decay=0.5, shares=(0.5, 1.0, 1.0))
  dense.close(path, expected)


def test_a_client_work_alone_is_not_shown_the_update():
  components = building.build_components(algorithms.resolve('fedcm'))
  with pytest.raises(TypeError, match='does not receive the aggregated'):
    processes.build_client_work(
      dense.model(), components.client_optimizer, exchange=components.exchange
    )


def test_what_is_refused():
  with pytest.raises(parameters.ParameterError, match='numbers of local steps'):
    algorithms.check('fedcm', dp_clip_norm=1.0, dp_clients_per_round=2)
  with pytest.raises(parameters.ParameterError, match='above 0 and at most 1'):
    algorithms.check('fedcm', alpha=0.0)
