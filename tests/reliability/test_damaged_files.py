"""Readers and damaged files: read right, or refused in a sentence.

Every reader gets a whole file with some bytes changed, at random but the same
ones every time; it may return something that is as it should be, or raise the
one exception that it promises.
"""

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies

from tasks import partition
from tasks.formats import data_files
from tasks.formats import sqlite_files
from tasks.formats import weight_files as weights
from tasks.images import cifar
from tasks.images import gld23k
from tasks.images import mnist
from tasks.text import text_classification
from tests import made_up
from tests.reliability import mutations
from tests.tasks import helpers
from tests.tasks import test_cifar
from tests.tasks.formats import test_idx
from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import client_states
from tff_adaptive.lab.report import runs as results
from tff_adaptive.lab.report import sweeps
from tff_adaptive.lab.sweep import flags as sweep_flags
from tff_adaptive.lab.sweep import study

_RNG = np.random.default_rng(0)
_IMAGES = _RNG.integers(0, 256, [6, 28, 28], np.uint8)
_LABELS = np.uint8([3, 9, 0, 1, 3, 7])
_GET = 'Get it.'


@dataclasses.dataclass(frozen=True)
class Reader:
  """A reader, and how to try it.

  Attributes:
    write: Writes a whole file, or several, into a folder.
    read: Reads them, given the folder.
    check: Raises AssertionError if what was read cannot be right; it is given
      what was read from the whole files too.
    refuses: What it raises where it cannot.
  """

  write: Callable[[pathlib.Path], None]
  read: Callable[[pathlib.Path], Any]
  check: Callable[[Any, Any], None]
  refuses: type[Exception] = data_files.DataError


def _equal(found, whole) -> None:
  np.testing.assert_equal(found, whole)


def _labelled(classes):
  def check(found, whole):
    examples, labels = found
    assert len(examples) == len(labels) > 0
    assert labels.min() >= 0 and labels.max() < classes
    if isinstance(examples, np.ndarray):
      assert examples.shape[1:] == whole[0].shape[1:]
      assert np.isfinite(examples).all()

  return check


def _write_sqlite(folder):
  examples = [{'label': 1, 'pixels': 2}]
  split = {f'c{i}': examples for i in range(3)}
  helpers.write_sqlite(folder / 'a.sqlite', {'a_train': split, 'a_test': split})


def _read_sqlite(folder):
  path = sqlite_files.find(
    str(folder),
    'a.sqlite',
    splits=['a_train', 'a_test'],
    features=['label', 'pixels'],
    loader='emnist',
  )
  return (
    list(sqlite_files.client_ids(path, 'a_train')),
    list(sqlite_files.examples_by_client(path, 'a_train')),
  )


def _check_sqlite(found, whole):
  del whole
  ids, examples = found
  assert ids and all(isinstance(i, str) for i in ids)
  assert all(isinstance(e, bytes) for client in examples for e in client)


def _write_gzipped(folder):
  test_idx.write_idx(folder / 'train-images-idx3-ubyte.gz', _IMAGES)
  test_idx.write_idx(folder / 'train-labels-idx1-ubyte.gz', _LABELS)


def _write_plain(folder):
  test_idx.write_idx(folder / 'train-images-idx3-ubyte', _IMAGES)
  test_idx.write_idx(folder / 'train-labels-idx1-ubyte', _LABELS)


def _check_gzipped(found, whole):
  # Under a check sum, apart from the name and the date in the header.
  _equal(found, whole)


def _read_idx(folder):
  return mnist.read_pair(folder, 'train', num_classes=10, get=_GET)


def _text(name, text):
  return lambda folder: (folder / name).write_bytes(text.encode())


def _write_binary(folder):
  images = _RNG.integers(0, 256, [2, 32, 32, 3], np.uint8)
  test_cifar.write_binary(folder / 'a.bin', images, np.uint8([1, 2]))


def _write_jpegs(folder):
  images = np.full([3, 32, 32, 3], 90, np.uint8)
  test_cifar.write_jpegs(folder / 'a.jpgs', images, np.uint8([1, 2, 0]))


def _write_records(folder):
  # TensorFlow is only asked for where it is needed.
  from tests.tasks import test_gld23k  # pylint: disable=g-import-not-at-top

  examples = [test_gld23k._example(8, 9, label, 80) for label in range(3)]
  test_gld23k._write(folder / 'a.tfrecord', examples)


def _write_partition(folder):
  partition.iid(20, sizes=[3, 4, 5]).save(folder / 'a.npz')


def _check_partition(found, whole):
  assert len(found.client_ids) == len(found.indices)
  _equal(found.client_ids, whole.client_ids)
  _equal(found.indices, whole.indices)


def _arrays():
  return {
    'a': np.arange(6, dtype=np.float32).reshape(2, 3),
    'b': _RNG.random(2),
  }


def _check_arrays(found, whole):
  for name in set(found) & set(whole):
    assert found[name].size == np.prod(found[name].shape)


_STATE = {'a': np.arange(7.0), 'b': [np.int32(3), np.array([True, False])]}
_SUMS = {'metrics': np.arange(2)}


def _write_state(folder):
  checkpoints.Checkpoints(folder, run='mine').save(_STATE, 1, _SUMS)


def _read_state(folder):
  keeper = checkpoints.Checkpoints(folder, run='mine')
  found = keeper.load_latest(_STATE, row_sums=_SUMS)
  return found.round_number, found.state, found.row_sums


def _client_state(number):
  return [np.float32([number] * 5), np.int64(7)]


_SAVED = {}


def _write_client_states(folder):
  store = client_states.ClientStates(_client_state(0), folder / 'states.sqlite')
  for number in range(9):
    store.keep([f'client_{number % 4}'], [_client_state(number)])
    store.snapshot()
  _SAVED.update(store.save())
  store.close()


def _read_client_states(folder):
  store = client_states.ClientStates(_client_state(0), folder / 'states.sqlite')
  try:
    store.restore(_SAVED)
    # What is read may be written to as well.
    store.keep(['client_1'], [_client_state(0)])
    store.save()
    return store.of([f'client_{number}' for number in range(5)])
  finally:
    store.close()


def _write_run(folder):
  made_up.run(folder, 'a', '--total_rounds=4')
  run = folder / 'a'
  (run / '.lock').unlink()
  for path in (run / 'metrics.csv', run / 'hparams.json'):
    path.rename(folder / path.name)
  run.rmdir()


def _check_run(found, whole):
  rounds = [row['round'] for row in found.rows]
  assert rounds == sorted(rounds)
  assert isinstance(found.settings, dict)
  # What reports and comparisons ask.
  assert found.method and hash(found.configuration)
  assert found.finished in (True, False)
  assert all(isinstance(v, float) for v in found.measures().values())
  del whole


def _open_study(folder):
  words = ['--axis=seed=1', f'--root_output_dir={folder.parent}']
  words += [f'--experiment_name={folder.name}', '--select=train_loss']
  return study.Study(sweep_flags.parse(words))


def _check_study(found, whole):
  del whole
  assert all(isinstance(row.flags, dict) for row in found)


def _write_sweep(folder):
  sweeps.write(folder, sweeps.SweepRecord('train_loss', shared=False))
  sweeps.write_table(
    folder,
    pd.DataFrame(
      [['a,b', 'failed', 'a "reason"'], ['c', 'finished', None]],
      columns=['name', 'status', 'reason'],
    ),
  )


def _read_sweep(folder):
  return sweeps.read(folder), sweeps.read_unfinished(folder)


def _check_sweep(found, whole):
  del whole
  description, unfinished = found
  assert isinstance(description.select, str)
  assert all(isinstance(text, str) for row in unfinished for text in row)


READERS = {
  'sqlite': Reader(_write_sqlite, _read_sqlite, _check_sqlite),
  'idx': Reader(_write_plain, _read_idx, _labelled(10)),
  'idx_gzip': Reader(_write_gzipped, _read_idx, _check_gzipped),
  'tokens': Reader(
    _text('a', '[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\n##s\n'),
    lambda folder: text_classification.read_vocabulary(folder / 'a'),
    lambda found, whole: _equal(found[0], '[PAD]'),
  ),
  'images': Reader(
    _write_binary,
    lambda folder: cifar.read_binary(
      [folder / 'a.bin'], num_classes=(10,), get=_GET
    ),
    _labelled(10),
  ),
  'jpegs': Reader(
    _write_jpegs,
    lambda folder: cifar.read_jpegs(
      folder / 'a.jpgs', num_classes=10, get=_GET
    ),
    _labelled(10),
  ),
  'records': Reader(
    _write_records,
    lambda folder: gld23k.check_records(folder / 'a.tfrecord', _GET),
    _equal,
  ),
  'npz': Reader(
    lambda folder: np.savez(folder / 'a.npz', **_arrays()),
    lambda folder: weights.read_npz(folder / 'a.npz'),
    _check_arrays,
  ),
  'partition': Reader(
    _write_partition,
    lambda folder: partition.Partition.load(folder / 'a.npz'),
    _check_partition,
  ),
  'checkpoint': Reader(
    _write_state,
    _read_state,
    _equal,
    errors.RunError,
  ),
  'client_states': Reader(
    _write_client_states,
    _read_client_states,
    _equal,
    errors.RunError,
  ),
  'run': Reader(_write_run, results.load, _check_run, errors.SettingsError),
  'study': Reader(
    lambda folder: _open_study(folder).start(),
    lambda folder: _open_study(folder).rows(),
    _check_study,
    errors.RunError,
  ),
  'sweep': Reader(_write_sweep, _read_sweep, _check_sweep, errors.RunError),
}


@pytest.mark.parametrize(
  'count',
  [
    5,
    pytest.param(40, marks=pytest.mark.exhaustive),
    pytest.param(10_000, marks=pytest.mark.slow),
  ],
)
@pytest.mark.parametrize('name', READERS)
def test_damage_is_refused_or_harmless(tmp_path, name, count):
  reader = READERS[name]
  reader.write(tmp_path)
  paths = sorted(p for p in tmp_path.iterdir() if p.is_file())
  originals = [p.read_bytes() for p in paths]
  whole = reader.read(tmp_path)
  refused = 0

  def check(drawn):
    nonlocal refused
    which, changes = drawn
    path, original = paths[which], originals[which]
    path.write_bytes(mutations.apply(original, changes))
    try:
      found = reader.read(tmp_path)
    except reader.refuses as e:
      refused += 1
      assert str(e) and '\n' not in str(e)
    else:
      reader.check(found, whole)
    finally:
      path.write_bytes(original)

  if count < 1000:
    which = strategies.integers(0, len(paths) - 1)
    inputs = strategies.tuples(which, mutations.edits)
    mutations.try_many(check, inputs, count)
  else:
    draw = lambda rng: (rng.randrange(len(paths)), mutations.draw_edits(rng))
    mutations.try_seeds(check, draw, count)
  print(f'{name}: {count} inputs, {refused} refused')
  assert refused
