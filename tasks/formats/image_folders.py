"""Folders of images: one per class, optionally in one per client."""

import pathlib
from typing import NoReturn
from typing import Optional

import numpy as np

from tasks.formats import columns
from tasks.formats import data_errors
from tasks.formats import data_files
from tasks.formats import pictures


def _is_image(path: pathlib.Path) -> bool:
  return path.suffix.lower() in pictures.SUFFIXES and path.is_file()


def _folders(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a folder's subfolders sorted by name, without hidden ones."""
  return sorted(
    p for p in path.iterdir() if p.is_dir() and not p.name.startswith('.')
  )


def _images(path: pathlib.Path) -> list[pathlib.Path]:
  return sorted(p for p in path.iterdir() if _is_image(p))


def has_images(root: pathlib.Path) -> bool:
  """Returns whether a folder has images, up to two levels deep."""
  below = _folders(root)
  return any(
    any(map(_is_image, folder.iterdir()))
    for folder in [root, *below, *(f for b in below for f in _folders(b))]
  )


def _wrong(where: pathlib.Path, told: str) -> NoReturn:
  raise data_errors.DataError(f'{where}: {told}')


def read(
  root: pathlib.Path,
  names: columns.Names,
  *,
  image_size: Optional[int] = None,
) -> columns.Examples:
  """Reads `ROOT/CLASS/*.png`, or `ROOT/CLIENT/CLASS/*.png`.

  Args:
    root: The folder.
    names: Must name no column: folders define label and client.
    image_size: If given, images are resized to squares of this size in pixels.

  Returns:
    Examples with features float32 [images, height, width, channels] from 0 to
    255, and folder names as labels and clients.

  Raises:
    DataError: If images are in other places, or one cannot be read; names it.
  """
  if names.client or names.features or names.words or names.text:
    _wrong(
      root,
      'folders of images have no columns; --table_client, --table_features, '
      '--table_words and --table_text are for tables.',
    )
  if found := _images(root):
    _wrong(
      root,
      'an image was found beside the folders; CLASS/IMAGE or '
      f'CLIENT/CLASS/IMAGE was expected, got {found[0].name}.',
    )
  by_client = [folder for folder in _folders(root) if not _images(folder)]
  flat = [folder for folder in _folders(root) if _images(folder)]
  deep = [f for f in by_client if any(_images(c) for c in _folders(f))]
  if flat and deep:
    _wrong(
      root,
      f'{flat[0].name} has images, and {deep[0].name} folders of images; '
      'either all folders are classes, or all are clients with folders of '
      'classes.',
    )
  classes = (
    [(client, c) for client in deep for c in _folders(client)]
    if deep
    else [(None, c) for c in flat]
  )
  places = [
    (client, folder, image)
    for client, folder in classes
    for image in _images(folder)
  ]
  images = []
  for _, _, path in places:
    try:
      data_files.check(path)
      content = path.read_bytes()
    except OSError as e:
      raise data_errors.DataError(f'{path} cannot be read: {e}.') from e
    images.append(pictures.decode(content, str(path), size=image_size))
  stacked = pictures.stack(images, [str(path) for _, _, path in places])
  return columns.Examples(
    stacked,
    np.array([folder.name for _, folder, _ in places], object),
    np.array([client.name for client, _, _ in places if client], object)
    if deep
    else None,
    (columns.Column('image', width=stacked[0].size, image=True),),
  )
