"""Training data that are read where clients train."""

import functools
import pickle
import signal
import socket
import time

import numpy as np
import psutil
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests import programs
from tests import ray_nodes as nodes
from tests import recorded
from tests import runs
from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.lab.training import experiment
from tff_adaptive.lab.training import reuse
from tff_adaptive.lab.training.data import remote_data

pytestmark = pytest.mark.usefixtures('undrawn')


def _settings(folder, name, *more):
  usual = ['--data=synthetic', '--total_rounds=4', '--clients_per_round=5']
  usual += ['--rounds_per_eval=2']
  return runs.settings_of(folder, *usual, *more, name=name)


def _clients(settings, make=experiment.training_data):
  here = experiment.training_data(settings)
  source = remote_data.Source(functools.partial(make, settings))
  return here, remote_data.RemoteClients(here, {}, source)


def test_the_examples_are_the_same_to_the_bit(tmp_path):
  settings = _settings(tmp_path, 'run', '--task=cifar10_image')
  here, referred = _clients(settings)
  cohort = here.client_ids[:3]
  sent = pickle.dumps(referred.for_round(7, cohort).batches)
  assert len(sent) < 20_000
  found = pickle.loads(sent)
  made = remote_data.BatchReference.load(found)
  for ours, theirs in zip(made, here.for_round(7, cohort).batches, strict=True):
    for a, b in zip(ours, theirs, strict=True):
      tf.nest.map_structure(np.testing.assert_array_equal, a, b)


@pytest.fixture(name='address')
def _address(ray_nodes):
  yield f'--ray_address={ray_nodes.address}'
  for context in reuse._contexts.values():
    context.close()
  reuse.clear()


def _assert_same_rows(ours, theirs):
  """Of metrics.csv, apart from what depends on the machine."""
  ours, theirs = recorded.rows(ours.folder), recorded.rows(theirs.folder)
  assert len(ours) == len(theirs)
  for a, b in zip(ours, theirs, strict=True):
    assert a.keys() == b.keys()
    for name in a:
      if 'seconds' not in name:
        np.testing.assert_allclose(
          float(a[name] or 'nan'), float(b[name] or 'nan'), rtol=1e-4
        )


@pytest.mark.exhaustive
@pytest.mark.parametrize(
  'more',
  [
    ['--client_optimizer=sgd', '--client_learning_rate=0.1'],
    [
      *('--algorithm=moon', '--asynchronous', '--concurrency=8'),
      '--client_seconds_per_example=1',
    ],
    ['--algorithm=centralized'],
  ],
)
def test_a_run_on_a_cluster_has_the_rows_of_one_here(address, tmp_path, more):
  cluster = _settings(tmp_path, 'cluster', '--runtime=ray', address, *more)
  alone = _settings(tmp_path, 'alone', *more)
  for settings in (cluster, alone):
    runs.train(settings)
  _assert_same_rows(cluster, alone)


@pytest.mark.exhaustive
def test_what_a_machine_lacks_is_named_with_the_machine(ray_nodes, tmp_path):
  settings = _settings(tmp_path, 'run')
  # The task's batches, whatever they are.
  here, referred = _clients(settings, make=_without_data)
  batch = tff.types.tensorflow_to_type(
    tf.nest.map_structure(
      lambda t: tf.TensorSpec([None, *t.shape[1:]], t.dtype),
      next(iter(here.for_client(here.client_ids[0], 1))),
    )
  )

  @tff.tensorflow.computation(tff.SequenceType(batch))
  def count(dataset):
    return dataset.reduce(0, lambda n, _: n + 1)

  @tff.federated_computation(
    tff.FederatedType(tff.SequenceType(batch), tff.CLIENTS)
  )
  def total(datasets):
    return tff.federated_sum(tff.federated_map(count, datasets))

  context = runtime.create_ray_context(ray_nodes.address)
  with tff.framework.get_context_stack().install(context):
    cohort = here.client_ids[:3]
    with pytest.raises(
      runtime.RuntimeFailure, match=r'On .*: --cache_dir=/data has no emnist'
    ):
      total(list(referred.for_round(1, cohort).batches))
    _, whole = _clients(settings)
    expected = sum(len(list(b)) for b in here.for_round(1, cohort).batches)
    assert total(list(whole.for_round(1, cohort).batches)) == expected
    # A client that there is not.
    bad = remote_data.BatchReference(
      whole.for_client(cohort[0], 1).source, '?', 1, 0
    )
    with pytest.raises(runtime.ClientFailure, match="client '\\?'") as failure:
      total([*whole.for_round(1, cohort).batches, bad])
    assert failure.value.client_index == 3
  context.close()


def _without_data(settings):
  del settings
  raise errors.SettingsError('--cache_dir=/data has no emnist.sqlite.')


class _Run:
  """Training as people start it, in a process of its own."""

  def __init__(self, root, name, *more):
    self.folder = root / name
    self._log = root / f'{name}.log'
    words = ['main.py', '--data=synthetic', '--client_optimizer=sgd']
    words += ['--client_learning_rate=0.1', '--total_rounds=60']
    words += ['--clients_per_round=20', '--rounds_per_eval=20']
    words += [f'--root_output_dir={root}', f'--experiment_name={name}', *more]
    self.process = programs.start(self._log, *words, cwd=programs.ROOT)

  @property
  def said(self):
    return self._log.read_text()

  def wait_for_rows(self, count):
    metrics = self.folder / 'metrics.csv'
    end = time.monotonic() + 120
    while not metrics.exists() or metrics.read_text().count('\n') < count:
      assert time.monotonic() < end and self.process.poll() is None, self.said
      time.sleep(0.02)

  def ends_with(self, code):
    assert self.process.wait(240) == code, self.said
    return self


@pytest.mark.slow
def test_a_run_survives_a_lost_machine_and_goes_on_after_all_are_lost(tmp_path):
  with nodes.started(cores_of_head=0) as cluster:
    cluster.add()
    on_cluster = ['--runtime=ray', f'--ray_address={cluster.address}']
    undisturbed = _Run(tmp_path, 'undisturbed', *on_cluster).ends_with(0)
    run = _Run(tmp_path, 'disturbed', *on_cluster)
    run.wait_for_rows(10)
    cluster.kill()
    run.ends_with(0)
    assert f'An actor on {socket.gethostname()} was lost' in run.said
    # The same to the bit: there are as many shares as before.
    expected = recorded.rows(undisturbed.folder)
    assert recorded.rows(run.folder) == expected
    # Ctrl-C leaves no actor.
    stopped = _Run(tmp_path, 'stopped', *on_cluster)
    stopped.wait_for_rows(5)
    stopped.process.send_signal(signal.SIGINT)
    stopped.ends_with(130)
    assert 'is saved; the same command resumes' in stopped.said
    deadline = time.monotonic() + 10
    while ray_actors() and time.monotonic() < deadline:
      time.sleep(0.1)
    assert not ray_actors()
    # No machine left.
    cluster.add()
    lost = _Run(tmp_path, 'lost', *on_cluster)
    lost.wait_for_rows(10)
    cluster.kill()
    cluster.kill()
    lost.ends_with(1)
    assert 'No actor can run' in lost.said
    for _ in range(2):
      cluster.add()
    _Run(tmp_path, 'lost', *on_cluster).ends_with(0)
    assert recorded.rows(lost.folder) == expected


def ray_actors():
  return [
    process
    for process in psutil.process_iter(['cmdline'])
    if process.info['cmdline']
    and process.info['cmdline'][0].startswith('ray::Actor')
  ]
