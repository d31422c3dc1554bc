"""Clients spread over worker processes, of which some die."""

import collections
import contextlib
import csv
import os
import pathlib
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import runtime
from tff_adaptive.runtime import worker

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_FLOATS = tff.FederatedType(np.float32, tff.CLIENTS)


class _Server:
  """A worker, started as people start one."""

  def __init__(self, **flags):
    self.process = subprocess.Popen(
      [
        sys.executable,
        'main.py',
        'worker',
        '--port=0',
        '--end_with_parent',
        *(f'--{name}={value}' for name, value in flags.items()),
      ],
      cwd=_ROOT,
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
      text=True,
    )

  @property
  def address(self) -> str:
    if not hasattr(self, '_address'):
      line = self.process.stdout.readline()  # Printed once it can be reached.
      assert 'listening on' in line, line
      self._address = f'127.0.0.1:{line.split()[3].rpartition(":")[2]}'
    return self._address

  def kill(self):
    self.process.kill()
    self.process.wait()


@contextlib.contextmanager
def _servers(*arguments):
  servers = [_Server(**a) for a in arguments]
  try:
    yield servers
  finally:
    for server in servers:
      server.kill()
      server.process.stdout.close()


@pytest.fixture(name='workers', scope='module')
def _workers():
  with _servers({}, {}) as servers:
    yield [server.address for server in servers]


@tff.tensorflow.computation(np.float32)
def _square(x):
  return x * x


@tff.federated_computation(_FLOATS)
def _sum_of_squares(values):
  return tff.federated_sum(tff.federated_map(_square, values))


def _process():
  spec = collections.OrderedDict(
    x=tf.TensorSpec([None, 4], tf.float32),
    y=tf.TensorSpec([None, 1], tf.int64),
  )

  def model_fn():
    return tff.learning.models.from_keras_model(
      tf.keras.Sequential(
        [
          tf.keras.layers.InputLayer([4]),
          tf.keras.layers.Dense(3, kernel_initializer='zeros'),
        ]
      ),
      loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
      input_spec=spec,
    )

  return tff.learning.algorithms.build_weighted_fed_avg(
    model_fn,
    client_optimizer_fn=tff.learning.optimizers.build_sgdm(0.1),
    server_optimizer_fn=tff.learning.optimizers.build_adam(0.1),
  )


def _clients():
  rng = np.random.default_rng(0)
  return [
    tf.data.Dataset.from_tensor_slices(
      collections.OrderedDict(
        x=rng.normal(size=(n, 4)).astype(np.float32),
        y=rng.integers(0, 3, (n, 1)),
      )
    ).batch(4)
    for n in (11, 5, 8, 1, 6)
  ]


def _train(context, rounds, between=lambda r: None):
  with tff.framework.get_context_stack().install(context):
    process = _process()
    state = process.initialize()
    metrics = []
    for r in range(rounds):
      between(r)
      output = process.next(state, _clients())
      state = output.state
      metrics.append(output.metrics['client_work']['train'])
    return process.get_model_weights(state).trainable, metrics


def _assert_same(left, right):
  for a, b in zip(left[0], right[0]):
    np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
  for a, b in zip(left[1], right[1]):
    assert a.keys() == b.keys()
    for key in a:
      np.testing.assert_allclose(a[key], b[key], rtol=1e-4)


@pytest.fixture(name='expected', scope='module')
def _expected():
  return _train(runtime.create_in_process_context(), 3)


def test_training_on_two_workers_equals_training_here(workers, expected):
  context = runtime.create_remote_context(workers)
  _assert_same(_train(context, 3), expected)
  context.close()


def test_training_goes_on_when_a_worker_dies(workers, expected):
  with _servers({}) as (victim,):
    context = runtime.create_remote_context([workers[0], victim.address])

    def between(r):
      if r == 1:
        victim.kill()

    _assert_same(_train(context, 3, between), expected)
    assert [w.address for w in context.workers] == [workers[0]]
    context.close()


@pytest.mark.slow
def test_without_retries_the_lost_worker_is_named(workers):
  with _servers({}) as (victim,):
    context = runtime.create_remote_context(
      [workers[0], victim.address], retries=0
    )
    with tff.framework.get_context_stack().install(context):
      assert _sum_of_squares([1.0, 2.0, 3.0]) == 14.0
      victim.kill()
      with pytest.raises(runtime.WorkerFailure, match=victim.address):
        _sum_of_squares([1.0, 2.0, 3.0])
      # The next computation runs on what is left.
      assert _sum_of_squares([1.0, 2.0, 3.0]) == 14.0
    context.close()


@pytest.mark.slow
def test_silent_worker_is_lost_within_the_stated_time(workers):
  with _servers({}) as (victim,):
    context = runtime.create_remote_context(
      [workers[0], victim.address], worker_timeout=1.0
    )
    with tff.framework.get_context_stack().install(context):
      assert _sum_of_squares([1.0, 2.0]) == 5.0
      os.kill(victim.process.pid, signal.SIGSTOP)
      start = time.monotonic()
      assert _sum_of_squares([1.0, 2.0]) == 5.0
      assert time.monotonic() - start < 15.0
    context.close()


def test_what_cannot_be_cut_runs_on_one_worker(workers):
  @tff.tensorflow.computation(np.float32, np.float32)
  def squared_distance(value, mean):
    return (value - mean) ** 2

  @tff.federated_computation(_FLOATS)
  def variance(values):
    mean = tff.federated_broadcast(tff.federated_mean(values))
    return tff.federated_mean(
      tff.federated_map(squared_distance, (values, mean))
    )

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def secure(values):
    return tff.federated_secure_sum(values, 10)

  context = runtime.create_remote_context(workers)
  with tff.framework.get_context_stack().install(context):
    assert variance([1.0, 2.0, 6.0]) == pytest.approx(14 / 3)
    assert secure([3, 4]) == 7
  context.close()


def test_client_results_come_back_in_order(workers):
  @tff.federated_computation(_FLOATS)
  def squares(values):
    return tff.federated_map(_square, values)

  context = runtime.create_remote_context(workers)
  with tff.framework.get_context_stack().install(context):
    # Often: which worker is first to finish must not matter.
    for _ in range(10):
      assert squares([1.0, 2.0, 3.0]) == [1.0, 4.0, 9.0]
  context.close()


def test_failing_client_is_reported_and_no_worker_is_lost(workers):
  @tff.tensorflow.computation(np.int32)
  def divide(x):
    return 10 // x

  @tff.federated_computation(tff.FederatedType(np.int32, tff.CLIENTS))
  def compute(values):
    return tff.federated_sum(tff.federated_map(divide, values))

  context = runtime.create_remote_context(workers)
  with tff.framework.get_context_stack().install(context):
    with pytest.raises(runtime.RuntimeFailure, match='Client 0 of 1 failed'):
      compute([1, 0])
    assert compute([1, 2]) == 15
    assert len(context.workers) == 2
  context.close()


def _rows(folder):
  """metrics.csv without what depends on the machine."""
  with open(folder / 'metrics.csv', encoding='utf-8') as file:
    return [
      {k: float(v or 'nan') for k, v in row.items() if 'seconds' not in k}
      for row in csv.DictReader(file)
    ]


@pytest.mark.slow
def test_run_survives_a_killed_worker(tmp_path):
  def arguments(name, *runtime_flags):
    return [
      sys.executable,
      'main.py',
      '--data=synthetic',
      '--total_rounds=40',
      '--clients_per_round=5',
      '--rounds_per_eval=5',
      '--num_validation_examples=20',
      f'--root_output_dir={tmp_path}',
      f'--experiment_name={name}',
      *runtime_flags,
    ]

  def start(name, *runtime_flags):
    with open(tmp_path / f'{name}.log', 'w', encoding='utf-8') as log:
      return subprocess.Popen(
        arguments(name, *runtime_flags), cwd=_ROOT, stdout=log, stderr=log
      )

  def said(name):
    return (tmp_path / f'{name}.log').read_text()

  alone = start('alone')
  with _servers({}, {}) as (survivor, victim):
    remote = (
      '--runtime=remote',
      f'--worker_addresses={survivor.address},{victim.address}',
    )
    process = start('remote', *remote)
    metrics = tmp_path / 'remote' / 'metrics.csv'
    assert worker.wait_until(
      lambda: metrics.exists() and metrics.read_text().count('\n') > 5, 120
    ), said('remote')
    victim.kill()
    assert process.wait(240) == 0, said('remote')
    assert f'worker at {victim.address}' in said('remote')
    assert f'Going on with {survivor.address}' in said('remote')
    assert alone.wait(240) == 0, said('alone')
    ours, theirs = _rows(tmp_path / 'remote'), _rows(tmp_path / 'alone')
    assert len(ours) == len(theirs) == 41
    for a, b in zip(ours, theirs, strict=True):
      assert a.keys() == b.keys()
      np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-3)
    # Without retries the run fails, with the address, and keeps its rounds.
    with _servers({}) as (second,):
      remote = (
        '--runtime=remote',
        f'--worker_addresses={survivor.address},{second.address}',
        '--worker_retries=0',
      )
      process = start('strict', *remote)
      metrics = tmp_path / 'strict' / 'metrics.csv'
      assert worker.wait_until(
        lambda: metrics.exists() and metrics.read_text().count('\n') > 5, 120
      ), said('strict')
      second.kill()
      assert process.wait(120) == 1, said('strict')
      assert second.address in said('strict').splitlines()[-1]
    done = subprocess.run(
      arguments('strict', remote[0], f'--worker_addresses={survivor.address}'),
      cwd=_ROOT,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
      check=False,
    )
    assert done.returncode == 0
    for a, b in zip(_rows(tmp_path / 'strict'), theirs, strict=True):
      np.testing.assert_allclose(list(a.values()), list(b.values()), rtol=1e-3)


def test_unreachable_address_is_named():
  address = f'127.0.0.1:{worker.free_port()}'
  with pytest.raises(runtime.WorkerFailure, match=address):
    runtime.create_remote_context([address], connect_timeout=0.5)


@pytest.mark.parametrize(
  'addresses',
  [[], 'localhost:1', ['localhost'], ['localhost:x'], ['a:1', 'a:1']],
)
def test_malformed_addresses_are_refused(addresses):
  with pytest.raises(ValueError, match='address'):
    runtime.create_remote_context(addresses)


@pytest.mark.slow
def test_worker_listens_on_loopback_and_ends_on_sigterm():
  with _servers({}) as (server,):
    port = int(server.address.rpartition(':')[2])
    assert worker.accepts_connections('127.0.0.1', port)
    listening = []
    for table in ('tcp', 'tcp6'):
      with open(f'/proc/net/{table}', encoding='ascii') as file:
        for line in file:
          local, state = line.split()[1], line.split()[3]
          if state == '0A' and local.endswith(f':{port:04X}'):
            listening.append(local.split(':')[0])
    # 127.0.0.1, as it is or in IPv6's clothes.
    assert len(listening) == 1 and listening[0].endswith('0100007F')
    server.process.terminate()
    assert server.process.wait(timeout=20) == 0


@pytest.mark.parametrize(
  'arguments, message',
  [
    ({'engine': 'fast'}, 'in_process'),
    ({'engine': 'native'}, '0.0.0.0'),
    ({'certificate': 'file'}, 'private_key'),
    ({'trainer_certificate': 'file'}, 'certificate'),
  ],
)
def test_worker_arguments_are_checked(arguments, message):
  with pytest.raises(ValueError, match=message):
    runtime.serve_worker(0, **arguments)


def _make_certificates(folder):
  """A CA and one certificate for 127.0.0.1, signed by it."""
  x509 = pytest.importorskip('cryptography.x509')
  import datetime  # pylint: disable=g-import-not-at-top
  import ipaddress  # pylint: disable=g-import-not-at-top

  from cryptography.hazmat.primitives import hashes  # pylint: disable=g-import-not-at-top
  from cryptography.hazmat.primitives import serialization  # pylint: disable=g-import-not-at-top
  from cryptography.hazmat.primitives.asymmetric import ec  # pylint: disable=g-import-not-at-top

  now = datetime.datetime.utcnow()

  def make(name, issuer, issuer_key, is_ca):
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
      [x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name)]
    )
    certificate = (
      x509.CertificateBuilder()
      .subject_name(subject)
      .issuer_name(issuer or subject)
      .public_key(key.public_key())
      .serial_number(x509.random_serial_number())
      .not_valid_before(now - datetime.timedelta(days=1))
      .not_valid_after(now + datetime.timedelta(days=1))
      .add_extension(x509.BasicConstraints(is_ca, None), critical=True)
      .add_extension(
        x509.SubjectAlternativeName(
          [x509.IPAddress(ipaddress.ip_address('127.0.0.1'))]
        ),
        critical=False,
      )
      .sign(issuer_key or key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / f'{name}.pem').write_bytes(certificate.public_bytes(pem))
    (folder / f'{name}.key').write_bytes(
      key.private_bytes(
        pem,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
      )
    )
    return subject, key

  subject, key = make('ca', None, None, True)
  make('worker', subject, key, False)


@pytest.mark.slow
def test_tls_with_client_authentication(tmp_path):
  _make_certificates(tmp_path)
  ca, certificate, key = (
    str(tmp_path / name) for name in ('ca.pem', 'worker.pem', 'worker.key')
  )
  with _servers(
    {'certificate': certificate, 'private_key': key, 'trainer_certificate': ca}
  ) as (server,):
    context = runtime.create_remote_context(
      [server.address],
      worker_certificate=ca,
      trainer_certificate=certificate,
      trainer_private_key=key,
    )
    with tff.framework.get_context_stack().install(context):
      assert _sum_of_squares([1.0, 2.0]) == 5.0
    context.close()
    with pytest.raises(runtime.WorkerFailure, match=server.address):
      runtime.create_remote_context([server.address], connect_timeout=1.0)
    with pytest.raises(runtime.WorkerFailure, match=server.address):
      runtime.create_remote_context(
        [server.address], worker_certificate=ca, connect_timeout=1.0
      )


@pytest.mark.slow
def test_tffs_own_worker_can_serve(expected):
  with _servers(
    {'engine': 'native', 'bind_address': '0.0.0.0', 'insecure': True}
  ) as (server,):
    context = runtime.create_remote_context([server.address])
    _assert_same(_train(context, 3), expected)
    context.close()
