"""Decoding of untrusted image files to arrays of bytes."""

import io
import pathlib
import warnings
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tasks.formats import data_files

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
