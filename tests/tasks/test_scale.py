"""Stack Overflow's size, simulated: 300,000 users in one SQLite file."""

import sqlite3

import pytest

from tests import programs
from tests.tasks import helpers

_USERS = 300_000

# A few distinct examples serve all users: what counts is their number.
_KINDS = 50


def _example(kind):
  words = f'common word{kind} and word{kind + 1}'
  return {
    'creation_date': b'2014-01-01',
    'score': 1,
    'tags': f'tag{kind % 10}'.encode(),
    'title': b'a title',
    'tokens': words.encode(),
    'type': b'question',
  }


@pytest.fixture(name='folder', scope='module')
def _folder(tmp_path_factory):
  """stackoverflow.sqlite with 300,000 training users of three sentences."""
  folder = tmp_path_factory.mktemp('stackoverflow')
  path = folder / 'stackoverflow.sqlite'
  few = {'u': [_example(0)]}
  helpers.write_sqlite(path, dict(heldout=few, test=few))
  blobs = [helpers.serialize(_example(k)) for k in range(_KINDS)]
  connection = sqlite3.connect(path)
  ids = [f'{i:08d}' for i in range(_USERS)]
  connection.executemany(
    "INSERT INTO client_metadata VALUES (?, 'train', 3)", ((i,) for i in ids)
  )
  connection.executemany(
    "INSERT INTO examples VALUES ('train', ?, ?)",
    (
      (user, blobs[(i + j) % _KINDS])
      for i, user in enumerate(ids)
      for j in range(3)
    ),
  )
  connection.commit()
  connection.close()
  return folder


def _peak_mebibytes(folder, code):
  """Peak resident memory of a process that runs `code`."""
  done = programs.run('-c', code, folder, timeout=600)
  return float(done.stdout.split()[-1])


_REPORT = (
  'import resource\n'
  'print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)\n'
)


@pytest.mark.slow
def test_memory_is_that_of_the_ids(folder):
  # The same program on a file of three users tells what TensorFlow needs.
  small = folder / 'small'
  small.mkdir()
  few = {str(i): [_example(i)] for i in range(3)}
  helpers.write_sqlite(
    small / 'stackoverflow.sqlite', dict(train=few, heldout=few, test=few)
  )
  for place in (folder, small):
    (place / 'stackoverflow.word_count').write_text('common 3\nand 2\n')
  code = (
    'import sys, numpy as np, tasks\n'
    "task = tasks.create('stackoverflow_word', cache_dir=sys.argv[1],\n"
    '                    vocab_size=2)\n'
    'data = task.datasets.train_data\n'
    'ids = data.client_ids\n'
    'for r in range(20):\n'
    '  for i in np.random.RandomState(r).choice(len(ids), 3, replace=False):\n'
    '    raw = data.create_tf_dataset_for_client(ids[i])\n'
    '    for _ in task.datasets.train_preprocess_fn(raw): pass\n'
  ) + _REPORT
  more = _peak_mebibytes(folder, code) - _peak_mebibytes(small, code)
  assert more < 150, more  # 300,000 names and a hash set of them.
