"""What clients keep: in memory, on disk, in checkpoints."""

import collections
import contextlib
import math
import resource
import sqlite3
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from tests import helpers
from tests import tiers
from tests import waiting
from tests.recording import endless_writer
from tests.recording import no_files
from tff_adaptive import algorithms
from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.training import initial_weights

# Limits of memory: everything, and nothing beyond a round.
LIMITS = {'memory': math.inf, 'disk': 0}


def state(number):
  return {'seen': np.array(number != 0), 'c': np.full([2, 3], number, 'f')}


def put(store, **numbers):
  store.keep(list(numbers), [state(n) for n in numbers.values()])


def values(store, clients):
  return [float(s['c'][0, 0]) for s in store.of(list(clients))]


@pytest.fixture(params=LIMITS, name='make')
def make_fixture(request, tmp_path):
  """Makes a store of the same file, as another process would."""
  path = tmp_path / 'run' / 'client_states.sqlite'
  opened = []

  def make(saved=None, kind=request.param, fresh=None, known=None):
    for store in opened:
      store.close()  # What was not saved is lost, as when a run is killed.
    store = client_states.ClientStates(
      state(0) if fresh is None else fresh, path, LIMITS[kind]
    )
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
  assert values(store, 'a') == [0]
  put(store, a=1, b=2)
  before = store.snapshot()
  put(store, a=3, c=4)
  assert values(store, 'abcd') == [3, 2, 4, 0]
  for _ in range(2):
    store.roll_back(before)
    assert values(store, 'abc') == [1, 2, 0]
    put(store, c=5)
  store.snapshot()
  assert values(store, 'abc') == [1, 2, 5]
  (found,) = store.of(['a'])
  assert found['seen'].dtype == bool and found['seen'].shape == ()
  assert found['c'].dtype == np.float32 and found['c'].shape == (2, 3)


def test_what_a_run_that_starts_afresh_finds_is_not_its_own(make):
  store = make()
  put(store, a=1)
  store.save()
  other = make()
  assert values(other, 'a') == [0]
  put(other, b=2)
  assert values(make(other.save()), 'ab') == [0, 2]


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
      put(store, a=-1, b=-1, c=-1)  # A round that fails.
      store.roll_back(before)
      store.snapshot()
      for client in map(str, rng.choice(list('abcdefgh'), 3, replace=False)):
        truth[client] = 100 * number + ord(client)
        put(store, **{client: truth[client]})
    assert values(store, truth) == list(truth.values())
    saves.append((store.save(), dict(truth)))
    if number in (5, 35, 39):
      for saved, then in saves[-checkpoints.KEEP - 1 :]:
        assert values(make(saved), then) == list(then.values())
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
  put(store, once=1)
  for number in range(1, 8):
    for _ in range(3):
      store.snapshot()
      put(store, often=number)
    store.save()
  assert rows_of(make.path) == [
    (b'often', 4), (b'often', 5), (b'often', 6), (b'often', 7), (b'once', 1)
  ]  # fmt: skip


@pytest.mark.parametrize('first, second', [LIMITS, [*LIMITS][::-1]])
def test_a_run_may_go_on_with_other_memory(first, second, make):
  store = make(kind=first)
  put(store, a=1, b=2)
  saved = store.save()
  other = make(saved, kind=second, known=['a', 'b', 'c'])
  assert values(other, 'abc') == [1, 2, 0]
  assert other.save() == saved


def test_a_round_that_is_not_saved_is_lost_and_no_other(make):
  store = make()
  put(store, a=1)
  saved = store.save()
  put(store, a=2, b=2)
  store.snapshot()
  assert values(make(saved), 'ab') == [1, 0]
  # The same where states were saved and the checkpoint was not.
  store = make(saved)
  put(store, a=3, b=3)
  store.save()
  store = make(saved)
  assert values(store, 'ab') == [1, 0]
  put(store, b=4)
  assert values(make(store.save()), 'ab') == [1, 4]


def test_damage_to_the_file_means_the_checkpoint_before(make):
  store = make()
  folder = make.path.parent / 'c'
  keeper = checkpoints.Checkpoints(folder)
  for number in (1, 2, 3):
    put(store, a=number, **({'b': 7} if number == 1 else {}))
    saved = store.save()
    keeper.save(saved, number)

  def resume():
    again = make()
    said = []
    found = checkpoints.Checkpoints(folder, warn=said.append).load_latest(
      saved, lambda found: again.restore(found, 'ab')
    )
    return found.round_number, values(again, 'ab'), said

  assert resume() == (3, [3, 7], [])
  make()
  whole = make.path.read_bytes()

  def damage(number):
    leaf = state(number)['c'].tobytes()
    assert whole.count(leaf) == 1
    make.path.write_bytes(whole.replace(leaf, leaf[:-1] + b'\x01'))

  # What all of them need: nothing is set aside, and it can be brought back.
  damage(7)
  with pytest.raises(errors.RunError, match=r"No.*states.sqlite.*client b'b'"):
    resume()
  make()
  make.path.unlink()
  with pytest.raises(errors.RunError, match=r'states\.sqlite cannot be read: '):
    resume()
  assert not make.path.exists() and keeper.rounds == [1, 2, 3]
  damage(3)
  number, found, (said,) = resume()
  assert number == 2 and found == [2, 7]
  assert 'round 3 cannot be used and was set aside' in said
  assert "states.sqlite does not hold the state of client b'a'" in said


def execute(statement):
  def change(path):
    with contextlib.closing(sqlite3.connect(path)) as file, file:
      file.execute(statement)

  return change


def overwrite(start, content):
  def change(path):
    whole = path.read_bytes()
    start_ = start % len(whole)
    path.write_bytes(whole[:start_] + content + whole[start_ + len(content) :])

  return change


@pytest.mark.parametrize(
  'change, complaint',
  [
    (execute("DELETE FROM states WHERE client = x'61'"), 'states of 2 clients'),
    (execute('UPDATE states SET version = 9'), 'the states of 2 clients'),
    (execute("UPDATE states SET client = x'63' || client"), 'state of client'),
    (execute('UPDATE states SET checksum = 0'), "the state of client b'a'"),
    (execute("UPDATE states SET leaves = 'text'"), "the state of client b'a'"),
    (execute("UPDATE states SET leaves = x'00'"), "the state of client b'a'"),
    (
      execute("UPDATE states SET client = CAST(x'ff' AS TEXT)||client"),
      'cannot be read: Could not decode',
    ),
    (
      execute(
        'CREATE TRIGGER t AFTER INSERT ON states BEGIN DELETE FROM states; END'
      ),
      'not a file of client states',
    ),
    (lambda p: p.write_bytes(p.read_bytes()[:70_000]), 'client_states.sqlite'),
    (overwrite(0, b'\0' * 200), 'cannot be read: file is not a database'),
    (overwrite(-60_000, b'\xff' * 60_000), 'client_states.sqlite'),
    (lambda path: path.write_bytes(b''), 'not a file of client states'),
    (lambda path: path.write_bytes(b'text' * 99), 'file is not a database'),
  ],
)
def test_files_that_do_not_hold_what_was_saved(make, change, complaint):
  store = make()
  put(store, a=1, b=2)
  saved = store.save()
  make()
  change(make.path)
  with pytest.raises(errors.DamagedError, match=complaint) as error:
    make(saved)
  assert str(make.path) in str(error.value) and '\n' not in str(error.value)


def test_states_of_another_run(make):
  """As many clients, in as many versions."""
  saves = []
  for number in (1, 2):
    store = make()
    put(store, a=number)
    saves.append(store.save())
  make(saves[1])
  with pytest.raises(errors.DamagedError, match='the checkpoint is of'):
    make(saves[0])


@pytest.mark.parametrize('suffix', ['', '-journal', '-wal'])
@pytest.mark.parametrize('kind', no_files.KINDS)
def test_what_is_no_file(make, kind, suffix):
  store = make()
  put(store, a=1)
  saved = store.save()
  make()
  path = make.path.with_name(make.path.name + suffix)
  path.unlink(missing_ok=True)
  no_files.KINDS[kind](path)
  with (
    waiting.no_hang(),
    pytest.raises(errors.DamagedError, match=f'it is {kind}, not a regular'),
  ):
    make(saved)


def test_states_of_another_model_or_population(make):
  store = make()
  put(store, a=1)
  saved = store.save()
  with pytest.raises(errors.DamagedError, match=r'another model: 25 .* 17\.'):
    make(saved, fresh={**state(0), 'c': np.zeros(4, 'f')})
  with pytest.raises(errors.RunError, match='another population'):
    make(saved, known=['b', 'c'])


def test_in_the_memory_of_another_process():
  store = client_states.ClientStates(state(0))
  put(store, a=1)
  saved = store.save()
  put(store, a=2)
  store.save()
  store.restore(saved)
  assert values(store, 'a') == [1]
  with pytest.raises(errors.DamagedError, match='memory of another process'):
    client_states.ClientStates(state(0)).restore(saved)


@pytest.mark.parametrize('kind', LIMITS)
def test_disk_that_takes_no_more(make, kind):
  """No state is lost without a word, and none that was saved."""
  value = lambda number: np.full(100_000, number, np.float32)
  store = make(kind=kind, fresh=value(0))
  store.keep(['a', 'c'], [value(1), value(9)])
  saved = store.save()
  limit = make.path.stat().st_size + 100_000
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
  try:
    with pytest.raises(errors.RunError, match=r'client states cannot be wri'):
      for number in range(2, 40):
        store.keep(['a', 'b'], [value(number)] * 2)
        store.snapshot()
        store.save()
    if kind == 'disk':
      for action in (lambda: store.of(['c']), store.save):
        with pytest.raises(errors.RunError, match='cannot be written'):
          action()
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  first = lambda store: [s[0] for s in store.of(['a', 'b', 'c'])]
  if kind == 'memory':  # They are all there still.
    a, b, c = first(store)
    assert a == b > 1 and c == 9
    assert first(make(store.save(), fresh=value(0))) == [a, b, c]
  else:
    assert first(make(saved, fresh=value(0))) == [1, 0, 9]


@pytest.mark.parametrize('seed', tiers.exhaustive_but([0], range(3)))
@pytest.mark.parametrize(
  'memory_bytes', tiers.exhaustive_but([0], LIMITS.values())
)
def test_killed_at_any_moment(tmp_path, seed, memory_bytes):
  path = tmp_path / 'client_states.sqlite'
  rng = np.random.default_rng(seed)
  kills = 0
  for attempt in range(40):
    if attempt >= 4 and kills:
      break
    process = subprocess.Popen(
      [
        *(sys.executable, '-m', endless_writer.__name__),
        *(path, str(memory_bytes)),
      ],
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
      store = client_states.ClientStates(endless_writer.state(0), path)
      store.restore(dict(zip(keys, told, strict=True)))
      last = {
        client: n
        for n in range(1, number + 1)
        for client in endless_writer.clients_of(n)
      }
      assert told[1] == len(last)
      for found, n in zip(store.of(list(last)), last.values(), strict=True):
        assert (found == n).all()
      store.close()
  assert kills  # Some hit a transaction.


def test_ids_may_be_anything(make):
  """Also names of files that are not UTF-8."""
  store = make()
  ids = ['', "'; DROP TABLE states; --", 'a\0b', 'é', '☃' * 999, 'a', 'A', 'a ']
  ids += [b'caf\xe9'.decode('utf-8', 'surrogateescape'), '\ud800', 'a\r']
  store.keep(ids, [state(number) for number in range(len(ids))])
  again = make(store.save(), known=ids)
  assert values(again, ids) == list(range(len(ids)))


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
    return helpers.rounds_of(
      process,
      initial,
      store=lambda fresh: client_states.ClientStates(
        fresh, path, LIMITS.get(name, math.inf)
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
        learning._kept.close()
        learning = build(name)
        found = keeper.load_latest(learning.program_state, learning.restore)
        assert found.round_number == number - 1
      learning.snapshot()
      run(learning, cohort)
      keeper.save(learning.program_state, number)
      path[name].append(learning.model_weights().trainable)
    path[name].append(list(learning.program_state['clients'].values()))
  for name in LIMITS:
    for one, other in zip(path['whole'], path[name], strict=True):
      for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_in_another_thread_than_the_one_that_made_it(make):
  """As where a notebook runs the loop."""
  store = make()
  put(store, a=1)
  store.save()
  failed = []

  def work():
    try:
      put(store, a=2)
      store.save()
    except BaseException as e:
      failed.append(e)

  thread = threading.Thread(target=work)
  thread.start()
  thread.join()
  assert not failed and values(store, 'a') == [2]


def test_reading_all_clients_holds_few(tmp_path):
  """As per-client tests do, of more states than memory has room for."""
  path = tmp_path / 'client_states.sqlite'
  room = 3 * client_states.ClientStates(state(0), path)._dtype.itemsize
  store = client_states.ClientStates(state(0), path, room)
  clients = {f'c{i}': i + 1 for i in range(20)}
  put(store, **clients)
  store.save()
  assert values(store, clients) == list(clients.values())
  assert len(store._held) <= 4
  store.close()
