"""Fixtures that tests of tasks share."""

import types

import pytest
import tensorflow_federated as tff


@pytest.fixture(name='unbuilt')
def _unbuilt(monkeypatch):
  """Leaves out that TFF checks a new task's model, for which it builds it.

  For tests of data: a residual network takes seconds, the rest much less.
  """

  def task(datasets, model_fn):
    return types.SimpleNamespace(datasets=datasets, model_fn=model_fn)

  monkeypatch.setattr(tff.simulation.baselines, 'BaselineTask', task)
