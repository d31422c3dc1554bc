"""The records of a run's rounds: rows, and clients' step sizes."""

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

# Tables whose rows a checkpoint holds checksums of.
TABLES = ('metrics', 'step_sizes')
# Groups of columns that come to the last row when all is done.
_FINAL = ('test/', 'test_ema/', 'per_client/', 'per_client_tuned/')


class Records(hooks.Hook):
  """The records of a run, up to a round that it goes on from.

  A row whose digits were changed still looks like one, and a resumed run would
  carry it on. So a checkpoint holds a CRC-32 of each row up to its round.

  Attributes:
    rows: Of metrics.csv.
    dropped: How many rows there were of later rounds; they are gone.
  """

  def __init__(
    self,
    folder: files.RunFolder,
    checkpoint: Optional[checkpoints.Checkpoint] = None,
  ):
    """Reads what there is and drops what is of later rounds.

    Args:
      folder: The run's, entered by the caller.
      checkpoint: What the run goes on from, with checksums of `TABLES`; it
        starts afresh unless given.

    Raises:
      RunError: If rows up to the checkpoint are missing or were changed, or
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
    """Adds a round's row, and the step sizes of its clients.

    Raises:
      RunError: If they cannot be written.
    """
    for record in event.steps:
      self._step_sizes.append({'round': event.number, **record})
    self._metrics.append(event.row)

  def evaluation(self, event: hooks.Evaluation) -> None:
    """Writes the clients' rows, and adds values to the last round's row.

    Raises:
      RunError: If they cannot be written.
    """
    if event.clients:
      tables.write(self._clients, event.clients)
    if event.final:  # Others are in the row of their round.
      self._metrics.extend_last(event.values)

  def forget_final(self) -> None:
    """Drops the values of a final evaluation: more rounds are to come."""
    self._metrics.clear_last(_FINAL)

  def sync(self, last_round: int) -> dict[str, np.ndarray]:
    """Flushes rows to the disk; returns checksums by table.

    Args:
      last_round: Checksums are of the rows up to this round. A row after it is
        of a round that failed once its row was written.

    Raises:
      RunError: If they cannot be written.
    """
    for table, file in self._files.items():
      sums = self._sums[table]
      if file.rows:
        file.sync()
      end = len(file.rows)
      while end and int(file.rows[end - 1]['round']) > last_round:
        end -= 1
      # Rows before do not change but in what `_sum` leaves out.
      sums += [_sum(row) for row in file.rows[len(sums) : end]]
    return {t: np.array(sums, np.uint32) for t, sums in self._sums.items()}


def _sum(row: Mapping[str, str]) -> int:
  """Returns a row's checksum, whatever columns others have.

  The test split's figures come to the last row behind the last checkpoint.
  """
  cells = [
    f'{name}={value}'
    for name, value in sorted(row.items())
    if value and not name.startswith(_FINAL)
  ]
  return zlib.crc32('\n'.join(cells).encode('utf-8'))


def _check(file: tables.RowFile, sums: Sequence[int], last_round: int) -> None:
  """Compares rows with what they were when a checkpoint was written.

  Args:
    file: Of the rows.
    sums: Checksums of all rows up to the checkpoint.
    last_round: The checkpoint's.

  Raises:
    RunError: If a row is missing, was added or was changed.
  """
  rows = [row for row in file.rows if int(row['round']) <= last_round]
  for line, (row, total) in enumerate(zip(rows, sums), start=2):
    if _sum(row) != total:
      raise errors.RunError(
        f'{file.path} is damaged in line {line} (round {row["round"]}): it is '
        f'not what the run wrote there; {tables.ADVICE} to start afresh.'
      )
  if len(rows) != len(sums):
    raise errors.RunError(
      f'{file.path} has {len(rows):,} rows up to round {last_round}, but had '
      f'{len(sums):,} when the checkpoint of that round was written; '
      f'{tables.ADVICE} to start afresh.'
    )
