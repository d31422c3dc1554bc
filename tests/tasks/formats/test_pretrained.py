"""Weights from files: read or refused."""

import json

import numpy as np
import pytest

from tasks.formats import data_files


def write_safetensors(path, arrays):
  """Writes arrays as a safetensors file."""
  header, offset = {'__metadata__': {'format': 'pt'}}, 0
  for name, array in arrays.items():
    header[name] = dict(
      dtype='F32',
      shape=list(array.shape),
      data_offsets=[offset, offset + array.nbytes],
    )
    offset += array.nbytes
  text = json.dumps(header).encode()
  path.write_bytes(
    len(text).to_bytes(8, 'little')
    + text
    + b''.join(a.astype('<f4').tobytes() for a in arrays.values())
  )


_ARRAYS = {
  'a': np.arange(6, dtype=np.float32).reshape(2, 3),
  'b': np.float32([7]),
}


def test_safetensors_are_read(tmp_path):
  path = tmp_path / 'model.safetensors'
  write_safetensors(path, _ARRAYS)
  found = data_files.read_safetensors(path)
  assert set(found) == {'a', 'b'}
  for name, array in _ARRAYS.items():
    np.testing.assert_array_equal(found[name], array)


def test_damaged_archives_are_refused(tmp_path):
  path = tmp_path / 'weights.npz'
  np.savez(path, **_ARRAYS)
  np.testing.assert_array_equal(data_files.read_npz(path)['b'], [7])
  whole = path.read_bytes()
  # An array so large that its header is read before its check sum is known.
  np.savez(path, a=np.zeros(10_000))
  large = path.read_bytes()
  assert b"'shape': (" in large
  for content in (
    b'',
    b'weights',
    whole[: len(whole) // 2],
    large.replace(b"'shape': (", b"'shape'[[("),
  ):
    path.write_bytes(content)
    with pytest.raises(data_files.DataError, match='no whole NumPy archive'):
      data_files.read_npz(path)


def test_the_one_file_is_found(tmp_path):
  with pytest.raises(data_files.DataError, match=r'one file.*npz.*found: none'):
    data_files.find(str(tmp_path), '*.npz', 'weights')
  (tmp_path / 'a.npz').touch()
  assert data_files.find(str(tmp_path), '*.npz', 'weights').name == 'a.npz'
  (tmp_path / 'b.npz').touch()
  with pytest.raises(data_files.DataError, match=r'found: a.npz, b.npz'):
    data_files.find(str(tmp_path), '*.npz', 'weights')


def test_names_and_shapes_must_fit(tmp_path):
  with pytest.raises(data_files.DataError, match='no weights named c'):
    data_files.take(_ARRAYS, 'c', (1,), tmp_path)
  with pytest.raises(
    data_files.DataError, match=r'shape \(3, 2\), got \(2, 3\)'
  ):
    data_files.take(_ARRAYS, 'a', (3, 2), tmp_path)
