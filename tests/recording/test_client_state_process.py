"""Methods with memory as ordinary learning processes."""

import asyncio
import collections
import functools

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tests.algorithms import test_scaffold as paper
from tests.processes import linear
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive import runtime
from tff_adaptive.recording import client_state

_METHODS = {
  'scaffold': dict(population=3, client_learning_rate=paper.RATE),
  'feddyn': dict(client_learning_rate=paper.RATE),
  'fadamgc': dict(population=3, client_learning_rate=0.01),
  'fedef21': dict(population=3, client_learning_rate=paper.RATE),
  'diloco': dict(client_learning_rate=0.01),
}


@functools.cache
def stateful(name):
  return algorithms.build(name, linear.model_fn, **_METHODS[name])


def build(name='scaffold', **options):
  inner = stateful(name)
  return inner, client_state.learning_process(inner, **options)


def data_of(cohort):
  datasets = linear.datasets([linear.CLIENTS[i] for i in cohort])
  return [(f'client {i}', d) for i, d in zip(cohort, datasets, strict=True)]


def run(process, rounds, state=None):
  state = process.initialize() if state is None else state
  states, path = [state], []
  for cohort in rounds:
    output = process.next(state, data_of(cohort))
    state = output.state
    states.append(state)
    path.append(linear.weight_of(process, state))
  return path, states


@pytest.mark.usefixtures('in_process_context')
class TestInThisProcess:
  @pytest.mark.exhaustive
  @pytest.mark.parametrize('name', sorted(_METHODS))
  def test_it_does_what_memories_kept_by_hand_do(self, name):
    inner, process = build(name)
    assert isinstance(process, tff.learning.templates.LearningProcess)
    expected, _, _ = paper.run(inner, paper.ROUNDS)
    path, _ = run(process, paper.ROUNDS)
    assert path == expected

  def test_it_follows_the_paper(self):
    _, process = build()
    path, _ = run(process, paper.ROUNDS)
    np.testing.assert_allclose(
      path, paper.scaffold(paper.ROUNDS, 3)[0], rtol=1e-4
    )

  def test_an_earlier_state_has_the_memories_of_its_time(self):
    _, process = build()
    path, states = run(process, paper.ROUNDS)
    for number in (2, 3, 1):
      again, _ = run(process, paper.ROUNDS[number:], states[number])
      assert again == path[number:]
    anew, _ = run(process, paper.ROUNDS)
    assert anew == path

  def test_states_of_another_training_are_refused(self, tmp_path):
    _, process = build(path=tmp_path / 'memories.sqlite')
    _, states = run(process, paper.ROUNDS[:2])
    _, others = run(build()[1], [(2,), (0, 1)])
    for stranger in (process, build()[1]):
      with pytest.raises(
        errors.RunError, match='client states of this server state'
      ):
        run(stranger, [(0, 1)], others[1])
    run(process, [(0, 1)], states[2])

  def test_another_process_goes_on_from_the_file(self, tmp_path):
    path = tmp_path / 'memories.sqlite'
    whole, _ = run(build()[1], paper.ROUNDS)
    _, states = run(build(path=path)[1], paper.ROUNDS[:2])
    rest, _ = run(build(path=path)[1], paper.ROUNDS[2:], states[2])
    assert rest == whole[2:]
    with pytest.raises(errors.RunError, match='build one process per training'):
      run(build()[1], paper.ROUNDS[2:], states[2])

  def test_weights_and_hyperparameters_are_set_beside_the_memories(self):
    inner, process = build()
    _, (_, state) = run(process, [(0, 1)])
    weights = process.get_model_weights(state)
    hparams = process.get_hparams(state)
    assert hparams == inner.get_hparams(client_state._without_token(state))
    doubled = tf.nest.map_structure(lambda w: 2 * w, weights)
    changed = process.set_model_weights(state, doubled)
    assert linear.weight_of(process, changed) == pytest.approx(
      2 * linear.weight_of(process, state)
    )
    changed = process.set_hparams(changed, hparams)
    for name in ('version', 'clients', 'checksum'):
      kept = state.distributor['client_states'][name]
      assert changed.distributor['client_states'][name] == kept
    run(process, [(0, 2)], changed)

  def test_mistakes(self):
    _, process = build()
    state = process.initialize()
    with pytest.raises(ValueError, match="'client 1' is listed 2 times"):
      process.next(state, data_of((0, 1, 1)))
    fedavg = algorithms.build('fedavg', linear.model_fn)
    with pytest.raises(TypeError, match='can be used directly'):
      client_state.learning_process(fedavg)

    @tff.tensorflow.computation(np.str_)
    def numbers(client_id):
      return tf.data.Dataset.range(
        tf.cast(tf.strings.length(client_id), tf.int64)
      )

    with pytest.raises(TypeError, match='`dataset_computation` must return'):
      build(dataset_computation=numbers)


@tff.tensorflow.computation(np.str_)
def dataset_of(client_id):
  """A client's batches, made from its id."""
  slope = tf.strings.to_number(client_id)
  x = tf.range(8.0)[:, tf.newaxis] / 8
  return tf.data.Dataset.from_tensor_slices(
    collections.OrderedDict(x=x, y=slope * x)
  ).batch(4)


def line_fn():
  number = tf.TensorSpec([None, 1], tf.float32)
  return tff.learning.models.from_keras_model(
    tf.keras.Sequential(
      [
        tf.keras.layers.InputLayer([1]),
        tf.keras.layers.Dense(2, kernel_initializer='ones'),
        tf.keras.layers.Dense(1, kernel_initializer='ones'),
      ]
    ),
    loss=tf.keras.losses.MeanSquaredError(),
    input_spec=collections.OrderedDict(x=number, y=number),
  )


@pytest.fixture(name='default_context')
def default_context_fixture():
  """Restores TFF's default context after a test that sets it."""
  before = tff.framework.get_context_stack().current
  yield
  current = tff.framework.get_context_stack().current
  if current is not before:
    current.close()
  tff.framework.set_default_context(before)


_IDS = ['1', '2', '3', '4']


def train(name, rounds, folder, **managers):
  """TFF's own training program with a method that keeps something."""
  inner = algorithms.build(name, line_fn, client_learning_rate=0.05)
  metrics = tff.program.MemoryReleaseManager()
  asyncio.run(
    tff.learning.programs.train_model(
      train_process=client_state.learning_process(
        inner, dataset_computation=dataset_of, path=folder / 'memories.sqlite'
      ),
      train_data_source=tff.program.ClientIdDataSource(_IDS),
      train_per_round_clients=len(_IDS),
      train_total_rounds=rounds,
      program_state_manager=tff.program.FileProgramStateManager(
        folder / 'state'
      ),
      model_output_manager=tff.program.MemoryReleaseManager(),
      train_metrics_manager=metrics,
      evaluation_manager=None,
      evaluation_periodicity=1,
      **managers,
    )
  )
  return {
    number: float(values['model_metrics']['loss'])
    for number, values in metrics.values().items()
  }


@pytest.mark.exhaustive
def test_train_model_of_tff(tmp_path, default_context):
  """Uninterrupted, gone on with, and with a round that is thrown away."""
  del default_context
  runtime.set_in_process_context(asynchronous=True)
  whole = train('moon', 3, tmp_path / 'whole')
  assert list(whole) == [1, 2, 3] and whole[3] < whole[1]
  begun = train('moon', 1, tmp_path / 'parts')
  calls = []

  def should_discard(output):
    calls.append(float(output.metrics['client_work']['train']['loss']))
    return len(calls) == 1

  rest = train(
    'moon', 3, tmp_path / 'parts', should_discard_round=should_discard
  )
  assert list(rest) == [2, 3] and len(calls) == 3
  assert {**begun, **rest} == pytest.approx(whole, rel=1e-5)


def test_a_context_of_tff_s_programs_that_is_not_ours(default_context):
  del default_context
  runtime.set_in_process_context()
  _, process = build()
  state = process.initialize()
  bare = runtime.create_in_process_context(asynchronous=True)
  foreign = tff.program.NativeFederatedContext(bare)
  with (
    tff.framework.get_context_stack().install(foreign),
    pytest.raises(TypeError, match='got NativeFederatedContext'),
  ):
    process.next(state, data_of((0, 1)))
  bare.close()
