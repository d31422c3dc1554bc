"""Speed and dropouts of clients."""

import math
import statistics

import pytest

from tff_adaptive.lab.training.participation import system_model


def test_speeds_and_dropouts_are_drawn_as_is_said():
  clients = [f'client {i}' for i in range(4000)]
  model = system_model.ClientSystemModel(
    seed=5, seconds_per_example=2.0, spread=0.5, dropout=0.3
  )
  speeds = [model.pace(c) for c in clients]
  assert statistics.mean(speeds) == pytest.approx(2.0, rel=0.03)
  logs = [math.log(s) for s in speeds]
  assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.03)
  assert model.seconds(clients[0], 10) == 10 * speeds[0]
  gone = [[model.drops_out(c, n) for c in clients] for n in (1, 2)]
  assert statistics.mean(gone[0]) == pytest.approx(0.3, abs=0.02)
  # A client that is slow once is so again; whether it drops out is not.
  both = statistics.mean(a and b for a, b in zip(*gone, strict=True))
  assert both == pytest.approx(0.09, abs=0.02)
  # The same on every machine: computed once, elsewhere.
  assert speeds[:3] == [1.67075783, 1.89986639, 2.18205449]
  other = system_model.ClientSystemModel(
    seed=6, seconds_per_example=2.0, spread=0.5
  )
  assert speeds[:3] != [other.pace(c) for c in clients[:3]]
