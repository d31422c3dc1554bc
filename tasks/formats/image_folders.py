"""Images: folders of them, one per class or client, and their decoding."""

import io
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any, Optional

import numpy as np
import pandas

from tasks.formats import data_files

LABEL, CLIENT, IMAGE = 'label', 'client', 'image'
_NO_DATA = {'thumbs.db', 'desktop.ini'}


def children(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a folder's files and folders by name, without hidden ones."""
  return sorted(
    p
    for p in path.iterdir()
    if not p.name.startswith('.') and p.name.lower() not in _NO_DATA
  )


def folders(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a folder's folders by name, without hidden ones."""
  return [p for p in children(path) if p.is_dir()]


def _images(path: pathlib.Path) -> list[pathlib.Path]:
  return [
    p for p in children(path) if p.suffix.lower() in SUFFIXES and p.is_file()
  ]


def text_of(name: str) -> str:
  """Returns a file's name, with bytes that are not UTF-8 as '\\xe9'."""
  content = name.encode('utf-8', 'surrogateescape')
  return content.decode('utf-8', 'backslashreplace')


def has_images(root: pathlib.Path) -> bool:
  """Returns whether a folder has images, up to two levels deep."""
  below = folders(root)
  deeper = [f for b in below for f in folders(b)]
  return any(_images(folder) for folder in [root, *below, *deeper])


def read(root: pathlib.Path) -> tuple[pandas.DataFrame, list[str]]:
  """Reads `ROOT/CLASS/*.png`, or `ROOT/CLIENT/CLASS/*.png`.

  Args:
    root: The folder.

  Returns:
    Columns `IMAGE`, of dictionaries with `bytes` and `path`, `LABEL` and, with
    clients, `CLIENT`; and notes on files that were skipped.

  Raises:
    DataError: If images are in other places, one cannot be read, or a class has
      none; names it.
  """
  if found := _images(root):
    raise data_files.DataError(
      f'{root}: an image was found beside the folders; CLASS/IMAGE or '
      f'CLIENT/CLASS/IMAGE was expected, got {found[0].name}.'
    )
  flat = [folder for folder in folders(root) if _images(folder)]
  deep = [f for f in folders(root) if any(map(_images, folders(f)))]
  if flat and deep:
    raise data_files.DataError(
      f'{root}: {flat[0].name} has images, and {deep[0].name} folders of '
      'images; either all folders are classes, or all are clients with folders '
      'of classes.'
    )
  classes = folders(root)
  if deep:
    classes = [c for client in folders(root) for c in folders(client)]
    if lost := [folder for folder in folders(root) if folder not in deep]:
      raise data_files.DataError(
        f'{root}: {lost[0].name} has no folder of images, as {deep[0].name} '
        f'has; images end in {", ".join(sorted(SUFFIXES))}.'
      )
  rows: list[dict[str, Any]] = []
  beside = [root, *(folders(root) if deep else [])]
  skipped = [p for f in beside for p in children(f) if p.is_file()]
  for folder in classes:
    skipped += [p for p in set(children(folder)) - set(_images(folder))]
    for path in _images(folder):
      with data_files.reading(path, 'image'):
        content = path.read_bytes()
      image = {'bytes': content, 'path': str(path)}
      row = {IMAGE: image, LABEL: text_of(folder.name)}
      rows.append(row | ({CLIENT: text_of(folder.parent.name)} if deep else {}))
  empty = {text_of(f.name) for f in classes} - {row[LABEL] for row in rows}
  if empty:
    name = sorted(empty)[0]
    files = [p.name for p in skipped if text_of(p.parent.name) == name]
    raise data_files.DataError(
      f'{root}: the class {name} has no images'
      + (f', only files such as {sorted(files)[0]}' if files else '')
      + f'; images end in {", ".join(sorted(SUFFIXES))}.'
    )
  notes = []
  if skipped:
    shown = sorted(str(p.relative_to(root)) for p in skipped)
    more = f' and {len(shown) - 5} more' if len(shown) > 5 else ''
    notes.append(
      f'{len(shown)} files of {root} are skipped, as they do not end in '
      f'{", ".join(sorted(SUFFIXES))}: {", ".join(shown[:5])}{more}.'
    )
  return pandas.DataFrame(rows), notes


# Accepted formats of Pillow: none runs another program, as PostScript does.
_FORMATS = ('PNG', 'JPEG', 'BMP', 'GIF', 'WEBP', 'PPM')
SUFFIXES = frozenset(
  f'.{ending}'
  for ending in ('png', 'jpg', 'jpeg', 'bmp', 'gif', 'webp', 'ppm', 'pgm')
)


def decode(
  content: bytes, where: str, *, size: Optional[int] = None
) -> np.ndarray:
  """Decodes an image, or the first frame of an animation.

  Args:
    content: The file's bytes.
    where: The image's location, for errors.
    size: If given, the image is resized to a square of this size in pixels.

  Returns:
    uint8 [height, width, channels], with 1 channel for grey and 3 for color.

  Raises:
    DataError: If it is damaged or of an unsupported format.
  """
  # Takes a second to import, and only images need it.
  from PIL import Image
  from PIL import ImageOps

  try:
    with warnings.catch_warnings():
      # For example, a small file that declares an enormous size.
      warnings.simplefilter('error', Image.DecompressionBombWarning)
      with Image.open(io.BytesIO(content), formats=_FORMATS) as image:
        grey = image.mode in ('1', 'L', 'LA', 'I', 'I;16', 'F')
        if image.mode.startswith('I') or image.mode == 'F':
          raise data_files.DataError(
            f'{where}: an image of bytes was expected, got one of mode '
            f'{image.mode}; write its numbers into an .npz archive.'
          )
        # As the camera was held; what is transparent shows white.
        turned = ImageOps.exif_transpose(image)
        if turned.has_transparency_data:
          turned = turned.convert('RGBA')
          white = Image.new('RGBA', turned.size, 'white')
          turned = Image.alpha_composite(white, turned)
        plain = turned.convert('L' if grey else 'RGB')
      if size is not None:
        plain = plain.resize((size, size), Image.Resampling.BILINEAR)
      pixels = np.asarray(plain, np.uint8)
  except data_files.DataError:
    raise
  # Decoders raise OSError, SyntaxError, struct.error and others, depending on
  # the format.
  except Exception as e:  # pylint: disable=broad-exception-caught
    raise data_files.DataError(
      f'{where} is no whole image ({", ".join(_FORMATS)}): {e}.'
    ) from e
  return pixels[..., np.newaxis] if pixels.ndim == 2 else pixels


def stack(images: Sequence[np.ndarray], places: Sequence[str]) -> np.ndarray:
  """Stacks images of equal size, converting grey to color if others have it.

  Args:
    images: As `decode` returns them.
    places: Location of each image, for errors.

  Returns:
    float32 [images, height, width, channels], from 0 to 255.

  Raises:
    DataError: If images differ in size, or are too many.
  """
  first = images[0].shape[:2]
  for image, where in zip(images, places, strict=True):
    if image.shape[:2] != first:
      raise data_files.DataError(
        f'{where} has {image.shape[1]} x {image.shape[0]} pixels, but '
        f'{places[0]} has {first[1]} x {first[0]}; to scale them all, give '
        '--table_image_size=PIXELS.'
      )
  channels = max(image.shape[2] for image in images)
  shape = (len(images), *first, channels)
  data_files.check_size(pathlib.Path(places[0]), 4 * int(np.prod(shape)))
  stacked = np.empty(shape, np.float32)
  for i, image in enumerate(images):
    stacked[i] = image
  return stacked
