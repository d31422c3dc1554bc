"""The hook that records a run's rounds and clients' step sizes."""

import zlib
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Optional

import numpy as np

from tff_adaptive import errors
from tff_adaptive.lab.recording import files
from tff_adaptive.lab.recording import hooks
from tff_adaptive.lab.recording import step_sizes
from tff_adaptive.lab.recording import tables
from tff_adaptive.lab.recording.checkpoints import folder as checkpoints

# Tables whose rows have checksums in checkpoints.
TABLES = ('metrics', 'step_sizes')
# Groups of columns that are added to the last row at the end of the run.
_FINAL = ('test/', 'test_ema/', 'per_client/', 'per_client_tuned/')


class Records(hooks.Hook):
  """The records of a run, truncated to the round from which it resumes.

  A checkpoint holds a CRC-32 of each row up to its round. Without it, a row
  with altered digits would still be valid and be carried over by a resumed run.

  Attributes:
    rows: Rows of metrics.csv.
    dropped: Number of rows of later rounds, which were dropped.
  """

  def __init__(
    self,
    folder: files.RunFolder,
    checkpoint: Optional[checkpoints.Checkpoint] = None,
  ):
    """Reads existing rows and drops those of later rounds.

    Args:
      folder: The run's folder, entered by the caller.
      checkpoint: The checkpoint from which the run resumes, with checksums of
        `TABLES`; by default all rows are dropped.

    Raises:
      RunError: If rows up to the checkpoint are missing or were changed, or if
        files cannot be read or written.
    """
    self._metrics = tables.RowFile(folder.metrics)
    self._step_sizes = step_sizes.StepFile(folder.step_sizes)
    self._clients = folder.clients
    self._files = dict(
      zip(TABLES, (self._metrics, self._step_sizes), strict=True)
    )
    self._sums: dict[str, list[int]] = {table: [] for table in TABLES}
    last_round = -1
    if checkpoint is not None:
      last_round = checkpoint.round_number
      for table, file in self._files.items():
        self._sums[table] = checkpoint.row_sums[table].tolist()
        _check(file, self._sums[table], last_round)
    self.dropped = self._metrics.drop_after(last_round)
    self._step_sizes.drop_after(last_round)

  @property
  def rows(self) -> list[dict[str, str]]:
    return self._metrics.rows

  def round(self, event: hooks.Round) -> None:
    """Appends a round's row and the step sizes of its clients.

    Raises:
      RunError: If they cannot be written.
    """
    for record in event.steps:
      self._step_sizes.append({'round': event.number, **record})
    self._metrics.append(event.row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    """Writes the clients' rows and adds final values to the last round's row.

    Raises:
      RunError: If they cannot be written.
    """
    if event.clients:
      tables.write(self._clients, event.clients)
    if event.final:  # Others are in the row of their round.
      self._metrics.extend_last(event.values)

  def forget_final(self) -> None:
    """Drops the values of a final evaluation, because more rounds follow."""
    self._metrics.clear_last(_FINAL)

  def sync(self, last_round: int) -> dict[str, np.ndarray]:
    """Flushes rows to disk; returns checksums by table.

    Args:
      last_round: The last round whose row gets a checksum. A later row belongs
        to a round that failed after its row was written.

    Raises:
      RunError: If rows cannot be written.
    """
    for table, file in self._files.items():
      sums = self._sums[table]
      if file.rows:
        file.sync()
      end = len(file.rows)
      while end and int(file.rows[end - 1]['round']) > last_round:
        end -= 1
      # Earlier rows change only in columns that `_sum` excludes.
      sums += [_sum(row) for row in file.rows[len(sums) : end]]
    return {t: np.array(sums, np.uint32) for t, sums in self._sums.items()}


def _sum(row: Mapping[str, str]) -> int:
  """Returns a row's checksum, independent of other rows' columns.

  Final columns are excluded, because they are added after the last checkpoint.
  """
  cells = [
    f'{name}={value}'
    for name, value in sorted(row.items())
    if value and not name.startswith(_FINAL)
  ]
  return zlib.crc32('\n'.join(cells).encode('utf-8'))


def _check(file: tables.RowFile, sums: Sequence[int], last_round: int) -> None:
  """Checks rows against the checksums of a checkpoint.

  Args:
    file: The file with the rows.
    sums: Checksums of all rows up to the checkpoint.
    last_round: The round of the checkpoint.

  Raises:
    RunError: If a row is missing, was added or was changed.
  """
  rows = [row for row in file.rows if int(row['round']) <= last_round]
  for line, (row, total) in enumerate(zip(rows, sums), start=2):
    if _sum(row) != total:
      raise errors.RunError(
        f'{file.path} is damaged in line {line} (round {row["round"]}): it '
        f'does not match its checksum; {tables.ADVICE} to start over.'
      )
  if len(rows) != len(sums):
    raise errors.RunError(
      f'{file.path} has {len(rows):,} rows up to round {last_round}, but had '
      f'{len(sums):,} when the checkpoint of that round was written; '
      f'{tables.ADVICE} to start over.'
    )
