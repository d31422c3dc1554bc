"""The last good state survives damage, interruption and cleaning up."""

import asyncio
import collections
import os
import resource

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive.recording import checkpoints
from tff_adaptive.recording import files


def state(value):
  return collections.OrderedDict(
    weights=[np.full([2, 3], value, np.float32), np.float32(value)],
    step=np.int32(value),
    nothing=(),
  )


def assert_state(loaded, value):
  np.testing.assert_array_equal(loaded['weights'][0], np.full([2, 3], value))
  assert loaded['step'] == value and loaded['step'].dtype == np.int32
  assert loaded['weights'][1].dtype == np.float32


def test_latest_state_comes_back(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  assert keeper.load_latest(state(0)) is None
  for r in (2, 4, 10):
    keeper.save(state(r), r)
  number, loaded = checkpoints.Checkpoints(tmp_path / 'c').load_latest(state(0))
  assert number == 10
  assert_state(loaded, 10)


def test_only_the_last_few_are_kept(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c', keep=2)
  for r in (8, 9, 10, 11):
    keeper.save(state(r), r)
  assert keeper.rounds == [10, 11]
  assert sorted(os.listdir(tmp_path / 'c')) == [
    'round_10.state',
    'round_11.state',
  ]


def test_structures_come_back_as_they_were(tmp_path):
  value = collections.OrderedDict(
    weights=tff.learning.models.ModelWeights([np.float32(1)], []),
    empty=np.zeros([0, 3], np.float16),
    ids=np.array([b'a', b'long'], np.bytes_),
    words=np.array([b'with a zero\0', b''], object),
    tensor=tf.constant([True, False]),
    plain=7,
    big=np.arange(6, dtype='>i4')[::2],
  )
  keeper = checkpoints.Checkpoints(tmp_path)
  keeper.save(value, 1)
  _, loaded = keeper.load_latest(value)
  assert isinstance(loaded['weights'], tff.learning.models.ModelWeights)
  assert loaded['plain'] == 7 and isinstance(loaded['plain'], int)
  for name in ('empty', 'ids', 'words', 'tensor', 'big'):
    before, after = np.asarray(value[name]), loaded[name]
    np.testing.assert_array_equal(before, after)
    assert before.dtype == after.dtype and before.shape == after.shape


def test_state_of_another_method_is_refused(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path)
  keeper.save(state(1), 1)
  for other in ({'step': np.int32(0)}, [np.int32(0)] * 3):
    with pytest.raises(errors.RunError, match='another method or model'):
      keeper.load_latest(other)


def damage_file(path):
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def cut_file(path):
  path.write_bytes(path.read_bytes()[:-1])


def empty_file(path):
  path.write_bytes(b'')


@pytest.mark.parametrize('damage', [damage_file, cut_file, empty_file])
def test_damaged_state_is_not_used(tmp_path, damage):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  keeper.save(state(2), 2)
  damage(tmp_path / 'c' / 'round_2.state')
  said = []
  keeper = checkpoints.Checkpoints(tmp_path / 'c', warn=said.append)
  number, loaded = keeper.load_latest(state(0))
  assert number == 1
  assert_state(loaded, 1)
  assert len(said) == 1 and 'round 2 is damaged' in said[0]
  keeper.save(state(22), 2)
  number, loaded = keeper.load_latest(state(0))
  assert number == 2
  assert_state(loaded, 22)


def test_all_states_damaged(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c', warn=lambda _: None)
  keeper.save(state(1), 1)
  damage_file(tmp_path / 'c' / 'round_1.state')
  with pytest.raises(errors.RunError, match='No checkpoint'):
    keeper.load_latest(state(0))


def test_what_an_interrupted_writer_left_is_removed(tmp_path):
  with files.RunFolder(tmp_path) as folder:
    keeper = checkpoints.Checkpoints(folder.checkpoints)
    keeper.save(state(1), 1)
  left = folder.checkpoints / '.round_2.state.1234'
  left.write_bytes(b'half')
  (tmp_path / '.metrics.csv.77').write_bytes(b'round')
  said = []
  keeper = checkpoints.Checkpoints(folder.checkpoints, warn=said.append)
  assert keeper.load_latest(state(0))[0] == 1
  assert left.exists()  # Somebody else may be writing it.
  with files.RunFolder(tmp_path):
    assert sorted(p.name for p in tmp_path.rglob('*') if p.is_file()) == [
      '.lock',
      'round_1.state',
    ]
  assert not said


def test_inside_a_running_event_loop(tmp_path):
  async def notebook():
    keeper = checkpoints.Checkpoints(tmp_path / 'c')
    keeper.save(state(3), 3)
    return keeper.load_latest(state(0))

  number, loaded = asyncio.run(notebook())
  assert number == 3
  assert_state(loaded, 3)


def test_folder_that_cannot_be_written(tmp_path):
  (tmp_path / 'c').write_text('a file')
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  with pytest.raises(errors.RunError, match='round 5 cannot be written'):
    keeper.save(state(5), 5)


def test_disk_that_takes_no_more_keeps_the_last_state(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  before = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))
  try:
    with pytest.raises(errors.RunError, match='that of round 1 is kept'):
      keeper.save(state(2), 2)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert os.listdir(tmp_path / 'c') == ['round_1.state']
  assert keeper.load_latest(state(0))[0] == 1
