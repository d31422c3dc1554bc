"""Runs that train together give what each gives alone."""

import dataclasses

import numpy as np
import pytest

from tff_adaptive import errors
from tff_adaptive.lab.board import entries
from tff_adaptive.lab.board import runner
from tff_adaptive.lab.board import spaces
from tff_adaptive.lab.board import workloads
from tff_adaptive.lab.sweep import together
from tff_adaptive.lab.training import experiment

_OPTIONS = {'workers': 0, 'retry_failed': False}


def runner_of(folder, method, workload, rounds):
  short = dataclasses.replace(workloads.choose(workload)[0], rounds=rounds)
  submission = entries.Submission(method, spaces.of_method(method))
  return runner.Runner(submission, [short], folder, _OPTIONS, {})


def check(tmp_path, method, workload, *, rounds=4, count=4):
  """Compares runs together with runs alone."""
  made = runner_of(tmp_path / 'a', method, workload, rounds)
  names = [entries.name_of(workload, trial, 1) for trial in range(count)]
  found = made.run(names)
  assert {*found} == {*names} and not made.alone
  alone = runner_of(tmp_path / 'b', method, workload, rounds)
  expected = alone.run(names, together=False)
  for name in names:
    one, other = found[name], expected[name]
    assert one.status == other.status
    assert one.untrained == pytest.approx(other.untrained, rel=1e-4)
    np.testing.assert_array_equal(one.costs, other.costs)
    # Near divergence the last bits grow.
    np.testing.assert_allclose(one.losses, other.losses, rtol=1e-3, atol=1e-6)
  assert len({tuple(r.losses.tolist()) for r in found.values()}) > 1
  return found


@pytest.mark.parametrize(
  'method, workload',
  [
    ('fedexp', 'quadratics'),
    ('scaffold', 'hospitals'),
    ('mime', 'synthetic'),
    ('delta_sgd', 'digits'),
  ],
)
def test_runs_together_are_those_alone(tmp_path, method, workload):
  """With a condition of TFF, client states, two passes, images and dropout."""
  check(tmp_path, method, workload)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'method', [m for m in spaces.METHODS if m not in ('fedper', 'fedbn')]
)
def test_every_method_trains_together(tmp_path, method):
  check(tmp_path, method, 'hospitals')


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'workload',
  [w.name for w in workloads.choose('core,ten') if w.name != 'hospitals'],
)
def test_every_workload_trains_together(tmp_path, workload):
  check(tmp_path, 'fedadam', workload, rounds=2, count=3)


def test_a_diverged_run_ends_and_leaves_the_others(tmp_path):
  found = check(tmp_path, 'fedavg', 'quadratics', rounds=8, count=6)
  ends = {record.status: len(record.losses) for record in found.values()}
  assert ends['finished'] == 8 and ends['diverged'] < 8


def test_what_cannot_train_is_told(tmp_path, monkeypatch):
  made = runner_of(tmp_path, 'fedbn', 'hospitals', 2)
  names = [entries.name_of('hospitals', trial, 1) for trial in range(2)]
  assert {r.status for r in made.run(names).values()} == {'failed'}
  assert 'cannot train --task=hospitals' in made.reasons[names[0]]
  assert 'cannot train --task=hospitals' in made.alone['hospitals']
  # As saved.
  again = runner_of(tmp_path, 'fedbn', 'hospitals', 2)
  monkeypatch.setattr(runner.Runner, '_train', lambda *_: iter([]))
  again.run(names)
  assert again.reasons == made.reasons


def test_runs_that_failed_are_repeated_once(tmp_path, monkeypatch):
  monkeypatch.setitem(_OPTIONS, 'retry_failed', True)
  names = [entries.name_of('hospitals', trial, 1) for trial in range(2)]
  made = runner_of(tmp_path, 'fedbn', 'hospitals', 2)
  made.run(names[:1])
  assert {*made.run(names)} == {*names}
  kept = made._saved(made._file('hospitals'))
  assert {*kept} == {*names} == {*made.reasons}
  # By a later command.
  again = runner_of(tmp_path, 'fedbn', 'hospitals', 2)
  assert not again._saved(again._file('hospitals'))


def test_runs_of_another_version_are_run_again(tmp_path):
  """Of the workload, of the program or its libraries, or with other flags."""
  name = entries.name_of('hospitals', 1, 1)
  lengths = []
  for rounds in (2, 2, 3):
    made = runner_of(tmp_path, 'fedavg', 'hospitals', rounds)
    known = made._saved(made._file('hospitals'))
    lengths.append((len(known), len(made.run([name])[name].losses)))
  assert lengths == [(0, 2), (1, 2), (0, 3)]


def test_damaged_records_are_named(tmp_path):
  name = entries.name_of('hospitals', 1, 1)
  made = runner_of(tmp_path, 'fedavg', 'hospitals', 1)
  made.run([name])
  (path,) = tmp_path.glob('*/hospitals-*.npz')
  whole = path.read_bytes()
  for content in (whole[:-10], b'', *(flipped(whole, i) for i in range(60))):
    path.write_bytes(content)
    again = runner_of(tmp_path, 'fedavg', 'hospitals', 1)
    try:
      again._saved(path)
    except errors.SettingsError as e:
      assert f'{path} cannot be read as records of runs' in str(e)
    else:
      assert content not in (whole[:-10], b'')


def flipped(content, number):
  """With a bit of the content changed."""
  place = len(content) * number // 60
  bit = content[place] ^ (1 << number % 8)
  return content[:place] + bytes([bit]) + content[place + 1 :]


def test_a_method_whose_code_fails_for_some_trials(tmp_path, monkeypatch):
  """The others train, one at a time."""
  build = experiment.build

  def fails(settings, task):
    if settings.configuration.values['client_learning_rate'] > 0.1:
      raise TypeError('my own mistake')
    return build(settings, task)

  monkeypatch.setattr(experiment, 'build', fails)
  made = runner_of(tmp_path, 'fedavg', 'hospitals', 2)
  names = [entries.name_of('hospitals', trial, 1) for trial in range(4)]
  ends = {n: r.status for n, r in made.run(names).items()}
  assert {*ends.values()} == {'finished', 'failed'}
  assert all('my own mistake' in reason for reason in made.reasons.values())
  assert made.alone == {'hospitals': 'my own mistake'}


def test_a_round_whose_memory_is_scarce_is_divided(tmp_path, monkeypatch):
  monkeypatch.setattr(together, '_BYTES', 1)
  check(tmp_path, 'scaffold', 'hospitals', count=2)
