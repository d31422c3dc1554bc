"""Images in folders: classes, and clients above them."""

import os
import pathlib

import numpy as np
import pytest
from PIL import Image

from tasks.formats import data_files
from tasks.formats import tables

_NAMES = tables.Names('label')


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
  (tmp_path / 'dog' / 'Thumbs.db').write_text('no image')
  found = tables.read(tmp_path, _NAMES)
  assert found.labels.tolist() == ['cat', 'cat', 'dog']
  assert found.clients is None
  assert found.numbers.shape == (3, 4, 5, 3)
  assert found.numbers[:, 0, 0].tolist() == [[4, 5, 6], [1, 2, 3], [7, 7, 7]]
  [column] = found.columns
  assert (column.name, column.kind, column.width) == ('image', 'image', 60)
  [note] = found.notes
  assert '1 files of' in note and 'dog/notes.txt' in note


def test_a_folder_a_client_above(tmp_path):
  for client in ('north', 'south'):
    for label in ('cat', 'dog'):
      write(tmp_path / client / label / '1.png', 9, mode='L')
  found = tables.read(tmp_path, _NAMES)
  assert found.clients.tolist() == ['north'] * 2 + ['south'] * 2
  assert found.labels.tolist() == ['cat', 'dog'] * 2
  assert found.numbers.shape == (4, 4, 5, 1)


def test_names_that_are_not_utf_8(tmp_path):
  root = tmp_path / os.fsdecode(b'r\xff')
  for client in (b'caf\xe9', 'zoë\r'.encode()):
    for label in (b'\xe9', b'dog'):
      folder = root / os.fsdecode(client) / os.fsdecode(label)
      write(folder / os.fsdecode(b'\xe8.png'), 9)
  found = tables.read(root, _NAMES)
  assert found.clients.tolist() == ['caf\\xe9'] * 2 + ['zoë\r'] * 2
  assert found.labels.tolist() == ['dog', '\\xe9'] * 2


def test_images_are_scaled_if_asked(tmp_path):
  write(tmp_path / 'cat' / '1.png', (1, 2, 3), size=(8, 8))
  write(tmp_path / 'dog' / '2.png', (1, 2, 3), size=(5, 9))
  with pytest.raises(data_files.DataError, match=r'2\.png has 5 x 9.*8 x 8'):
    tables.read(tmp_path, _NAMES)
  found = tables.read(tmp_path, tables.Names('label', image_size=3))
  assert found.numbers.shape == (2, 3, 3, 3)
  assert np.unique(found.numbers.reshape(-1, 3), axis=0).tolist() == [[1, 2, 3]]


def test_a_class_without_images_is_an_error(tmp_path):
  write(tmp_path / 'cat' / '1.png', (1, 2, 3))
  write(tmp_path / 'dog' / '2.tif', (1, 2, 3))
  with pytest.raises(data_files.DataError) as error:
    tables.read(tmp_path, _NAMES)
  for part in ('the class dog has no images', '2.tif', '.png'):
    assert part in str(error.value)
  deep = tmp_path / 'deep'
  write(deep / 'north' / 'cat' / '1.png', 9, mode='L')
  write(deep / 'north' / 'dog' / '1.png', 9, mode='L')
  write(deep / 'south' / 'dog' / '1.png', 9, mode='L')
  (deep / 'south' / 'cat').mkdir()  # One client has none of it.
  assert len(tables.read(deep, _NAMES).labels) == 3


def test_a_camera_on_its_side(tmp_path):
  pixels = np.zeros([4, 6, 3], np.uint8)
  pixels[:2] = 200
  for orientation, turned in ((3, 2), (6, 3), (8, 1)):
    path = tmp_path / f'class_{orientation}' / '1.png'
    path.parent.mkdir()
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.rot90(pixels, 4 - turned)).save(path, exif=exif)
  found = tables.read(tmp_path, _NAMES)
  np.testing.assert_array_equal(found.numbers, [pixels] * 3)


@pytest.mark.parametrize('mode', ['RGBA', 'LA', 'P'])
def test_what_is_transparent_is_white(tmp_path, mode):
  image = Image.new('RGBA', (4, 4), (0, 0, 0, 0))
  image.putpixel((1, 2), (0, 0, 0, 255))
  for label in ('a', 'b'):
    (tmp_path / label).mkdir()
    image.convert(mode).save(tmp_path / label / '1.png')
  found = tables.read(tmp_path, _NAMES).numbers
  expected = np.full([4, 4], 255)
  expected[2, 1] = 0
  np.testing.assert_array_equal(found[0, ..., 0], expected)
  assert found.shape[-1] == (1 if mode == 'LA' else 3)


def test_folders_of_splits(tmp_path):
  for split, count in (('train', 3), ('test', 1), ('val', 2)):
    for label in ('cat', 'dog'):
      for i in range(count):
        write(tmp_path / split / label / f'{i}.png', 9, mode='L')
  found = tables.read(tmp_path, _NAMES)
  assert found.clients is None
  assert sorted(set(found.labels)) == ['cat', 'dog']
  assert (found.split == 'validation').sum() == 4
  # A class may be called so: trains beside cars.
  for label in ('train', 'car'):
    write(tmp_path / 'vehicles' / label / '1.png', 9, mode='L')
  assert set(tables.read(tmp_path / 'vehicles', _NAMES).labels) == {
    'train',
    'car',
  }


def test_what_is_somewhere_else(tmp_path):
  write(tmp_path / 'cat' / '1.png', (1, 2, 3))
  with pytest.raises(data_files.DataError, match='have no columns'):
    tables.read(tmp_path, tables.Names('label', client='who'))
  write(tmp_path / 'south' / 'dog' / '2.png', (1, 2, 3))
  with pytest.raises(data_files.DataError, match='cat has images, and south'):
    tables.read(tmp_path, _NAMES)
  write(tmp_path / '3.png', (1, 2, 3))
  with pytest.raises(data_files.DataError, match='beside the folders'):
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
  with pytest.raises(data_files.DataError, match=r'cat/x\.png'):
    tables.read(tmp_path, _NAMES)


def test_a_folder_without_images_is_one_of_csv_files(tmp_path):
  (tmp_path / 'cat').mkdir()
  with pytest.raises(data_files.DataError, match='folder of CSV files'):
    tables.read(tmp_path, _NAMES)
  with pytest.raises(data_files.DataError, match='There is no file'):
    tables.read(pathlib.Path(tmp_path, 'none'), _NAMES)
