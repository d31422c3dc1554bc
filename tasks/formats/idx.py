"""Reader of IDX files, the format of MNIST and Fashion-MNIST."""

import gzip
import math
import pathlib

import numpy as np

from tasks.formats import data_files

_UNSIGNED_BYTE = 0x08


def find(folder: pathlib.Path, name: str, get: str) -> pathlib.Path:
  """Returns the path of a file, or else that with .gz appended.

  Raises:
    DataError: If neither exists.
  """
  for path in (folder / name, folder / f'{name}.gz'):
    if path.is_file():
      return path
  raise data_files.DataError(f'There is no file {folder / name}[.gz]. {get}')


def read(path: pathlib.Path, dimensions: int, get: str) -> np.ndarray:
  """Reads an array of unsigned bytes, decompressing .gz files.

  A file is two zero bytes, the type (8 for unsigned bytes), the number of
  dimensions, each dimension as a big-endian uint32, then the values.

  Args:
    path: The file.
    dimensions: Expected number of dimensions: 3 for images, 1 for labels.
    get: Advice for the error message how to get the file.

  Raises:
    DataError: If the file is damaged or of another kind.
  """
  magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
  begin = 4 + 4 * dimensions
  opened = gzip.open if path.suffix == '.gz' else open
  with data_files.reading(path, 'IDX file', get), opened(path, 'rb') as file:
    header = file.read(begin)
    shape = np.frombuffer(header[4:].ljust(begin - 4, b'\0'), '>u4').tolist()
    expected = math.prod(shape)
    data_files.check_size(path, expected, get)
    # At most one byte too many: a small file can decompress to a huge one.
    content = file.read(expected + 1)
  if header[:4] != magic or not expected or len(content) != expected:
    raise data_files.DataError(
      f'{path} should begin with the bytes {magic.hex(" ")} and have '
      f'{begin + expected} bytes for {tuple(shape)} values, but begins with '
      f'{header[:4].hex(" ") or "nothing"} and has '
      f'{"more" if len(content) > expected else len(header + content)}. {get}'
    )
  return np.frombuffer(content, np.uint8).reshape(shape)


def read_pair(
  folder: pathlib.Path, prefix: str, *, num_classes: int, get: str
) -> tuple[np.ndarray, np.ndarray]:
  """Reads images uint8 [examples, 28, 28] and labels int32 of one split.

  Args:
    folder: Folder of the files.
    prefix: 'train' or 't10k'.
    num_classes: Upper bound of labels, exclusive.
    get: Advice for the error message how to get the files.

  Raises:
    DataError: If a file is missing or damaged, or their lengths differ.
  """
  images_path = find(folder, f'{prefix}-images-idx3-ubyte', get)
  labels_path = find(folder, f'{prefix}-labels-idx1-ubyte', get)
  images = read(images_path, 3, get)
  labels = read(labels_path, 1, get)
  if images.shape[1:] != (28, 28):
    raise data_files.DataError(
      f'{images_path} must hold images of 28 x 28, got '
      f'{images.shape[1]} x {images.shape[2]}. {get}'
    )
  if len(images) != len(labels):
    raise data_files.DataError(
      f'{images_path} holds {len(images)} images, but {labels_path} '
      f'{len(labels)} labels. {get}'
    )
  wrong = np.flatnonzero(labels >= num_classes)
  if len(wrong):
    raise data_files.DataError(
      f'{labels_path}, record {wrong[0]}: a label below {num_classes} was '
      f'expected, got {labels[wrong[0]]}. {get}'
    )
  return images, labels.astype(np.int32)
