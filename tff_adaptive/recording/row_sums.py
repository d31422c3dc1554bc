"""Check sums of a run's rows, beside its checkpoints."""

import pathlib
import zlib
from collections.abc import Callable
from collections.abc import Mapping

import numpy as np

from tff_adaptive import errors
from tff_adaptive.recording import checkpoints
from tff_adaptive.recording import files


class RowSums:
  """What each row of a table was when a checkpoint was last written.

  A row whose digits were changed still looks like one, and a resumed run would
  carry it on. So a file keeps a CRC-32 for each row, under a digest of its own.
  It is written before the checkpoint that needs it: whichever checkpoint a run
  goes on from, the file knows all rows up to that one. Those behind it are run
  again.
  """

  def __init__(self, path: pathlib.Path, table: files.RowFile):
    """Names the file, which need not exist.

    Args:
      path: The file.
      table: Whose rows to keep.
    """
    self._path = path
    self._table = table
    # Of the rows that were saved: from then on none changes but in what `_sum`
    # leaves out.
    self._sums: list[int] = []

  def save(self) -> None:
    """Makes the rows last, if there are any, and keeps what they are.

    Raises:
      RunError: If a file cannot be written.
    """
    if not self._table.rows:
      return
    self._table.sync()
    files.make_folder(self._path.parent)
    new = self._table.rows[len(self._sums) :]
    self._sums += [_sum(row) for row in new]
    checkpoints.write(self._path, [np.array(self._sums, np.uint32)])

  def check(self, last_round: int, warn: Callable[[str], None]) -> None:
    """Compares the rows up to a round with what they were.

    Args:
      last_round: The round of the checkpoint that is resumed from.
      warn: Is told, in a sentence, if the rows cannot be checked.

    Raises:
      RunError: If a row was changed.
    """
    if not self._table.rows:
      return
    try:
      sums = checkpoints.read(self._path)[0].tolist()
    except (errors.DamagedError, OSError) as e:
      warn(
        f'The rows of {self._table.path} up to round {last_round} are taken as '
        f'they are: {errors.reason(e)}.'
      )
      return
    for line, (row, total) in enumerate(zip(self._table.rows, sums), start=2):
      if int(row['round']) <= last_round and _sum(row) != total:
        raise errors.RunError(
          f'{self._table.path} is damaged in line {line} (round '
          f'{row["round"]}): it is not what the run wrote there; '
          f'{files.ADVICE} to start afresh.'
        )


def _sum(row: Mapping[str, str]) -> int:
  """A row's check sum, whatever columns others have.

  The test split's figures come to the last row behind the last checkpoint.
  """
  cells = [
    f'{name}={value}'
    for name, value in sorted(row.items())
    if value and not name.startswith('test/')
  ]
  return zlib.crc32('\n'.join(cells).encode('utf-8'))
