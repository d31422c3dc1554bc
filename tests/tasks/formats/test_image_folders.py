"""Images in folders: classes, and clients above them."""

import pathlib

import numpy as np
import pytest
from PIL import Image

from tasks.formats import columns
from tasks.formats import data_errors
from tasks.formats import tables

_NAMES = columns.Names('label')


def write(path, level, size=(5, 4), mode='RGB'):
  """Writes an image of one colour."""
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.new(mode, size, level).save(path)


def test_a_folder_a_class(tmp_path):
  write(tmp_path / 'cat' / 'b.png', (1, 2, 3))
  write(tmp_path / 'cat' / 'a.BMP', (4, 5, 6))
  write(tmp_path / 'dog' / 'c.png', 7, mode='L')
  (tmp_path / 'dog' / 'notes.txt').write_text('no image')
  (tmp_path / '.cache').mkdir()
  found = tables.read(tmp_path, _NAMES)
  assert found.labels.tolist() == ['cat', 'cat', 'dog']
  assert found.clients is None
  assert found.features.shape == (3, 4, 5, 3)
  assert found.features.dtype == np.float32
  assert found.features[:, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3], [7, 7, 7]]
  assert found.columns == (columns.Column('image', width=60, image=True),)


def test_a_folder_a_client_above(tmp_path):
  for client in ('north', 'south'):
    for label in ('cat', 'dog'):
      write(tmp_path / client / label / '1.png', 9, mode='L')
  found = tables.read(tmp_path, _NAMES)
  assert found.clients.tolist() == ['north'] * 2 + ['south'] * 2
  assert found.labels.tolist() == ['cat', 'dog'] * 2
  assert found.features.shape == (4, 4, 5, 1)


def test_images_are_scaled_if_asked(tmp_path):
  write(tmp_path / 'cat' / '1.png', (1, 2, 3), size=(8, 8))
  write(tmp_path / 'dog' / '2.png', (1, 2, 3), size=(5, 9))
  with pytest.raises(data_errors.DataError, match=r'2\.png has 5 x 9.*8 x 8'):
    tables.read(tmp_path, _NAMES)
  found = tables.read(tmp_path, _NAMES, image_size=3)
  assert found.features.shape == (2, 3, 3, 3)
  assert np.unique(found.features.reshape(-1, 3), axis=0).tolist() == [
    [1, 2, 3]
  ]


def test_what_is_somewhere_else(tmp_path):
  write(tmp_path / 'cat' / '1.png', (1, 2, 3))
  with pytest.raises(data_errors.DataError, match='have no columns'):
    tables.read(tmp_path, columns.Names('label', client='who'))
  write(tmp_path / 'south' / 'dog' / '2.png', (1, 2, 3))
  with pytest.raises(data_errors.DataError, match='cat has images, and south'):
    tables.read(tmp_path, _NAMES)
  write(tmp_path / '3.png', (1, 2, 3))
  with pytest.raises(data_errors.DataError, match='beside the folders'):
    tables.read(tmp_path, _NAMES)


def _truncate(path):
  path.write_bytes(path.read_bytes()[:40])


def _vanish(path):
  path.write_bytes(b'')


def _postscript(path):
  # Pillow would have Ghostscript run this.
  path.write_bytes(b'%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n')


def _deep(path):
  Image.fromarray(np.zeros([4, 5], np.uint16)).save(path)


def _enormous(path):
  # A size of 60,000 x 60,000 in the header of a small file.
  content = bytearray(path.read_bytes())
  content[16:24] = (60_000).to_bytes(4, 'big') * 2
  path.write_bytes(content)


@pytest.mark.parametrize(
  'damage', [_truncate, _vanish, _postscript, _deep, _enormous]
)
def test_an_image_that_cannot_be_read_is_named(tmp_path, damage):
  path = tmp_path / 'cat' / 'x.png'
  write(path, (1, 2, 3))
  damage(path)
  with pytest.raises(data_errors.DataError, match=r'cat/x\.png'):
    tables.read(tmp_path, _NAMES)


def test_a_folder_without_images_is_one_of_csv_files(tmp_path):
  (tmp_path / 'cat').mkdir()
  with pytest.raises(data_errors.DataError, match='folder of CSV files'):
    tables.read(tmp_path, _NAMES)
  with pytest.raises(data_errors.DataError, match='There is no file'):
    tables.read(pathlib.Path(tmp_path, 'none'), _NAMES)
