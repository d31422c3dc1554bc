"""The last good state survives damage, interruption and cleaning up."""

import collections
import os
import resource

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import tensorflow as tf
import tensorflow_federated as tff

from tff_adaptive import errors
from tff_adaptive.lab.recording import checkpoints
from tff_adaptive.lab.recording import files


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


def load(folder, structure=None, **arguments):
  """Loads without anything to say, or fails."""

  def warn(sentence):
    raise AssertionError(sentence)

  keeper = checkpoints.Checkpoints(folder, **{'warn': warn, **arguments})
  return keeper.load_latest(state(0) if structure is None else structure)


def test_latest_state_comes_back(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  assert keeper.load_latest(state(0)) is None
  for r in (2, 4, 10):
    keeper.save(state(r), r)
  found = load(tmp_path / 'c')
  assert found.round_number == 10
  assert_state(found.state, 10)


def test_structures_come_back_as_they_were(tmp_path):
  value = collections.OrderedDict(
    weights=tff.learning.models.ModelWeights([np.float32(1)], []),
    empty=np.zeros([0, 3], np.float16),
    flag=True,
    other_order=np.arange(3, dtype='>i4'),
    tensor=tf.constant([True, False]),
    plain=7,
    text=b'dp_accounting.dp_event',
    step=np.arange(6, dtype=np.int32)[::2],
    columns=np.asfortranarray(np.arange(6.0).reshape(2, 3)),
  )
  checkpoints.Checkpoints(tmp_path).save(value, 1)
  loaded = load(tmp_path, value).state
  assert isinstance(loaded['weights'], tff.learning.models.ModelWeights)
  for name in ('plain', 'text'):
    assert loaded[name] == value[name]
    assert isinstance(loaded[name], type(value[name]))
  for name in ('empty', 'other_order', 'tensor', 'step', 'columns'):
    before, after = np.asarray(value[name]), loaded[name]
    np.testing.assert_array_equal(before, after)
    assert before.dtype.newbyteorder('=') == after.dtype
    assert before.shape == after.shape
  # Whoever has safetensors can read it.
  stored = safetensors.numpy.load_file(tmp_path / 'round_1.safetensors')
  np.testing.assert_array_equal(stored['state/step'], value['step'])


def test_what_no_checkpoint_can_hold_is_named(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path)
  for value in (np.complex128(1), 'a word'):
    with pytest.raises(errors.RunError, match='round 1 cannot be written'):
      keeper.save({'z': value}, 1)
  with pytest.raises(errors.RunError, match='No checkpoint'):
    checkpoints.Checkpoints(tmp_path).save({'z': 1.0}, 1)
    keeper.load_latest({'z': np.complex128(1)})
  with pytest.raises(ValueError, match='same path'):
    keeper.save({'a': {'b': 1}, 'a/b': 2}, 1)


@pytest.mark.parametrize(
  'changes, complaint',
  [
    ({'step': np.int64(0)}, r'step is int32 .*, expected int64 '),
    ({'step': np.zeros([1], np.int32)}, r'step is .*\[\], expected .*\[1\]'),
    ({'more': 1}, 'state/more is missing'),
    ({'step': ()}, r'state/step is .*, expected nothing'),
    (
      {'weights': [np.zeros([3, 2], np.float32), np.float32(0)]},
      r'weights/0 is .*\[2, 3\], expected .*\[3, 2\]',
    ),
  ],
)
def test_states_that_only_resemble_it_are_refused(tmp_path, changes, complaint):
  checkpoints.Checkpoints(tmp_path).save(state(1), 1)
  with pytest.raises(errors.RunError, match=complaint):
    load(tmp_path, collections.OrderedDict(state(0), **changes))


def test_checkpoint_of_another_run_is_not_used(tmp_path):
  for run in ('mine', 'theirs'):
    keeper = checkpoints.Checkpoints(tmp_path / run, run=run)
    for r in (1, 2):
      keeper.save(state(r + 10 * (run == 'theirs')), r)
  theirs = tmp_path / 'theirs' / 'round_2.safetensors'
  (tmp_path / 'mine' / 'round_3.safetensors').write_bytes(theirs.read_bytes())
  (tmp_path / 'mine' / 'round_2.safetensors').write_bytes(theirs.read_bytes())
  said = []
  found = load(tmp_path / 'mine', run='mine', warn=said.append)
  assert found.round_number == 1
  assert_state(found.state, 1)
  assert len(said) == 2
  assert all('is a checkpoint of another run' in s for s in said)
  assert sorted(os.listdir(tmp_path / 'mine')) == [
    'damaged_round_2.safetensors',
    'damaged_round_3.safetensors',
    'round_1.safetensors',
  ]


@pytest.mark.parametrize('name', ['round_1', 'round_3'])
def test_renamed_checkpoint_is_not_used(tmp_path, name):
  keeper = checkpoints.Checkpoints(tmp_path)
  for r in (1, 2):
    keeper.save(state(r), r)
  (tmp_path / 'round_2.safetensors').rename(tmp_path / f'{name}.safetensors')
  if name == 'round_1':
    with pytest.raises(errors.RunError, match='is the checkpoint of round 2, '):
      load(tmp_path)
    return
  said = []
  assert load(tmp_path, warn=said.append).round_number == 1
  assert 'The checkpoint of round 3 cannot be used and was set' in said[0]
  assert 'is the checkpoint of round 2, contrary to its name' in said[0]


@pytest.mark.parametrize('found', ['pt', 'tff-adaptive checkpoint 3'])
def test_formats_of_others_and_of_other_versions_are_named(tmp_path, found):
  checkpoints.Checkpoints(tmp_path).save(state(1), 1)
  path = tmp_path / 'round_1.safetensors'
  stored = safetensors.numpy.load_file(path)
  path.write_bytes(safetensors.numpy.save(stored, {'format': found}))
  with pytest.raises(errors.RunError, match=f"its format is '{found}'"):
    load(tmp_path)


def damage_file(path):
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)


def cut_file(path):
  path.write_bytes(path.read_bytes()[:-1])


def empty_file(path):
  path.write_bytes(b'')


def lengthen_file(path):
  path.write_bytes(path.read_bytes() + b'\0')


@pytest.mark.parametrize(
  'damage', [damage_file, cut_file, empty_file, lengthen_file]
)
def test_damaged_state_is_not_used(tmp_path, damage):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  keeper.save(state(2), 2)
  damage(tmp_path / 'c' / 'round_2.safetensors')
  said = []
  keeper = checkpoints.Checkpoints(tmp_path / 'c', warn=said.append)
  found = keeper.load_latest(state(0))
  assert found.round_number == 1
  assert_state(found.state, 1)
  assert len(said) == 1 and 'round 2 cannot be used' in said[0]
  keeper.save(state(22), 2)
  found = keeper.load_latest(state(0))
  assert found.round_number == 2
  assert_state(found.state, 22)


def test_every_bit_counts(tmp_path):
  path = tmp_path / 'round_1.safetensors'
  checkpoints.Checkpoints(tmp_path).save(state(1), 1)
  content = path.read_bytes()
  for place in range(len(content)):
    flipped = bytes([content[place] ^ 1])
    path.write_bytes(content[:place] + flipped + content[place + 1 :])
    with pytest.raises(errors.RunError, match='No checkpoint'):
      load(tmp_path)


def test_all_states_damaged(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path / 'c')
  keeper.save(state(1), 1)
  damage_file(tmp_path / 'c' / 'round_1.safetensors')
  with pytest.raises(errors.RunError, match='No checkpoint'):
    load(tmp_path / 'c')
  assert keeper.rounds == [1]


def test_checksums_of_rows_come_back(tmp_path):
  keeper = checkpoints.Checkpoints(tmp_path)
  sums = {'metrics': np.array([1, 2**32 - 1])}
  keeper.save(state(1), 1, sums)
  found = keeper.load_latest(state(0), row_sums=sums)
  assert found.row_sums['metrics'].tolist() == [1, 2**32 - 1]
  with pytest.raises(errors.RunError, match='row_sums/others is missing'):
    keeper.load_latest(state(0), row_sums={**sums, 'others': np.zeros(2)})


def test_what_an_interrupted_writer_left_is_removed(tmp_path):
  with files.RunFolder(tmp_path) as folder:
    keeper = checkpoints.Checkpoints(folder.checkpoints)
    keeper.save(state(1), 1)
  left = folder.checkpoints / '.round_2.safetensors.0123abcd.tmp'
  left.write_bytes(b'half')
  (tmp_path / '.metrics.csv.89ef0123.tmp').write_bytes(b'round')
  assert load(folder.checkpoints).round_number == 1
  assert left.exists()  # Somebody else may be writing it.
  with files.RunFolder(tmp_path):
    assert sorted(p.name for p in tmp_path.rglob('*') if p.is_file()) == [
      '.lock',
      'round_1.safetensors',
    ]


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
    with pytest.raises(
      errors.RunError, match='the checkpoint of round 1 is kept'
    ):
      keeper.save(state(2), 2)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
  assert os.listdir(tmp_path / 'c') == ['round_1.safetensors']
  assert load(tmp_path / 'c').round_number == 1
