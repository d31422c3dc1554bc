"""Reader of tables of examples; the path selects the format.

a .csv file, or a folder of them                  `columns`
an .npz archive                                   `columns`
.parquet, .arrow, .feather, or a folder of them   `arrow`
a folder that `save_to_disk` of datasets wrote    `arrow`
a folder of folders of images                     `image_folders`
"""

import pathlib

from tasks.formats import arrow
from tasks.formats import columns
from tasks.formats import image_folders


def read(
  path: pathlib.Path, names: columns.Names, *, image_size: int | None = None
) -> columns.Examples:
  """Reads a table.

  Args:
    path: A file or a folder.
    names: The columns to read.
    image_size: If given, images are resized to squares of this size in pixels;
      otherwise all must have the same size.

  Raises:
    DataError: If the file is missing or invalid; names the file and, if
      possible, line and column.
  """
  try:
    folder = path.is_dir()
  except (OSError, ValueError):  # An impossible path.
    folder = False
  if arrow.is_arrow(path, folder):
    return arrow.read(path, names, image_size=image_size)
  if folder and not any(path.glob('*.csv')) and image_folders.has_images(path):
    return image_folders.read(path, names, image_size=image_size)
  return columns.read(path, names)
