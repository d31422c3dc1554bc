"""The last good state survives damage, interruption and cleaning up."""

import asyncio
import collections
import os

import numpy as np
import pytest

from tff_adaptive.experiment import checkpoints
from tff_adaptive.experiment import errors


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
  assert sorted(os.listdir(tmp_path / 'c')) == ['round_10', 'round_11']


def damage_file(folder):
  path = max(folder.rglob('*'), key=lambda p: p.stat().st_size * p.is_file())
  content = bytearray(path.read_bytes())
  content[len(content) // 2] ^= 1
  path.write_bytes(content)


def cut_file(folder):
  path = next(folder.rglob('*.data-*'))
  path.write_bytes(path.read_bytes()[:-1])


def remove_file(folder):
  next(folder.rglob('*.index')).unlink()


@pytest.mark.parametrize('damage', [damage_file, cut_file, remove_file])
def test_damaged_state_is_not_used(tmp_path, damage):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  keeper.save(state(2), 2)
  damage(tmp_path / 'c' / 'round_2')
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
  damage_file(tmp_path / 'c' / 'round_1')
  with pytest.raises(errors.RunError, match='No checkpoint'):
    keeper.load_latest(state(0))


def test_what_an_interrupted_writer_left_is_removed(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  keeper.save(state(2), 2)
  # Killed between the state and its digests, and while writing the next.
  (tmp_path / 'c' / 'round_2' / 'digests.json').unlink()
  (tmp_path / 'c' / 'round_3_temp1234').mkdir()
  (tmp_path / 'c' / 'round_3_temp1234' / 'saved_model.pb').write_text('half')
  said = []
  keeper = checkpoints.Checkpoints(tmp_path / 'c', warn=said.append)
  assert keeper.load_latest(state(0))[0] == 1
  assert os.listdir(tmp_path / 'c') == ['round_1']
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
