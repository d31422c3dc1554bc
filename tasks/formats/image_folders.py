"""Folders of images: one per class, optionally in one per client."""

import pathlib
from typing import Any

import pandas

from tasks.formats import data_files
from tasks.formats import pictures

LABEL, CLIENT, IMAGE = 'label', 'client', 'image'
_NO_DATA = {'thumbs.db', 'desktop.ini'}


def _children(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a folder's files and folders by name, without hidden ones."""
  return sorted(
    p
    for p in path.iterdir()
    if not p.name.startswith('.') and p.name.lower() not in _NO_DATA
  )


def folders(path: pathlib.Path) -> list[pathlib.Path]:
  """Returns a folder's folders by name, without hidden ones."""
  return [p for p in _children(path) if p.is_dir()]


def _images(path: pathlib.Path) -> list[pathlib.Path]:
  return [
    p
    for p in _children(path)
    if p.suffix.lower() in pictures.SUFFIXES and p.is_file()
  ]


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
  rows: list[dict[str, Any]] = []
  skipped = [p for p in _children(root) if p.is_file()]
  for folder in classes:
    skipped += [p for p in set(_children(folder)) - set(_images(folder))]
    for path in _images(folder):
      with data_files.reading(path, 'image'):
        content = path.read_bytes()
      image = {'bytes': content, 'path': str(path)}
      row = {IMAGE: image, LABEL: folder.name}
      rows.append(row | ({CLIENT: folder.parent.name} if deep else {}))
  empty = {f.name for f in classes} - {row[LABEL] for row in rows}
  if empty:
    name = sorted(empty)[0]
    files = [p.name for p in skipped if p.parent.name == name]
    raise data_files.DataError(
      f'{root}: the class {name} has no images'
      + (f', only files such as {sorted(files)[0]}' if files else '')
      + f'; images end in {", ".join(sorted(pictures.SUFFIXES))}.'
    )
  notes = []
  if skipped:
    shown = sorted(str(p.relative_to(root)) for p in skipped)
    more = f' and {len(shown) - 5} more' if len(shown) > 5 else ''
    notes.append(
      f'{len(shown)} files of {root} are skipped, as they do not end in '
      f'{", ".join(sorted(pictures.SUFFIXES))}: {", ".join(shown[:5])}{more}.'
    )
  return pandas.DataFrame(rows), notes
