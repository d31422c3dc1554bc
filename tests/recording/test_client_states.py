"""What clients keep: in memory, on disk, in checkpoints."""

import collections

import numpy as np
import pytest

from tests import helpers
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.recording import checkpoints
from tff_adaptive.recording import client_states
from tff_adaptive.training import evaluation
from tff_adaptive.training import rounds

RECORD = client_states.Record(
  ((), (2, 3)), (np.dtype(np.bool_), np.dtype(np.float32))
)


def state(number):
  return [np.array(True), np.full([2, 3], number, np.float32)]


def values(store, clients):
  return [
    None if store.get(c) is None else float(store.get(c)[1][0, 0])
    for c in clients
  ]


@pytest.fixture(params=['memory', 'disk'], name='make')
def make_fixture(request, tmp_path):
  path = tmp_path / 'run' / 'client_states.bin'

  def make():
    if request.param == 'memory':
      return client_states.MemoryStates(RECORD)
    return client_states.DiskStates(RECORD, path)

  make.path = path
  return make


def restored(make, saved, store=None, record=RECORD, known=None):
  store = store or make()
  client_states.restore(store, record, saved, make.path, known)
  return store


def test_states_are_kept_by_client(make):
  store = make()
  assert store.get('a') is None
  store.put('a', state(1))
  store.put('b', state(2))
  before = store.snapshot()
  store.put('a', state(3))
  store.put('c', state(4))
  assert values(store, 'abcd') == [3, 2, 4, None]
  store.roll_back(before)
  assert values(store, 'abc') == [1, 2, None]
  first, second = store.get('a')
  assert first.dtype == bool and first.shape == () and second.shape == (2, 3)


def test_every_checkpoint_that_is_kept_stays_readable(make):
  """Also after a resumption, and however often states change."""
  store, saves = make(), []
  rng = np.random.default_rng(1)
  truth = {}
  for number in range(40):
    if number == 20:
      store = restored(make, saves[-1][0])
    for _ in range(10):  # Rounds between checkpoints.
      before = store.snapshot()
      for client in 'abc':  # A round that fails.
        store.put(client, state(-1))
      store.roll_back(before)
      store.snapshot()
      for client in rng.choice(list('abcdefgh'), 3, replace=False):
        store.put(str(client), state(100 * number + ord(client)))
        truth[str(client)] = 100 * number + ord(client)
    saves.append((store.save(), dict(truth)))
    for saved, then in saves[-3:]:
      again = restored(make, saved)
      assert values(again, sorted(then)) == [then[c] for c in sorted(then)]
    if number == 35:  # The latest checkpoint turns out to be damaged.
      saves.pop()
      truth = dict(saves[-1][1])
      store = restored(make, saves[-1][0])
  if isinstance(store, client_states.DiskStates):
    # Places are used again.
    assert make.path.stat().st_size < 250 * RECORD.size


@pytest.mark.parametrize(
  'first, second', [('memory', 'disk'), ('disk', 'memory')]
)
def test_a_run_may_go_on_in_the_other_way(first, second, tmp_path):
  path = tmp_path / 'states.bin'
  kinds = {
    'memory': lambda: client_states.MemoryStates(RECORD),
    'disk': lambda: client_states.DiskStates(RECORD, path),
  }
  store = kinds[first]()
  store.put('a', state(1))
  store.put('b', state(2))
  other = kinds[second]()
  client_states.restore(other, RECORD, store.save(), path, ['a', 'b', 'c'])
  assert values(other, 'abc') == [1, 2, None]


def test_damage_to_the_file_means_the_checkpoint_before(tmp_path):
  path = tmp_path / 'states.bin'
  store = client_states.DiskStates(RECORD, path)
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  store.put('b', state(7))
  for number in (1, 2, 3):
    store.put('a', state(number))
    saved = store.save()
    keeper.save(saved, number)

  def resume():
    again = client_states.DiskStates(RECORD, path)
    said = []
    number, _ = checkpoints.Checkpoints(
      tmp_path / 'c', warn=said.append
    ).load_latest(
      saved,
      lambda found: client_states.restore(again, RECORD, found, path, 'ab'),
    )
    return number, values(again, 'ab'), said

  assert resume() == (3, [3, 7], [])
  slot = dict(zip(saved['ids'].tolist(), saved['slots'], strict=True))
  whole = path.read_bytes()

  def damage(client):
    data = bytearray(whole)
    data[slot[client] * RECORD.size + 5] ^= 1
    path.write_bytes(data)

  # What all of them need: nothing is set aside, and it can be brought back.
  damage(b'b')
  with pytest.raises(errors.RunError, match=r"No.*states.bin.*client 'b'.*re"):
    resume()
  path.unlink()
  with pytest.raises(errors.RunError, match=r'states\.bin is not there'):
    resume()
  assert not path.exists() and keeper.rounds == [1, 2, 3]
  damage(b'a')
  number, found, (said,) = resume()
  assert number == 2 and found == [2, 7]
  assert 'round 3 is damaged; it was set aside' in said
  assert "states.bin does not hold the state of client 'a'" in said


def test_states_of_another_model_or_population(make):
  store = make()
  store.put('a', state(1))
  saved = store.save()
  other = client_states.Record(((), (4,)), RECORD.dtypes)
  with pytest.raises(errors.RunError) as error:
    restored(make, saved, record=other)
  assert 'another model' in str(error.value)
  assert '[2, 3]' in str(error.value) and '[4]' in str(error.value)
  with pytest.raises(errors.RunError, match='another population'):
    restored(make, saved, known=['b', 'c'])


def choose(kind, tmp_path, **changes):
  arguments = dict(
    clients=1000,
    clients_per_round=10,
    total_rounds=50,
    rounds_per_checkpoint=5,
    memory_bytes=500 * RECORD.size,
    free_bytes=2000 * RECORD.size,
  )
  return client_states.choose(
    kind, RECORD, tmp_path / 'states.bin', **(arguments | changes)
  )


def test_where_states_are(tmp_path):
  assert RECORD.size == 25
  kind = client_states.MemoryStates
  assert isinstance(choose('auto', tmp_path), kind)
  assert isinstance(choose('memory', tmp_path), kind)
  less = dict(memory_bytes=499 * RECORD.size)
  assert isinstance(choose('auto', tmp_path, **less), client_states.DiskStates)
  assert isinstance(choose('disk', tmp_path), client_states.DiskStates)
  # Fewer clients than there are can be seen in fewer rounds.
  assert isinstance(choose('auto', tmp_path, clients=499, **less), kind)
  assert isinstance(choose('auto', tmp_path, total_rounds=49, **less), kind)


def test_a_population_that_fits_nowhere_is_refused_with_the_arithmetic(
  tmp_path,
):
  less = dict(memory_bytes=499 * RECORD.size)
  with pytest.raises(errors.SettingsError) as error:
    choose('memory', tmp_path, **less)
  assert '500 clients x 25 bytes that each keeps = 12,500 bytes' in str(
    error.value
  )
  # 500 records and 5 checkpoints of 50 changed ones.
  enough = 750 * RECORD.size
  choose('disk', tmp_path, free_bytes=enough)
  with pytest.raises(errors.SettingsError) as error:
    choose('auto', tmp_path, free_bytes=enough - 1, **less)
  message = str(error.value)
  for part in ('500 clients x 25', '18,750', '12,475', '18,749'):
    assert part in message
  assert '\n' not in message and message.endswith('.')


@pytest.mark.usefixtures('in_process_context')
def test_scaffold_goes_on_exactly_from_disk(tmp_path):
  task = helpers.task()
  data = task.datasets.train_data
  process = algorithms.build(
    'scaffold', task.model_fn, population=4, client_learning_rate=0.1
  )
  initial = evaluation.Evaluator(task.model_fn).weights
  cohorts = [(0, 2), (2, 3), (0, 1), (1, 2), (0, 3), (3, 2)]

  def build(name):
    path = tmp_path / name / 'client_states.bin'
    store = None
    if name != 'memory':
      store = lambda record: client_states.DiskStates(record, path)
    return rounds.build(
      process,
      initial_weights=initial,
      store=store,
      path=path,
      client_ids=data.client_ids,
    )

  def run(learning, cohort):
    ids = [f'client_{i}' for i in cohort]
    return learning.run(
      ids,
      [
        helpers.preprocess(data.create_tf_dataset_for_client(i)) for i in ids
      ],
    )  # fmt: skip

  path = collections.defaultdict(list)
  for name in ('memory', 'disk'):
    learning = build(name)
    keeper = checkpoints.Checkpoints(tmp_path / name / 'checkpoints')
    for number, cohort in enumerate(cohorts, 1):
      if name == 'disk' and number in (3, 5):
        # A round that was not finished, then another process.
        run(learning, (1, 3))
        learning = build(name)
        done, saved = keeper.load_latest(learning.program_state)
        assert done == number - 1
        learning.restore(saved)
      run(learning, cohort)
      keeper.save(learning.program_state, number)
      path[name].append(learning.model_weights().trainable)
  for one, other in zip(path['memory'], path['disk'], strict=True):
    for a, b in zip(one, other, strict=True):
      np.testing.assert_array_equal(a, b)
