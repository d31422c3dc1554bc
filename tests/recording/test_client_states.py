"""What clients keep: in memory, on disk, in checkpoints."""

import collections
import contextlib
import resource
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import psutil
import pytest

from tests import helpers
from tests import tiers
from tests.recording import endless_writer
from tests.recording import no_files
from tests.reliability import mutations
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.recording.checkpoints import folder as checkpoints
from tff_adaptive.lab.recording.client_state import files as client_states
from tff_adaptive.lab.recording.client_state import storage as client_storage
from tff_adaptive.lab.training import initial_weights
from tff_adaptive.lab.training.loop import rounds

RECORD = client_states.Record(
  ((), (2, 3)), (np.dtype(np.bool_), np.dtype(np.float32))
)
KINDS = ('memory', 'disk')


def state(number):
  return [np.array(True), np.full([2, 3], number, np.float32)]


def values(store, clients):
  return [
    None if store.get(c) is None else float(store.get(c)[1][0, 0])
    for c in clients
  ]


@pytest.fixture(params=KINDS, name='make')
def make_fixture(request, tmp_path):
  """Makes a store of the same file, as another process would."""
  path = tmp_path / 'run' / 'client_states.sqlite'
  opened = []

  def make(saved=None, kind=request.param, record=RECORD, known=None):
    for store in opened:
      store._close()  # What was not saved is lost, as when a run is killed.
    store = client_states.ClientStates(record, path, in_memory=kind == 'memory')
    opened.append(store)
    if saved is not None:
      store.restore(saved, known)
    return store

  make.path = path
  return make


def rows_of(path):
  with contextlib.closing(sqlite3.connect(path)) as file:
    return file.execute(
      'SELECT client, version FROM states ORDER BY client, version'
    ).fetchall()


def test_states_are_kept_by_client(make):
  store = make()
  assert store.get('a') is None
  store.put('a', state(1))
  store.put('b', state(2))
  before = store.snapshot()
  store.put('a', state(3))
  store.put('c', state(4))
  assert values(store, 'abcd') == [3, 2, 4, None]
  for _ in range(2):
    store.roll_back(before)
    assert values(store, 'abc') == [1, 2, None]
    store.put('c', state(5))
  assert values(store, 'abc') == [1, 2, 5]
  first, second = store.get('a')
  assert first.dtype == bool and first.shape == () and second.shape == (2, 3)


def test_nothing_is_written_before_there_is_something_to_keep(make):
  store = make()
  store.roll_back(store.snapshot())
  saved = store.save()
  assert store.get('a') is None
  make(saved).save()
  assert not make.path.parent.exists()


def test_what_a_run_that_starts_afresh_finds_is_not_its_own(make):
  store = make()
  store.put('a', state(1))
  store.save()
  other = make()
  assert other.get('a') is None
  other.put('b', state(2))
  assert values(make(other.save()), 'ab') == [None, 2]


def test_a_checkpoint_says_the_same_wherever_states_are(tmp_path):
  saved = []
  for kind in KINDS:
    store = client_states.ClientStates(
      RECORD, tmp_path / kind, in_memory=kind == 'memory'
    )
    store.put('a', state(1))
    store.snapshot()
    store.put('b', state(2))
    store.save()
    store.put('a', state(3))
    saved.append(store.save())
  assert saved[0] == saved[1]
  assert saved[0]['version'] == 3 and saved[0]['clients'] == 2


def test_every_checkpoint_that_is_kept_stays_readable(make):
  """Also after a resumption, and however often states change."""
  store, saves = make(), []
  rng = np.random.default_rng(1)
  truth = {}
  for number in range(40):
    if number == 20:
      store = make(saves[-1][0])
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
    if number in (5, 35, 39):
      for saved, then in saves[-checkpoints.KEEP - 1 :]:
        again = make(saved)
        assert values(again, sorted(then)) == [then[c] for c in sorted(then)]
      store = make(saves[-1][0])
    if number == 35:  # The latest checkpoint turns out to be damaged.
      saves.pop()
      truth = dict(saves[-1][1])
      store = make(saves[-1][0])
  # What no checkpoint needs is gone: 8 clients and what changed since.
  assert len(rows_of(make.path)) <= 8 * (checkpoints.KEEP + 1)
  assert make.path.stat().st_size < 10 * client_states.PAGE


def test_versions_that_nobody_needs_are_pruned(make):
  store = make()
  for number in range(1, 8):
    for _ in range(3):
      store.snapshot()
      store.put('often', state(number))
    if number == 1:
      store.put('once', state(number))
    store.save()
  versions = [v for client, v in rows_of(make.path) if client == 'often']
  assert versions == [12, 15, 18, 21]
  assert ('once', 3) in rows_of(make.path)


def test_the_file_does_not_grow_with_rounds(make):
  record = client_states.Record(((50_000,),), (np.dtype(np.float32),))
  store = make(record=record)
  sizes = []
  for number in range(60):
    store.snapshot()
    for client in range(4):
      store.put(f'{(number + client) % 6}', [np.full(50_000, 1, np.float32)])
    store.save()
    sizes.append(make.path.stat().st_size)
  assert max(sizes[20:]) == max(sizes[:20])
  largest = (6 + client_states.SAVES * 4) * record.size_on_disk
  assert 20 * record.size < max(sizes) < largest


@pytest.mark.parametrize('first, second', [KINDS, KINDS[::-1]])
def test_a_run_may_go_on_in_the_other_way(first, second, make):
  store = make(kind=first)
  store.put('a', state(1))
  store.put('b', state(2))
  saved = store.save()
  other = make(saved, kind=second, known=['a', 'b', 'c'])
  assert values(other, 'abc') == [1, 2, None]
  assert other.save() == saved


def test_a_round_that_is_not_saved_is_lost_and_no_other(make):
  store = make()
  store.put('a', state(1))
  saved = store.save()
  store.snapshot()
  store.put('a', state(2))
  store.put('b', state(2))
  assert values(make(saved), 'ab') == [1, None]
  # The same where states were saved and the checkpoint was not.
  store = make(saved)
  store.put('a', state(3))
  store.put('b', state(3))
  store.save()
  store = make(saved)
  assert values(store, 'ab') == [1, None]
  store.put('b', state(4))
  assert values(make(store.save()), 'ab') == [1, 4]


def test_damage_to_the_file_means_the_checkpoint_before(make):
  store = make()
  keeper = checkpoints.Checkpoints(make.path.parent / 'c')
  store.put('b', state(7))
  for number in (1, 2, 3):
    store.put('a', state(number))
    saved = store.save()
    keeper.save(saved, number)

  def resume():
    again = make()
    said = []
    found = checkpoints.Checkpoints(
      make.path.parent / 'c', warn=said.append
    ).load_latest(saved, lambda found: again.restore(found, 'ab'))
    return found.round_number, values(again, 'ab'), said

  assert resume() == (3, [3, 7], [])
  make()
  whole = make.path.read_bytes()

  def damage(number):
    leaf = state(number)[1].tobytes()
    assert whole.count(leaf) == 1
    make.path.write_bytes(whole.replace(leaf, leaf[:-1] + b'\x01'))

  # What all of them need: nothing is set aside, and it can be brought back.
  damage(7)
  with pytest.raises(errors.RunError, match=r"No.*states.sqlite.*client 'b'"):
    resume()
  make()
  make.path.unlink()
  with pytest.raises(errors.RunError, match=r'states\.sqlite does not exist'):
    resume()
  assert not make.path.exists() and keeper.rounds == [1, 2, 3]
  damage(3)
  number, found, (said,) = resume()
  assert number == 2 and found == [2, 7]
  assert 'round 3 cannot be used and was set aside' in said
  assert "states.sqlite does not hold the state of client 'a'" in said


def execute(*statements):
  def change(path):
    with contextlib.closing(sqlite3.connect(path)) as file, file:
      for statement in statements:
        file.execute(statement)

  return change


def cut_half(path):
  path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwrite_header(path):
  path.write_bytes(b'\0' * 200 + path.read_bytes()[200:])


def overwrite_end(path):
  path.write_bytes(path.read_bytes()[:-60_000] + b'\xff' * 60_000)


@pytest.mark.parametrize(
  'change, complaint',
  [
    (execute("DELETE FROM states WHERE client = 'a'"), 'states of 2 clients'),
    (execute('UPDATE states SET version = 9'), 'the states of 2 clients'),
    (execute("UPDATE states SET client = 'c'||client"), "state of client 'c"),
    (execute('UPDATE states SET checksum = 0'), "the state of client 'a'"),
    (execute("UPDATE states SET leaves = 'text'"), "the state of client 'a'"),
    (execute('UPDATE states SET leaves = x\'00\''), "the state of client 'a'"),
    (execute("UPDATE states SET client = x'ff00'"), 'the state of client'),
    (
      execute("UPDATE states SET client = CAST(x'ff' AS TEXT)"),
      'cannot be read: Could not decode',
    ),
    (
      execute(
        'CREATE TRIGGER t AFTER INSERT ON saves BEGIN DELETE FROM states; END'
      ),
      "not a file of client states",
    ),
    (execute('DROP INDEX versions'), "not a file of client states"),
    (execute('DROP TABLE saves'), "not a file of client states"),
    (cut_half, 'client_states.sqlite'),
    (overwrite_header, 'cannot be read: file is not a database'),
    (overwrite_end, 'client_states.sqlite'),
    (lambda path: path.write_bytes(b''), "not a file of client states"),
    (lambda path: path.write_bytes(b'text' * 99), 'file is not a database'),
  ],
)  # fmt: skip
def test_files_that_do_not_hold_what_was_saved(make, change, complaint):
  store = make()
  store.put('a', state(1))
  store.put('b', state(2))
  saved = store.save()
  make()
  change(make.path)
  with pytest.raises(errors.DamagedError, match=complaint) as error:
    make(saved)
  assert str(make.path) in str(error.value) and '\n' not in str(error.value)


def test_states_of_another_run(make, tmp_path):
  """As many clients, in as many versions."""
  saves = []
  for number in (1, 2):
    store = make()
    store.put('a', state(number))
    saves.append(store.save())
  make(saves[1])
  with pytest.raises(errors.DamagedError, match='the checkpoint is of'):
    make(saves[0])


@pytest.mark.parametrize('suffix', ['', '-journal', '-wal'])
@pytest.mark.parametrize('kind', no_files.KINDS)
def test_what_is_no_file(make, kind, suffix):
  store = make()
  store.put('a', state(1))
  saved = store.save()
  make()
  path = make.path.with_name(make.path.name + suffix)
  path.unlink(missing_ok=True)
  no_files.KINDS[kind](path)
  with (
    mutations.no_hang(),
    pytest.raises(errors.DamagedError, match=f'it is {kind}, not a regular'),
  ):
    make(saved)


def test_damage_while_a_run_is_going_on(make):
  store = make(kind='disk')
  store.put('a', state(1))
  store.save()
  with open(make.path, 'r+b') as file:
    file.write(b'\xff' * make.path.stat().st_size)
  with pytest.raises(errors.DamagedError, match=str(make.path)):
    store.get('a')
  with pytest.raises(errors.RunError, match='cannot be written to'):
    store.put('b', state(1))


def test_states_of_another_model_or_population(make):
  store = make()
  store.put('a', state(1))
  saved = store.save()
  other = client_states.Record(((), (4,)), RECORD.dtypes)
  with pytest.raises(errors.DamagedError) as error:
    make(saved, record=other)
  assert 'another model' in str(error.value)
  assert '25 bytes' in str(error.value) and '17' in str(error.value)
  with pytest.raises(errors.RunError, match='another population'):
    make(saved, known=['b', 'c'])


def test_in_the_memory_of_another_process():
  store = client_states.ClientStates(RECORD)
  store.put('a', state(1))
  saved = store.save()
  assert values(store, 'a') == [1]
  with pytest.raises(errors.DamagedError, match='memory of another process'):
    client_states.ClientStates(RECORD).restore(saved)


@pytest.mark.parametrize('kind', KINDS)
def test_disk_that_takes_no_more(make, kind):
  """No state is lost without a word, and none that was saved."""
  record = client_states.Record(((100_000,),), (np.dtype(np.float32),))
  value = lambda number: [np.full(100_000, number, np.float32)]
  store = make(kind=kind, record=record)
  store.put('a', value(1))
  saved = store.save()
  limit = make.path.stat().st_size + 100_000
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
  try:
    with pytest.raises(errors.RunError, match=r'client states cannot be wri'):
      for number in range(2, 40):
        store.snapshot()
        store.put('a', value(number))
        store.put('b', value(number))
        store.save()
    if kind == 'disk':
      for action in (lambda: store.get('a'), store.save, store.snapshot):
        with pytest.raises(errors.RunError, match='cannot be written'):
          store.snapshot()
          store.put('c', value(0))
          action()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  if kind == 'memory':  # They are all there still.
    assert store.get('b')[0][0] == store.get('a')[0][0] > 1
    assert make(store.save(), record=record).get('b')[0][0] > 1
  else:
    again = make(saved, record=record)
    assert again.get('a')[0][0] == 1 and again.get('b') is None


@pytest.mark.parametrize('seed', tiers.exhaustive_but([0], range(3)))
def test_killed_at_any_moment(tmp_path, seed):
  path = tmp_path / 'client_states.sqlite'
  rng = np.random.default_rng(seed)
  kills = 0
  for _ in range(4):
    process = subprocess.Popen(
      [sys.executable, '-m', endless_writer.__name__, path],
      stdout=subprocess.PIPE,
      text=True,
    )
    lines = [process.stdout.readline()]
    time.sleep(rng.uniform(0, 0.2))
    process.kill()
    lines += process.communicate()[0].splitlines()
    whole = [words for line in lines if len(words := line.split()) == 4]
    kills += bool(list(path.parent.glob('*-journal')))
    for words in whole[-checkpoints.KEEP :]:
      number, *told = map(int, words)
      keys = ('version', 'clients', 'checksum')
      store = client_states.ClientStates(endless_writer.RECORD, path)
      store.restore(dict(zip(keys, told, strict=True)))
      last = {
        client: n
        for n in range(1, number + 1)
        for client in endless_writer.clients_of(n)
      }
      assert told[1] == len(last)
      for client, n in last.items():
        assert (store.get(client)[0] == n).all()
      store._close()
  assert kills  # Some hit a transaction.


def test_memory_is_flat_on_disk(tmp_path):
  record = client_states.Record(((250_000,),), (np.dtype(np.float32),))
  store = client_states.ClientStates(record, tmp_path / 's')
  used = []
  for number in range(60):
    store.snapshot()
    for client in range(5):
      name = f'{(number * 5 + client) % 150}'
      store.get(name)
      store.put(name, [np.full(250_000, number, np.float32)])
    if number % 7 == 6:
      store.save()
    used.append(psutil.Process().memory_info().rss)
  # 150 states are 150 MB.
  assert max(used[20:]) - max(used[:20]) < 20e6


def test_ids_may_be_anything_that_is_text(make):
  store = make()
  ids = ['', "'; DROP TABLE states; --", 'a\0b', 'é', '☃' * 999, 'a', 'A', 'a ']
  for number, client in enumerate(ids):
    store.put(client, state(number))
  again = make(store.save(), known=ids)
  assert values(again, ids) == list(range(len(ids)))


def choose(kind, tmp_path, **changes):
  arguments = dict(
    clients=1000,
    clients_per_round=10,
    total_rounds=50,
    rounds_per_checkpoint=5,
    memory_bytes=500 * RECORD.size,
    free_bytes=2000 * RECORD.size_on_disk,
  )
  return client_storage.choose(
    kind, RECORD, tmp_path / 'states.sqlite', **(arguments | changes)
  )


def test_where_states_are(tmp_path):
  assert RECORD.size == 25
  assert choose('auto', tmp_path).in_memory
  assert choose('memory', tmp_path).in_memory
  less = dict(memory_bytes=499 * RECORD.size)
  assert not choose('auto', tmp_path, **less).in_memory
  assert not choose('disk', tmp_path).in_memory
  # Fewer clients than there are can be seen in fewer rounds.
  assert choose('auto', tmp_path, clients=499, **less).in_memory
  assert choose('auto', tmp_path, total_rounds=49, **less).in_memory


def test_a_population_that_fits_nowhere_is_refused_with_the_arithmetic(
  tmp_path,
):
  less = dict(memory_bytes=499 * RECORD.size)
  with pytest.raises(errors.SettingsError) as error:
    choose('memory', tmp_path, **less)
  assert '500 clients x 25 bytes each = 12,500 bytes' in str(error.value)
  # 500 rows and 4 checkpoints of 50 changed ones, of at most 178 bytes each.
  enough = 700 * 178
  choose('disk', tmp_path, free_bytes=enough)
  with pytest.raises(errors.SettingsError) as error:
    choose('auto', tmp_path, free_bytes=enough - 1, **less)
  message = str(error.value)
  for part in ('500 clients x 25', '124,600', '12,475', '124,599'):
    assert part in message
  assert '\n' not in message and message.endswith('.')


def test_a_state_that_no_row_holds_is_refused(tmp_path):
  record = client_states.Record(((300_000_000,),), (np.dtype(np.float32),))
  with pytest.raises(errors.SettingsError, match=r'has 1,200,000,000 bytes'):
    client_storage.choose(
      'disk', record, tmp_path / 's', clients=1, clients_per_round=1,
      total_rounds=1, rounds_per_checkpoint=1, memory_bytes=2**40,
    )  # fmt: skip


@pytest.mark.usefixtures('in_process_context')
@pytest.mark.exhaustive
def test_scaffold_goes_on_exactly_from_disk(tmp_path):
  task = helpers.task()
  data = task.datasets.train_data
  process = algorithms.build(
    'scaffold', task.model_fn, population=4, client_learning_rate=0.1
  )
  initial = initial_weights.draw(task.model_fn, 0)
  cohorts = [(0, 2), (2, 3), (0, 1), (1, 2), (0, 3), (3, 2)]

  def build(name):
    path = tmp_path / name / 'client_states.sqlite'
    return rounds.build(
      process,
      initial_weights=initial,
      store=lambda record: client_states.ClientStates(
        record, path, in_memory=name == 'memory'
      ),
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
  for name, stops in (('whole', ()), ('memory', (3, 5)), ('disk', (3, 5))):
    learning = build(name)
    keeper = checkpoints.Checkpoints(tmp_path / name / 'checkpoints')
    for number, cohort in enumerate(cohorts, 1):
      if number in stops:
        # A round that was not finished, then another process.
        learning.snapshot()
        run(learning, (1, 3))
        learning._clients._close()
        learning = build(name)
        found = keeper.load_latest(learning.program_state, learning.restore)
        assert found.round_number == number - 1
      learning.snapshot()
      run(learning, cohort)
      keeper.save(learning.program_state, number)
      path[name].append(learning.model_weights().trainable)
    path[name].append(list(learning.program_state['clients'].values()))
  for name in KINDS:
    for one, other in zip(path['whole'], path[name], strict=True):
      for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_in_another_thread_than_the_one_that_made_it(make):
  """As where a notebook runs the loop."""
  store = make()
  store.put('a', state(1))
  failed = []

  def work():
    try:
      store.put('a', state(2))
      store.save()
    except BaseException as e:
      failed.append(e)

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert not failed and values(store, 'a') == [2]
